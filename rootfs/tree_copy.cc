// One directory at a time: its files are copied where they stand, its directories are kept by name
// until their turn. The way back is "..", which leads where it came from: nothing moves meanwhile.
#include "rootfs/tree_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/sys_raw.h"
#include "rootfs/limits.h"
#include "rootfs/tree_copy_attributes.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kSendBytes = 4u << 20;  // between two looks at `cancelled`
constexpr size_t kListBytes = 32 * 1024;
constexpr mode_t kModeBits = 07777;
// Files with several names, by inode, until the last of those is there; beside the target, where no
// tenant looks.
constexpr char kLinksName[] = ".links";

struct ListEntry {  // linux_dirent64
  uint64_t ino;
  int64_t off;
  uint16_t size;
  uint8_t type;
  char name[];
};

struct Frame {
  struct stat info {};
  std::vector<std::string> directories;  // still to be done, the last one first
};

struct Link {
  nlink_t left;  // names still to come
};

bool IsDots(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

class Copier {
 public:
  explicit Copier(const TreeCopy& copy) : copy_(copy) {}

  Result<TreeCopied> Run() {
    ASSIGN_OR_RETURN(source_, OpenAt(copy_.source, ".", O_RDONLY | O_DIRECTORY));
    ASSIGN_OR_RETURN(target_, OpenAt(copy_.target, ".", O_RDONLY | O_DIRECTORY));
    ASSIGN_OR_RETURN(parent_, OpenAt(copy_.target, "..", O_RDONLY | O_DIRECTORY));
    RETURN_IF_ERROR(EnterFrame());
    RETURN_IF_ERROR(Walk());
    RETURN_IF_ERROR(DropLinks());
    return copied_;
  }

 private:
  Status Walk() {
    while (true) {
      Frame& frame = frames_.back();
      if (!frame.directories.empty()) {
        const std::string name = std::move(frame.directories.back());
        frame.directories.pop_back();
        RETURN_IF_ERROR(Descend(name));
        continue;
      }
      RETURN_IF_ERROR(SetOwnerAndMode(target_.get(), frame.info, copy_));
      RETURN_IF_ERROR(SetTimes(target_.get(), "", frame.info));
      if (frames_.size() == 1) return OkStatus();
      frames_.pop_back();
      RETURN_IF_ERROR(Ascend());
    }
  }

  // O_NOATIME is for the owner alone, or who may act for it.
  Result<UniqueFd> OpenSource(const std::string& name, int flags) {
    Result<UniqueFd> opened = OpenAt(source_.get(), name, flags | O_NOATIME);
    if (opened || copy_.by == CopyBy::kHost || opened.error().sys != EPERM) return opened;
    return OpenAt(source_.get(), name, flags);
  }

  Status Descend(const std::string& name) {
    if (frames_.size() >= kMaxCopyDepth)
      return Error{.code = Code::kLimit,
                   .what = "directories are nested deeper than " + std::to_string(kMaxCopyDepth)};
    ASSIGN_OR_RETURN(UniqueFd source, OpenSource(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    // Some are there before: those that other parts of the root are mounted on.
    if (::mkdirat(target_.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
      return SysError(errno, "mkdir");
    ASSIGN_OR_RETURN(UniqueFd target,
                     OpenAt(target_.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    source_ = std::move(source);
    target_ = std::move(target);
    ++copied_.files;
    return EnterFrame();
  }

  Status Ascend() {
    ASSIGN_OR_RETURN(source_, OpenAt(source_.get(), "..", O_RDONLY | O_DIRECTORY));
    ASSIGN_OR_RETURN(target_, OpenAt(target_.get(), "..", O_RDONLY | O_DIRECTORY));
    struct stat info {};
    if (::fstat(source_.get(), &info) != 0) return SysError(errno, "fstat of a directory");
    const struct stat& expected = frames_.back().info;
    if (info.st_ino != expected.st_ino || info.st_dev != expected.st_dev)
      return Error{.code = Code::kCorrupt, .what = "a directory moved while it was copied"};
    return OkStatus();
  }

  // The directory that was just opened: its attributes, its files, the names of its directories.
  Status EnterFrame() {
    Frame frame;
    if (::fstat(source_.get(), &frame.info) != 0) return SysError(errno, "fstat of a directory");
    if (frames_.empty()) device_ = frame.info.st_dev;
    if (frame.info.st_dev != device_)
      return Error{.code = Code::kCorrupt, .what = "something is mounted in the tree"};
    RETURN_IF_ERROR(CopyAttributes(source_.get(), target_.get(), copy_));
    frames_.push_back(std::move(frame));
    alignas(ListEntry) std::array<char, kListBytes> buffer;
    long got = 0;
    while ((got = sys::Raw(SYS_getdents64, source_.get(), buffer.data(), buffer.size())) > 0)
      for (long at = 0; at < got;) {
        const auto* entry = reinterpret_cast<const ListEntry*>(buffer.data() + at);
        at += entry->size;
        if (!IsDots(entry->name)) RETURN_IF_ERROR(CopyEntry(entry->name));
      }
    return got < 0 ? Status(SysError(static_cast<int>(-got), "list a directory")) : OkStatus();
  }

  Status CopyEntry(const char* name) {
    if (copy_.cancelled != nullptr && *copy_.cancelled)
      return Error{.code = Code::kBadState, .what = "given up"};
    struct stat info {};
    if (::fstatat(source_.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return SysError(errno, "stat of a file");
    if (S_ISDIR(info.st_mode)) {
      frames_.back().directories.emplace_back(name);
      return OkStatus();
    }
    if (S_ISSOCK(info.st_mode)) return OkStatus();
    ++copied_.files;
    const bool linked = info.st_nlink > 1 && !S_ISCHR(info.st_mode);
    if (linked) {
      const auto known = links_.find(info.st_ino);
      if (known != links_.end()) return LinkAgain(name, known);
    }
    RETURN_IF_ERROR(Make(name, info));
    if (linked) return Remember(name, info);
    return OkStatus();
  }

  Status Make(const char* name, const struct stat& info) {
    if (S_ISREG(info.st_mode)) return MakeFile(name, info);
    if (S_ISLNK(info.st_mode)) {
      RETURN_IF_ERROR(MakeSymlink(name, info));
    } else if (S_ISFIFO(info.st_mode) || (S_ISCHR(info.st_mode) && info.st_rdev == 0)) {
      if (::mknodat(target_.get(), name, (info.st_mode & S_IFMT) | 0600, 0) != 0)
        return SysError(errno, "mknod");
    } else {
      return Error{.code = Code::kCorrupt, .what = "a device stands in the tree"};
    }
    // A whiteout is overlayfs's, not the tenant's: the host's root's, whatever the range.
    if (!S_ISCHR(info.st_mode)) RETURN_IF_ERROR(SetOwner(target_.get(), name, info, copy_));
    if (!S_ISLNK(info.st_mode) && ::fchmodat(target_.get(), name, info.st_mode & kModeBits, 0) != 0)
      return SysError(errno, "chmod");
    return SetTimes(target_.get(), name, info);
  }

  Status MakeSymlink(const char* name, const struct stat& info) {
    std::string text(static_cast<size_t>(info.st_size) + 1, '\0');
    const ssize_t size = ::readlinkat(source_.get(), name, text.data(), text.size());
    if (size < 0 || static_cast<size_t>(size) >= text.size())
      return SysError(size < 0 ? errno : EOVERFLOW, "readlink");
    text.resize(static_cast<size_t>(size));
    if (::symlinkat(text.c_str(), target_.get(), name) != 0) return SysError(errno, "symlink");
    return OkStatus();
  }

  Status MakeFile(const char* name, const struct stat& info) {
    ASSIGN_OR_RETURN(const UniqueFd from, OpenSource(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    struct stat opened {};
    if (::fstat(from.get(), &opened) != 0 || opened.st_ino != info.st_ino ||
        !S_ISREG(opened.st_mode))
      return Error{.code = Code::kCorrupt, .what = "a file changed while it was copied"};
    ASSIGN_OR_RETURN(const UniqueFd to,
                     OpenAt(target_.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    if (::ftruncate(to.get(), info.st_size) != 0) return SysError(errno, "ftruncate");
    RETURN_IF_ERROR(CopyData(from.get(), to.get(), info.st_size));
    RETURN_IF_ERROR(SetOwner(to.get(), "", info, copy_));
    RETURN_IF_ERROR(CopyAttributes(from.get(), to.get(), copy_));
    if (::fchmod(to.get(), info.st_mode & kModeBits) != 0) return SysError(errno, "chmod");
    return SetTimes(to.get(), "", info);
  }

  Status CopyData(int from, int to, off_t size) {
    off_t at = 0;
    while (at < size) {
      const off_t data = ::lseek(from, at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return OkStatus();  // a hole up to the end
      if (data < 0) return SysError(errno, "look for data");
      const off_t end = ::lseek(from, data, SEEK_HOLE);
      if (end < 0) return SysError(errno, "look for a hole");
      if (::lseek(to, data, SEEK_SET) < 0) return SysError(errno, "lseek");
      at = data;
      while (at < end) {
        if (copy_.cancelled != nullptr && *copy_.cancelled)
          return Error{.code = Code::kBadState, .what = "given up"};
        const size_t wanted = std::min(kSendBytes, static_cast<size_t>(end - at));
        const ssize_t sent = ::sendfile(to, from, &at, wanted);
        if (sent < 0 && errno != EINTR) return SysError(errno, "copy a file");
        if (sent == 0) return Error{.code = Code::kCorrupt, .what = "a file became shorter"};
        if (sent > 0) copied_.bytes += static_cast<uint64_t>(sent);
      }
    }
    return OkStatus();
  }

  // --- files with several names

  using Links = std::map<ino_t, Link>;

  Status Remember(const char* name, const struct stat& info) {
    if (!links_fd_.valid()) {
      if (::mkdirat(parent_.get(), kLinksName, 0700) != 0) return SysError(errno, "mkdir of links");
      ASSIGN_OR_RETURN(links_fd_, OpenAt(parent_.get(), kLinksName, O_RDONLY | O_DIRECTORY));
    }
    const std::string key = std::to_string(info.st_ino);
    if (::linkat(target_.get(), name, links_fd_.get(), key.c_str(), 0) != 0)
      return SysError(errno, "link");
    links_[info.st_ino] = {info.st_nlink - 1};
    return OkStatus();
  }

  Status LinkAgain(const char* name, Links::iterator known) {
    const std::string key = std::to_string(known->first);
    if (::linkat(links_fd_.get(), key.c_str(), target_.get(), name, 0) != 0)
      return SysError(errno, "link");
    if (--known->second.left > 0) return OkStatus();
    if (::unlinkat(links_fd_.get(), key.c_str(), 0) != 0) return SysError(errno, "unlink");
    links_.erase(known);
    return OkStatus();
  }

  // What is left of them has names elsewhere that are not copied.
  Status DropLinks() {
    if (!links_fd_.valid()) return OkStatus();
    for (const auto& [inode, link] : links_)
      if (::unlinkat(links_fd_.get(), std::to_string(inode).c_str(), 0) != 0)
        return SysError(errno, "unlink");
    links_.clear();
    if (::unlinkat(parent_.get(), kLinksName, AT_REMOVEDIR) != 0)
      return SysError(errno, "rmdir of links");
    return OkStatus();
  }

  const TreeCopy& copy_;
  UniqueFd source_, target_;  // the directories it is in
  UniqueFd parent_;           // of the whole target
  std::vector<Frame> frames_;
  dev_t device_ = 0;
  Links links_;
  UniqueFd links_fd_;
  TreeCopied copied_;
};

}  // namespace

Result<TreeCopied> CopyTree(const TreeCopy& copy) { return Copier(copy).Run(); }

}  // namespace hutch::rootfs
