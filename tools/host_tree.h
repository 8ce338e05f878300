// Trees of this host, to and from tar.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/client.h"
#include "tools/tar_reader.h"

namespace hutch::tools {

// One header of a tar: ustar, with a pax header before it for what does not fit.
std::string TarHeader(const TarEntry& entry, int64_t mtime);

// What is in a directory as a tar, named relative to it; modes and times are kept, owners are not.
// Sockets, FIFOs and devices are left out and counted. In constant memory.
class TreePacker {
 public:
  static Result<TreePacker> Open(const std::string& directory);
  TreePacker(TreePacker&&) noexcept;
  ~TreePacker();

  // A BodySource. kUnavailable for a file that shrinks meanwhile.
  Result<size_t> Read(char* bytes, size_t size);
  uint64_t left_out() const { return left_out_; }

 private:
  struct Walk;
  explicit TreePacker(std::unique_ptr<Walk> walk);
  Status Next();

  std::unique_ptr<Walk> walk_;
  std::string pending_;
  UniqueFd file_;
  uint64_t file_left_ = 0, padding_ = 0;
  uint64_t left_out_ = 0;
  bool ended_ = false;
};

// A tar of a stranger's into a directory of this host. No name leads out of it: ".." is refused,
// and so is a way through a symlink, whoever made it. Set-id bits are dropped, devices left out and
// counted; what is there is replaced, a directory only by a directory.
class TreeUnpacker {
 public:
  explicit TreeUnpacker(UniqueFd directory);

  Status Feed(std::string_view bytes) { return reader_.Feed(bytes); }
  // Modes of directories, last. kCorrupt for an archive that was cut off.
  Status Finish();
  uint64_t left_out() const { return left_out_; }

 private:
  Status Begin(const TarEntry& entry);
  Status BeginFile(const TarEntry& entry, int parent_fd, const std::string& name);
  Status End();

  UniqueFd directory_;
  TarReader reader_;
  TarEntry entry_;
  UniqueFd file_;
  std::vector<std::pair<std::string, uint32_t>> closed_directories_;  // not writable for us
  uint64_t left_out_ = 0;
};

}  // namespace hutch::tools
