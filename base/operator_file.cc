#include "base/operator_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace hutch {
namespace {

Error Refused(const std::string& path, const std::string& why, std::string hint = "") {
  return Error{.code = Code::kForbidden, .what = path + " " + why, .hint = std::move(hint)};
}

Status CheckOwner(const std::string& path, const struct stat& st, Readers readers) {
  if (st.st_uid != 0 && st.st_uid != ::geteuid())
    return Refused(path, "belongs to another user", "chown root " + path);
  if ((st.st_mode & 022) != 0)
    return Refused(path, "may be written by others", "chmod go-w " + path);
  if (readers == Readers::kOwnerOnly && (st.st_mode & 077) != 0)
    return Refused(path, "may be read by others", "chmod 600 " + path);
  return OkStatus();
}

}  // namespace

Result<std::string> ReadOperatorFile(const std::string& path, size_t max_bytes, Readers readers) {
  auto file = Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (!file.has_value()) {
    if (file.error().sys == ELOOP) return Refused(path, "is a link");
    return std::move(file).error();
  }
  struct stat st {};
  if (::fstat(file->get(), &st) != 0) return SysError(errno, "fstat " + path);
  if (!S_ISREG(st.st_mode)) return Refused(path, "is not a file");
  RETURN_IF_ERROR(CheckOwner(path, st, readers));
  return ReadAll(file->get(), max_bytes);
}

Status CheckOperatorDirectory(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd directory, Open(path, O_RDONLY | O_DIRECTORY));
  struct stat st {};
  if (::fstat(directory.get(), &st) != 0) return SysError(errno, "fstat " + path);
  return CheckOwner(path, st, Readers::kAnyone);
}

}  // namespace hutch
