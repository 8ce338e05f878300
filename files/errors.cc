#include "files/errors.h"

#include <sys/stat.h>

namespace hutch::files {
namespace {

struct ErrnoRow {
  int sys;
  Code code;
};
// What is not here is a kernel error; ENOSPC and EDQUOT are told by SysError.
constexpr ErrnoRow kErrnoRows[] = {
    {ENOENT, Code::kNotFound},
    {EACCES, Code::kForbidden},
    {EPERM, Code::kForbidden},
    {EROFS, Code::kForbidden},
    {EEXIST, Code::kExists},
    {EISDIR, Code::kIsDirectory},
    {ENOTDIR, Code::kNotDirectory},
    {ENOTEMPTY, Code::kBadState},
    {EBUSY, Code::kBadState},
    {ETXTBSY, Code::kBadState},
    {ENAMETOOLONG, Code::kInvalidArgument},
    {EINVAL, Code::kInvalidArgument},
    {ELOOP, Code::kInvalidArgument},
    {EXDEV, Code::kForbidden},  // a path that leaves the directory it must stay in
    {ENXIO, Code::kNotAFile},   // a socket cannot be opened
    {EFBIG, Code::kTooLarge},
    {EOPNOTSUPP, Code::kUnsupported},
    {ENOSYS, Code::kUnsupported},
    {EMFILE, Code::kLimit},
    {EMLINK, Code::kLimit},
    {EAGAIN, Code::kUnavailable},
};

struct TypeRow {
  mode_t type;
  const char* name;
};
constexpr TypeRow kTypes[] = {
    {S_IFREG, "file"},    {S_IFDIR, "directory"},    {S_IFLNK, "symlink"},     {S_IFIFO, "fifo"},
    {S_IFSOCK, "socket"}, {S_IFBLK, "block_device"}, {S_IFCHR, "char_device"},
};

}  // namespace

Error FileError(int sys, const char* step, std::string_view path) {
  Error error = SysError(sys, std::string(step) + " " + std::string(path));
  for (const ErrnoRow& row : kErrnoRows)
    if (row.sys == sys) error.code = row.code;
  error.step = step;
  return error;
}

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

Status RequireRegular(mode_t mode, std::string_view path) {
  if (S_ISREG(mode)) return OkStatus();
  if (S_ISDIR(mode))
    return Error{.code = Code::kIsDirectory,
                 .sys = EISDIR,
                 .step = "open",
                 .what = std::string(path) + " is a directory"};
  return Error{.code = Code::kNotAFile,
               .step = "open",
               .what = std::string(path) + " is a " + TypeName(mode) + ", not a regular file"};
}

const char* TypeName(mode_t mode) {
  for (const TypeRow& row : kTypes)
    if (row.type == (mode & S_IFMT)) return row.name;
  return "unknown";
}

oci::Json ErrorJson(const Error& error) {
  oci::Json json = {{"code", CodeName(error.code)}, {"message", error.what}};
  if (error.sys != 0) json["errno"] = ErrnoName(error.sys);
  if (*error.step != '\0') json["step"] = error.step;
  if (!error.field.empty()) json["field"] = error.field;
  return json;
}

}  // namespace hutch::files
