// What is done with a volume's image and its files from outside: e2fsprogs, and archives.
#include <endian.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/child_program.h"
#include "rootfs/layer_tar.h"
#include "rootfs/limits.h"
#include "rootfs/unpack_process.h"
#include "rootfs/volumes.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMaxToolOutput = 4096;  // that is read of what a tool says

// Of ext4's superblock, little-endian (the kernel's documentation: filesystems/ext4).
constexpr off_t kSuperblockAt = 1024;
constexpr size_t kSuperblockBytes = 1024;
constexpr size_t kInodes = 0x0, kBlocksLow = 0x4, kFreeLow = 0xC, kFreeInodes = 0x10,
                 kLogBlock = 0x18, kMagicAt = 0x38, kBlocksHigh = 0x150, kFreeHigh = 0x158,
                 kOverhead = 0x248;
constexpr uint16_t kMagic = 0xEF53;
constexpr uint32_t kMaxLogBlock = 6;

uint32_t At32(const char* bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes + at, sizeof value);
  return le32toh(value);
}

constexpr int kPutRight = 1;  // e2fsck's exit code: something was, and all is well
constexpr const char* kToolNames[] = {"make", "check", "grow"};

// The last line a tool wrote, for people.
std::string LastLine(int fd) {
  char bytes[kMaxToolOutput];
  const ssize_t n = ::read(fd, bytes, sizeof bytes);
  std::string text(bytes, n > 0 ? static_cast<size_t>(n) : 0);
  const std::string_view trimmed = Trim(text);
  std::string line(trimmed.substr(trimmed.rfind('\n') + 1));
  for (char& c : line)
    if (c < ' ' || c == 0x7f) c = '?';
  return line;
}

}  // namespace

namespace {

Status ReadSuperblock(int image_fd, char* bytes) {
  const ssize_t n = ::pread(image_fd, bytes, kSuperblockBytes, kSuperblockAt);
  if (n < 0) return SysError(errno, "read a superblock");
  uint16_t magic = 0;
  std::memcpy(&magic, bytes + kMagicAt, sizeof magic);
  if (n != static_cast<ssize_t>(kSuperblockBytes) || le16toh(magic) != kMagic ||
      At32(bytes, kLogBlock) > kMaxLogBlock)
    return Error{.code = Code::kCorrupt, .what = "the image has no ext4 file system"};
  return OkStatus();
}

uint64_t At64(const char* bytes, size_t low, size_t high) {
  return uint64_t{At32(bytes, high)} << 32 | At32(bytes, low);
}

}  // namespace

Result<uint64_t> FilesystemBytes(int image_fd) {
  char bytes[kSuperblockBytes];
  RETURN_IF_ERROR(ReadSuperblock(image_fd, bytes));
  return At64(bytes, kBlocksLow, kBlocksHigh) << (10 + At32(bytes, kLogBlock));
}

Result<VolumeMount::Use> FilesystemUse(int image_fd) {
  char bytes[kSuperblockBytes];
  RETURN_IF_ERROR(ReadSuperblock(image_fd, bytes));
  const uint32_t shift = 10 + At32(bytes, kLogBlock);
  const uint64_t all = At64(bytes, kBlocksLow, kBlocksHigh);
  const uint64_t total = all - std::min<uint64_t>(all, At32(bytes, kOverhead));
  const uint64_t free = std::min(total, At64(bytes, kFreeLow, kFreeHigh));
  const uint64_t inodes = At32(bytes, kInodes);
  return VolumeMount::Use{
      .total_bytes = total << shift,
      .used_bytes = (total - free) << shift,
      .inodes = inodes,
      .inodes_used = inodes - std::min<uint64_t>(inodes, At32(bytes, kFreeInodes))};
}

Status RunVolumeTool(VolumeTool tool, const std::string& image, int image_fd,
                     const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const std::string path, FindProgram("hutch-volume"));
  ASSIGN_OR_RETURN(Pipe said, MakePipe(O_NONBLOCK));
  ProgramRequest request{.path = path,
                         .args = {"hutch-volume", kToolNames[static_cast<size_t>(tool)], image},
                         .env = {},
                         .fds = {-1, said.write.get(), said.write.get(), image_fd}};
  request.args.insert(request.args.end(), arguments.begin(), arguments.end());
  ASSIGN_OR_RETURN(ChildProgram child, ChildProgram::Start(request));
  said.write.reset();
  if (!child.WaitEnded(static_cast<int>(kVolumeToolSeconds) * 1000))
    return Error{.code = Code::kUnavailable, .what = "e2fsprogs took too long"};
  ASSIGN_OR_RETURN(const int code, child.Wait());
  const bool put_right = tool == VolumeTool::kCheck && code == kPutRight;
  if (code == 0 || put_right) return OkStatus();
  const std::string line = LastLine(said.read.get());
  return Error{.code = Code::kKernel,
               .what = std::string("hutch-volume ") + kToolNames[static_cast<size_t>(tool)] +
                       " ended with " + std::to_string(code) + (line.empty() ? "" : ": " + line)};
}

Status Volumes::Export(const std::string& name, const ByteSink& sink) {
  ASSIGN_OR_RETURN(const auto mount, Attach(name));
  return WriteTreeTar(mount->fd(), sink);
}

Status Volumes::Import(const std::string& name, int input_fd) {
  ASSIGN_OR_RETURN(const auto mount, Attach(name));
  RETURN_IF_ERROR(RunUnpack({.mode = UnpackMode::kTree,
                             .input_fd = input_fd,
                             .size_bytes = kMaxArchiveBytes,
                             .directory = mount->directory()}));
  // What was acknowledged is on the disk.
  ASSIGN_OR_RETURN(const UniqueFd root, OpenAt(mount->fd(), ".", O_RDONLY | O_DIRECTORY));
  return ::syncfs(root.get()) == 0 ? OkStatus() : Status(SysError(errno, "sync a volume"));
}

}  // namespace hutch::rootfs
