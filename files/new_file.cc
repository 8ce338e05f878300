#include "files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "files/entry.h"
#include "files/errors.h"

namespace hutch::files {
namespace {

constexpr mode_t kPermissions = 0777;

std::string SelfPath(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

Error Precondition(const std::string& shown, const char* why) {
  return Error{.code = Code::kPreconditionFailed, .what = shown + " " + why};
}

}  // namespace

NewFile::~NewFile() {
  if (!temporary_name_.empty() && place_.directory.valid())
    ::unlinkat(place_.directory.get(), temporary_name_.c_str(), 0);
}

Status NewFile::Check() {
  struct stat st {};
  if (::fstatat(place_.directory.get(), place_.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return FileError(errno, "stat", place_.shown);
    replaces_ = false;
    if (!conditions_.if_match.empty()) return Precondition(place_.shown, "does not exist");
    mode_ = conditions_.mode.value_or(0644);
    return OkStatus();
  }
  if (conditions_.if_exists == IfExists::kRefuse) return FileError(EEXIST, "create", place_.shown);
  RETURN_IF_ERROR(RequireRegular(st.st_mode, place_.shown));
  if (!conditions_.if_match.empty() && conditions_.if_match != "*" &&
      conditions_.if_match != EntityTag(st))
    return Precondition(place_.shown, "is another one than the entity tag says");
  // A rename would replace what its owner made read-only; writing to it would not.
  if (::faccessat(place_.directory.get(), place_.name.c_str(), W_OK, AT_EACCESS) != 0)
    return FileError(errno, "write", place_.shown);
  replaces_ = true;
  mode_ = conditions_.mode.value_or(st.st_mode & kPermissions);
  return OkStatus();
}

Status NewFile::Open() {
  // Without /proc a nameless file could not be given its name.
  if (::access("/proc/self/fd", X_OK) == 0)
    fd_.reset(::openat(place_.directory.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd_.valid()) return OkStatus();
  std::string name = TemporaryName();
  fd_.reset(::openat(place_.directory.get(), name.c_str(),
                     O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd_.valid()) return FileError(errno, "create", place_.shown);
  temporary_name_ = std::move(name);
  return OkStatus();
}

Result<NewFile> NewFile::Start(Place place, Conditions conditions) {
  NewFile file(std::move(place), std::move(conditions));
  RETURN_IF_ERROR(file.Check());
  RETURN_IF_ERROR(file.Open());
  return file;
}

Status NewFile::GiveName() {
  if (!temporary_name_.empty()) return OkStatus();
  std::string name = TemporaryName();
  if (::linkat(AT_FDCWD, SelfPath(fd()).c_str(), place_.directory.get(), name.c_str(),
               AT_SYMLINK_FOLLOW) != 0)
    return FileError(errno, "link", place_.shown);
  temporary_name_ = std::move(name);
  return OkStatus();
}

Result<oci::Json> NewFile::Publish() {
  RETURN_IF_ERROR(Check());
  if (::fchmod(fd(), mode_) != 0) return FileError(errno, "chmod", place_.shown);
  RETURN_IF_ERROR(GiveName());
  const int dir_fd = place_.directory.get();
  const unsigned flags = conditions_.if_exists == IfExists::kRefuse ? RENAME_NOREPLACE : 0;
  if (::renameat2(dir_fd, temporary_name_.c_str(), dir_fd, place_.name.c_str(), flags) != 0)
    return FileError(errno, "rename", place_.shown);
  temporary_name_.clear();
  // Of the descriptor: by its name it may be another's already.
  return EntryAt(fd(), "", place_.shown);
}

}  // namespace hutch::files
