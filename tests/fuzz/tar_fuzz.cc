// Layers of any bytes, packed or not: whatever they say, nothing beside the directory they are
// unpacked into changes, limits hold, and the same bytes have the same digests and the same end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/unique_fd.h"
#include "rootfs/unpack/stream.h"
#include "rootfs/unpack/unpacker.h"

namespace hutch::rootfs {
namespace {

constexpr UnpackLimits kLimits = {.entries = 200, .bytes = 1u << 20};

// <directory>/root is unpacked into; <directory>/beside is what must not change.
class Place {
 public:
  Place() {
    char name[] = "/tmp/hutch-tar-fuzz.XXXXXX";
    if (::mkdtemp(name) == nullptr) std::abort();
    path_ = name;
    if (!WriteFileAtomic(path_ + "/beside", "canary", Durability::kMemory)) std::abort();
    ::umask(0);
  }
  ~Place() { IgnoreError(RemoveTree(path_), "the system clears it"); }

  UniqueFd EmptyRoot() const {
    if (!RemoveTree(path_ + "/root") || ::mkdir((path_ + "/root").c_str(), 0755) != 0) std::abort();
    return UniqueFd(::open((path_ + "/root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void CheckBeside() const {
    const auto names = ListDirectory(path_);
    const auto canary = ReadFile(path_ + "/beside", 100);
    struct stat status {};
    if (!names || names->size() != 2 || !canary || *canary != "canary" ||
        ::lstat((path_ + "/beside").c_str(), &status) != 0 || status.st_nlink != 1)
      std::abort();
  }

 private:
  std::string path_;
};

// What became of it, as text.
std::string Unpack(int input, size_t size, int root) {
  if (::lseek(input, 0, SEEK_SET) != 0) std::abort();
  Stream stream(input, size);
  auto tar = stream.OpenTar();
  if (!tar) return tar.error().ToString();
  UnpackCounts counts;
  const Status done = Unpacker(root, kLimits).Run(tar->get(), &counts);
  if (counts.entries > kLimits.entries + 1 || counts.bytes > kLimits.bytes + (1u << 16))
    std::abort();
  if (!done) return done.error().ToString();
  const Status drained = stream.Drain();
  if (!drained) return drained.error().ToString();
  const Stream::Digests digests = stream.Finish();
  return digests.packed + " " + digests.plain + " " + std::to_string(counts.entries) + " " +
         std::to_string(counts.dropped);
}

}  // namespace
}  // namespace hutch::rootfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hutch;
  static const rootfs::Place place;
  const UniqueFd input(::memfd_create("layer", MFD_CLOEXEC));
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!WriteAll(input.get(), bytes)) std::abort();
  std::string ends[2];
  for (std::string& end : ends) {
    const UniqueFd root = place.EmptyRoot();
    end = rootfs::Unpack(input.get(), size, root.get());
    place.CheckBeside();
  }
  if (ends[0] != ends[1]) std::abort();
  return 0;
}
