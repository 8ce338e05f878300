// <state-dir>/downloads/<hex>-<key>.part: what there is of a blob, to be gone on with after a
// failure or a restart. Of pulls that want one blob of one registry at once, one at a time has the
// file (flock(2)); <key> stands for registry and size, so that nobody waits for a registry that
// only says it has a blob. Nothing in it is believed before its digest was computed over all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rootfs/digest.h"

namespace hutch::rootfs::registry {

struct PartOf {
  std::string registry;  // "host[:port]"
  std::string digest;
  uint64_t size = 0;  // bytes, as the manifest says
};

class PartFile {
 public:
  // Makes it where it is missing, 0600. None when another pull has it just now.
  static Result<std::optional<PartFile>> TryLock(const std::string& directory, const PartOf& part);
  PartFile(PartFile&&) noexcept = default;
  PartFile& operator=(PartFile&&) noexcept = default;

  uint64_t size() const { return size_; }  // bytes there are
  // Hashes up to max_bytes more of what was there at first; true when all of it is.
  Result<bool> HashSome(size_t max_bytes);
  // Behind what there is; all of that must be hashed. kNoSpace.
  Status Append(std::string_view bytes);
  // Starts over with nothing, in another file of that name: whoever reads the old one reads on.
  Status Restart();
  // The digest of all of it; call it once, or again after Restart().
  std::string Digest() { return hash_.Digest(); }
  // Lets others have it; the descriptor stays.
  Status Unlock();
  Status Remove();
  // A description of its own that stands at the first byte.
  Result<UniqueFd> OpenForReading() const;

 private:
  PartFile(std::string path, UniqueFd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  std::string path_;
  UniqueFd fd_;
  uint64_t size_ = 0, hashed_ = 0;
  Sha256 hash_;
};

// Removes the parts that nobody has and nobody wrote to for `days`; 0: all that nobody has.
Status SweepParts(const std::string& directory, unsigned days);

}  // namespace hutch::rootfs::registry
