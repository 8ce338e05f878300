#include "base/rooted_path.h"

#include <climits>

#include "base/sys_raw.h"

namespace hutch {
namespace {

constexpr int kMaxRetries = 32;  // openat2 answers EAGAIN while a rename races with ".." resolution

uint64_t ResolveFlags(Links links) {
  switch (links) {
    case Links::kInRoot:
      return RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    case Links::kBeneath:
      return RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    case Links::kNone:
      return RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  }
  return RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
}

Error PathError(int sys, const char* verb, const std::string& path) {
  Error error = SysError(sys, std::string(verb) + " /" + path + " in the root");
  if (sys == ENOENT || sys == ENOTDIR) error.code = Code::kNotFound;
  if (sys == EXDEV || sys == ELOOP) error.code = Code::kForbidden;
  return error;
}

}  // namespace

Result<RootedPath> RootedPath::Make(int root_fd, std::string path, Links links) {
  const size_t start = path.find_first_not_of('/');
  path = start == std::string::npos ? "." : path.substr(start);
  if (path.size() >= PATH_MAX || path.find('\0') != std::string::npos)
    return Error{.code = Code::kInvalidArgument, .what = "path holds a NUL byte or is too long"};
  return RootedPath(root_fd, std::move(path), links);
}

Result<UniqueFd> RootedPath::OpenBelow(const std::string& path, uint64_t flags) const {
  int fd = -EAGAIN;
  for (int i = 0; i < kMaxRetries && fd == -EAGAIN; ++i)
    fd = sys::Openat2(root_fd_, path.c_str(), flags, ResolveFlags(links_));
  if (fd < 0) return PathError(-fd, "open", path);
  return UniqueFd(fd);
}

Result<UniqueFd> RootedPath::Open(int flags) const {
  CHECK((flags & O_CREAT) == 0);
  return OpenBelow(path_, static_cast<uint64_t>(static_cast<unsigned>(flags)));
}

Result<UniqueFd> RootedPath::OpenDirectory() const { return Open(O_PATH | O_DIRECTORY); }

Result<UniqueFd> RootedPath::OpenRegularFile() const {
  // O_PATH first: opening a FIFO or a device has effects, looking at it has none.
  ASSIGN_OR_RETURN(UniqueFd handle, Open(O_PATH));
  struct stat st {};
  if (::fstat(handle.get(), &st) != 0) return PathError(errno, "stat", path_);
  if (!S_ISREG(st.st_mode))
    return Error{.code = Code::kInvalidArgument, .what = "/" + path_ + " is not a regular file"};
  ASSIGN_OR_RETURN(UniqueFd file, Open(O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat opened {};
  if (::fstat(file.get(), &opened) != 0) return PathError(errno, "stat", path_);
  if (!S_ISREG(opened.st_mode))
    return Error{.code = Code::kInvalidArgument, .what = "/" + path_ + " is not a regular file"};
  return file;
}

Result<UniqueFd> RootedPath::OpenParent(std::string* name) const {
  std::string trimmed = path_;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const size_t slash = trimmed.rfind('/');
  *name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  if (*name == "." || *name == ".." || name->empty())
    return Error{.code = Code::kInvalidArgument, .what = "/" + path_ + " has no last component"};
  return OpenBelow(slash == std::string::npos ? "." : trimmed.substr(0, slash),
                   O_PATH | O_DIRECTORY);
}

Result<UniqueFd> RootedPath::MakeDirectories(mode_t mode, uid_t uid, gid_t gid) const {
  ASSIGN_OR_RETURN(UniqueFd current, OpenBelow(".", O_PATH | O_DIRECTORY));
  std::string walked;
  for (size_t at = 0; at < path_.size();) {
    const size_t end = std::min(path_.find('/', at), path_.size());
    const std::string part = path_.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return Error{.code = Code::kInvalidArgument, .what = "\"..\" in /" + path_};
    const bool made = ::mkdirat(current.get(), part.c_str(), mode) == 0;
    if (!made && errno != EEXIST) return PathError(errno, "mkdir", path_);
    walked += walked.empty() ? part : "/" + part;
    // A directory of ours is reached without any link; one that was there may be reached through
    // links.
    if (made) {
      const int fd = sys::Openat2(current.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW,
                                  ResolveFlags(Links::kNone));
      if (fd < 0) return PathError(-fd, "open", walked);
      current.reset(fd);
      if (::fchownat(current.get(), "", uid, gid, AT_EMPTY_PATH) != 0)
        return PathError(errno, "chown", walked);
    } else {
      ASSIGN_OR_RETURN(current, OpenBelow(walked, O_PATH | O_DIRECTORY));
    }
  }
  return current;
}

Result<UniqueFd> RootedPath::CreateFile(mode_t mode) const {
  std::string name;
  ASSIGN_OR_RETURN(UniqueFd parent, OpenParent(&name));
  const int fd = sys::Openat2(parent.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                              ResolveFlags(Links::kNone), mode);
  if (fd < 0) {
    Error error = PathError(-fd, "create", path_);
    if (fd == -EEXIST) error.code = Code::kExists;
    return error;
  }
  return UniqueFd(fd);
}

Result<struct stat> RootedPath::Stat() const {
  ASSIGN_OR_RETURN(UniqueFd handle, Open(O_PATH | O_NOFOLLOW));
  struct stat st {};
  if (::fstat(handle.get(), &st) != 0) return PathError(errno, "stat", path_);
  return st;
}

}  // namespace hutch
