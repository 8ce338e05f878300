// Operations on names and trees: mkdir, delete, move, copy.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/open.h"
#include "files/operations.h"
#include "files/request.h"
#include "files/tree.h"

namespace hutch::files {
namespace {

using Unknown = oci::ObjectReader::Unknown;

struct TransferRequest {
  std::string from, to;
  bool overwrite = false, recursive = false;
  Parents parents = Parents::kMustExist;
};

Result<TransferRequest> ParseTransfer(const oci::Json& request, bool takes_recursive) {
  TransferRequest transfer;
  bool parents = false;
  auto reader = Members(request);
  ReadPath(reader, "from", &transfer.from);
  ReadPath(reader, "to", &transfer.to);
  reader.Bool("overwrite", &transfer.overwrite).Bool("parents", &parents);
  if (takes_recursive) reader.Bool("recursive", &transfer.recursive);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  if (parents) transfer.parents = Parents::kMake;
  return transfer;
}

// What is made under a temporary name and removed again unless it was put in its place.
class Temporary {
 public:
  explicit Temporary(int dir_fd) : dir_fd_(dir_fd), name_(TemporaryName()) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!name_.empty()) IgnoreError(RemoveAll(dir_fd_, name_, name_), "the first error is told");
  }
  const std::string& name() const { return name_; }
  Status PutInPlace(const Place& place, bool overwrite) {
    const unsigned flags = overwrite ? 0 : RENAME_NOREPLACE;
    if (::renameat2(dir_fd_, name_.c_str(), dir_fd_, place.name.c_str(), flags) != 0)
      return FileError(errno, "rename", place.shown);
    name_.clear();
    return OkStatus();
  }

 private:
  int dir_fd_;
  std::string name_;
};

// Before a long copy: what the rename at its end would refuse.
Status CheckTarget(const Place& to, bool overwrite) {
  struct stat st {};
  if (::fstatat(to.directory.get(), to.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? OkStatus() : Status(FileError(errno, "stat", to.shown));
  return overwrite ? OkStatus() : Status(FileError(EEXIST, "create", to.shown));
}

oci::Json CopyJson(const CopyOutcome& copied) {
  return {{"files", copied.files},
          {"directories", copied.directories},
          {"symlinks", copied.symlinks},
          {"bytes", copied.bytes},
          {"skipped", copied.skipped}};
}

Result<CopyOutcome> CopyTo(const Place& from, const Place& to, bool overwrite) {
  RETURN_IF_ERROR(CheckTarget(to, overwrite));
  Temporary temporary(to.directory.get());
  ASSIGN_OR_RETURN(
      const CopyOutcome copied,
      CopyAll(from.directory.get(), from.name, to.directory.get(), temporary.name(), from.shown));
  if (copied.files + copied.directories + copied.symlinks == 0)
    return Error{.code = Code::kNotAFile, .what = from.shown + " cannot be copied"};
  RETURN_IF_ERROR(temporary.PutInPlace(to, overwrite));
  return copied;
}

// Answers with the entry now at `place`, and more members.
Status ReplyPlace(Io& io, const Place& place, oci::Json more) {
  ASSIGN_OR_RETURN(oci::Json entry, EntryAt(place.directory.get(), place.name, place.shown));
  entry.update(more);
  return io.reply.Ok(entry);
}

}  // namespace

Status MakeDirectory(const oci::Json& request, Io& io) {
  std::string path;
  bool parents = false;
  std::optional<mode_t> mode;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  ReadMode(reader, "mode", &mode);
  reader.Bool("parents", &parents);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  bool created = ::mkdir(path.c_str(), 0755) == 0;
  if (!created && !parents) return FileError(errno, "mkdir", path);
  if (!created) {
    created = errno == ENOENT;
    RETURN_IF_ERROR(MakeDirectoriesFor(path, 0755));
  }
  if (created && mode && ::chmod(path.c_str(), *mode) != 0) return FileError(errno, "chmod", path);
  ASSIGN_OR_RETURN(oci::Json entry, EntryAt(AT_FDCWD, path, path));
  entry["created"] = created;
  return io.reply.Ok(entry);
}

Status Delete(const oci::Json& request, Io& io) {
  std::string path;
  bool recursive = false;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  reader.Bool("recursive", &recursive);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  ASSIGN_OR_RETURN(const Place place, FindLinkPlace(path, Parents::kMustExist));
  if (recursive) {
    ASSIGN_OR_RETURN(const RemoveOutcome outcome,
                     RemoveAll(place.directory.get(), place.name, path));
    return io.reply.Ok({{"removed", outcome.removed}});
  }
  struct stat st {};
  if (::fstatat(place.directory.get(), place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return FileError(errno, "delete", path);
  const int flags = S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0;
  if (::unlinkat(place.directory.get(), place.name.c_str(), flags) != 0)
    return FileError(errno, "delete", path);
  return io.reply.Ok({{"removed", 1}});
}

Status Move(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const TransferRequest move, ParseTransfer(request, false));
  ASSIGN_OR_RETURN(const Place from, FindLinkPlace(move.from, Parents::kMustExist));
  ASSIGN_OR_RETURN(const Place to, FindLinkPlace(move.to, move.parents));
  const unsigned flags = move.overwrite ? 0 : RENAME_NOREPLACE;
  if (::renameat2(from.directory.get(), from.name.c_str(), to.directory.get(), to.name.c_str(),
                  flags) == 0)
    return ReplyPlace(io, to, {{"copied", false}});
  if (errno != EXDEV) return FileError(errno, "move", move.from);
  // Another mount, though perhaps of the same file system: copied, then removed.
  ASSIGN_OR_RETURN(const CopyOutcome copied, CopyTo(from, to, move.overwrite));
  if (copied.skipped > 0)
    return Error{.code = Code::kNotAFile,
                 .what = move.from +
                         " holds sockets or devices: it was copied without them, and "
                         "nothing of it was removed"};
  RETURN_IF_ERROR(RemoveAll(from.directory.get(), from.name, move.from));
  return ReplyPlace(io, to, {{"copied", true}});
}

Status Copy(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const TransferRequest copy, ParseTransfer(request, true));
  ASSIGN_OR_RETURN(const Place from, FindLinkPlace(copy.from, Parents::kMustExist));
  struct stat st {};
  if (::fstatat(from.directory.get(), from.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return FileError(errno, "copy", copy.from);
  if (S_ISDIR(st.st_mode) && !copy.recursive)
    return Error{.code = Code::kIsDirectory,
                 .sys = EISDIR,
                 .step = "copy",
                 .what = copy.from + " is a directory, and \"recursive\" is not set"};
  ASSIGN_OR_RETURN(const Place to, FindLinkPlace(copy.to, copy.parents));
  ASSIGN_OR_RETURN(const CopyOutcome copied, CopyTo(from, to, copy.overwrite));
  return ReplyPlace(io, to, {{"copied", CopyJson(copied)}});
}

}  // namespace hutch::files
