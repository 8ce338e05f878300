#include "rootfs/container_target.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <climits>
#include <deque>
#include <vector>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "base/text.h"

namespace hutch::rootfs {
namespace {

constexpr int kLinkBudget = 40;  // as the kernel's own

Error TargetError(int sys, std::string_view path) {
  Error error = SysError(sys, "target " + std::string(path) + " in the root");
  if (sys == ELOOP || sys == EXDEV) error.code = Code::kForbidden;
  return error;
}

// One component, which is no link.
Result<UniqueFd> Step(int dir_fd, const std::string& name, std::string_view path) {
  const int fd = sys::Openat2(dir_fd, name.c_str(), O_PATH | O_NOFOLLOW,
                              RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  if (fd < 0) return TargetError(-fd, path);
  return UniqueFd(fd);
}

class Walk {
 public:
  Walk(int root_fd, std::string_view path, TargetKind kind, LastLink last)
      : root_fd_(root_fd), path_(path), kind_(kind), last_(last) {}

  Result<UniqueFd> Run() {
    Push(path_);
    ASSIGN_OR_RETURN(UniqueFd at, Reopen());
    while (!left_.empty()) {
      const std::string name = std::move(left_.front());
      left_.pop_front();
      if (name.empty() || name == ".") continue;
      if (name == "..") {
        if (!walked_.empty()) walked_.pop_back();
        ASSIGN_OR_RETURN(at, Reopen());
        continue;
      }
      ASSIGN_OR_RETURN(at, Enter(std::move(at), name));
    }
    return at;
  }

 private:
  void Push(std::string_view path) {
    const std::vector<std::string> parts = Split(path, '/');
    left_.insert(left_.begin(), parts.begin(), parts.end());
  }

  // The walked components hold no link; if one became one meanwhile, this fails.
  Result<UniqueFd> Reopen() {
    const std::string path = walked_.empty() ? "." : Join(walked_, "/");
    const int fd =
        sys::Openat2(root_fd_, path.c_str(), O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
    if (fd < 0) return TargetError(-fd, path_);
    return UniqueFd(fd);
  }

  Result<UniqueFd> Enter(UniqueFd at, const std::string& name) {
    struct stat st {};
    if (::fstatat(at.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) return TargetError(errno, path_);
      RETURN_IF_ERROR(Make(at.get(), name));
    } else if (S_ISLNK(st.st_mode) && !(last_ == LastLink::kKeep && IsLast())) {
      return FollowLink(at.get(), name);
    }
    walked_.push_back(name);
    return Step(at.get(), name, path_);
  }

  bool IsLast() const {
    for (const std::string& name : left_)
      if (!name.empty() && name != ".") return false;
    return true;
  }

  Status Make(int dir_fd, const std::string& name) {
    if (kind_ == TargetKind::kFile && IsLast()) {
      const int fd = sys::Openat2(dir_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                                  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, 0644);
      if (fd < 0 && fd != -EEXIST) return TargetError(-fd, path_);
      const UniqueFd made(fd < 0 ? -1 : fd);
      return OkStatus();
    }
    if (::mkdirat(dir_fd, name.c_str(), 0755) != 0 && errno != EEXIST)
      return TargetError(errno, path_);
    return OkStatus();
  }

  Result<UniqueFd> FollowLink(int dir_fd, const std::string& name) {
    if (++links_ > kLinkBudget) return TargetError(ELOOP, path_);
    char text[PATH_MAX];
    const ssize_t size = ::readlinkat(dir_fd, name.c_str(), text, sizeof text);
    if (size <= 0) return TargetError(size < 0 ? errno : ENOENT, path_);
    if (static_cast<size_t>(size) == sizeof text) return TargetError(ENAMETOOLONG, path_);
    if (text[0] == '/') walked_.clear();
    Push({text, static_cast<size_t>(size)});
    return Reopen();
  }

  const int root_fd_;
  const std::string path_;
  const TargetKind kind_;
  const LastLink last_;
  std::deque<std::string> left_;
  std::vector<std::string> walked_;
  int links_ = 0;
};

}  // namespace

Result<UniqueFd> OpenOrMakeTarget(int root_fd, std::string_view path, TargetKind kind,
                                  LastLink last) {
  ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root_fd, std::string(path)));
  Result<UniqueFd> there = place.Open(O_PATH | (last == LastLink::kKeep ? O_NOFOLLOW : 0));
  if (there || there.error().sys != ENOENT) return there;
  return Walk(root_fd, path, kind, last).Run();
}

std::string CleanPath(std::string_view path) {
  std::vector<std::string> kept;
  for (std::string& part : Split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!kept.empty()) kept.pop_back();
    } else {
      kept.push_back(std::move(part));
    }
  }
  return "/" + Join(kept, "/");
}

}  // namespace hutch::rootfs
