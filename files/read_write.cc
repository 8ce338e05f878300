// Reading and writing one file's bytes.
#include <fcntl.h>
#include <nettle/sha2.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/new_file.h"
#include "files/open.h"
#include "files/operations.h"
#include "files/request.h"

namespace hutch::files {
namespace {

using Unknown = oci::ObjectReader::Unknown;

bool Contains(const std::vector<std::string>& tags, const std::string& tag) {
  return std::any_of(tags.begin(), tags.end(),
                     [&](const std::string& t) { return t == "*" || t == tag; });
}

// --- stat and read

struct ReadRequest {
  std::string path;
  std::vector<std::string> if_match, if_none_match;
  std::string if_range;
  uint64_t offset = 0, length = UINT64_MAX, suffix = 0;
  bool ranged = false;
  bool head = false;  // no bytes
};

Result<ReadRequest> ParseRead(const oci::Json& request) {
  ReadRequest read;
  auto reader = Members(request);
  ReadPath(reader, "path", &read.path);
  reader.Strings("if_match", &read.if_match, 64).Strings("if_none_match", &read.if_none_match, 64);
  reader.String("if_range", &read.if_range);
  reader.Uint("offset", &read.offset).Uint("length", &read.length).Uint("suffix", &read.suffix);
  reader.Bool("head", &read.head);
  read.ranged = reader.Member("offset") != nullptr || reader.Member("length") != nullptr ||
                reader.Member("suffix") != nullptr;
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  return read;
}

// Which bytes go out, and why.
struct Piece {
  const char* outcome = "full";  // "partial", "not_modified", "unsatisfiable"
  uint64_t offset = 0, length = 0;
};

Result<Piece> ChoosePiece(const ReadRequest& read, const struct stat& st) {
  const std::string tag = EntityTag(st);
  const auto size = static_cast<uint64_t>(st.st_size);
  if (!read.if_match.empty() && !Contains(read.if_match, tag))
    return Error{.code = Code::kPreconditionFailed,
                 .what = read.path + " is another one than the entity tag says"};
  if (Contains(read.if_none_match, tag)) return Piece{.outcome = "not_modified"};
  // A range is of the file that the client knows; of another it gets the whole.
  if (!read.ranged || (!read.if_range.empty() && read.if_range != tag))
    return Piece{.length = size};
  if (read.suffix > 0 && size > 0) {
    const uint64_t length = std::min(read.suffix, size);
    return Piece{.outcome = "partial", .offset = size - length, .length = length};
  }
  if (read.suffix > 0 || read.offset >= size) return Piece{.outcome = "unsatisfiable"};
  return Piece{.outcome = "partial",
               .offset = read.offset,
               .length = std::min(read.length, size - read.offset)};
}

// Moves bytes until `left` are gone or the file ends, which it may do early.
Status SendBytes(int file_fd, int out_fd, uint64_t offset, uint64_t left, const std::string& path) {
  std::vector<char> block;
  while (left > 0) {
    auto at = static_cast<off_t>(offset);
    const size_t want = static_cast<size_t>(std::min<uint64_t>(left, 1u << 30));
    ssize_t n = block.empty() ? ::sendfile(out_fd, file_fd, &at, want) : -1;
    if (n < 0 && (!block.empty() || errno == EINVAL || errno == ENOSYS || errno == EAGAIN)) {
      block.resize(kCopyBytes);
      n = ::pread(file_fd, block.data(), std::min(want, block.size()), static_cast<off_t>(offset));
      if (n > 0) RETURN_IF_ERROR(WriteFully(out_fd, block.data(), static_cast<size_t>(n)));
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "read", path);
    if (n == 0) return OkStatus();
    offset += static_cast<uint64_t>(n);
    left -= static_cast<uint64_t>(n);
  }
  return OkStatus();
}

// --- write

enum class How { kReplace, kCreate, kAppend };

struct WriteRequest {
  std::string path;
  How how = How::kReplace;
  Parents parents = Parents::kMustExist;
  Conditions conditions;
  std::optional<uint64_t> expected_bytes;
  std::string sha256;
};

Result<How> ParseHow(const std::string& text) {
  if (text.empty() || text == "replace") return How::kReplace;
  if (text == "create") return How::kCreate;
  if (text == "append") return How::kAppend;
  return Invalid("\"how\" is none of replace, create, append", "how");
}

Result<WriteRequest> ParseWrite(const oci::Json& request) {
  WriteRequest write;
  std::string how;
  bool parents = false;
  uint64_t expected = UINT64_MAX;
  auto reader = Members(request);
  ReadPath(reader, "path", &write.path);
  ReadMode(reader, "mode", &write.conditions.mode);
  reader.String("how", &how).Bool("parents", &parents).Uint("expected_bytes", &expected);
  reader.String("if_match", &write.conditions.if_match).String("sha256", &write.sha256, 64);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  ASSIGN_OR_RETURN(write.how, ParseHow(how));
  if (reader.Member("expected_bytes") != nullptr) write.expected_bytes = expected;
  if (parents) write.parents = Parents::kMake;
  if (write.how == How::kCreate) write.conditions.if_exists = IfExists::kRefuse;
  return write;
}

// Copies what arrives into the file; checks what was said of it.
Status TakeBytes(int in_fd, int file_fd, const WriteRequest& write) {
  sha256_ctx hash;
  sha256_init(&hash);
  uint64_t total = 0;
  std::vector<char> block(kCopyBytes);
  while (true) {
    ASSIGN_OR_RETURN(const size_t n, ReadSome(in_fd, block.data(), block.size()));
    if (n == 0) break;
    total += n;
    if (!write.sha256.empty())
      sha256_update(&hash, n, reinterpret_cast<const uint8_t*>(block.data()));
    auto status = WriteFully(file_fd, block.data(), n);
    if (!status) return FileError(status.error().sys, "write", write.path);
  }
  if (write.expected_bytes && total != *write.expected_bytes)
    return Error{.code = Code::kCorrupt,
                 .what = std::to_string(total) + " bytes came, " +
                         std::to_string(*write.expected_bytes) + " were announced"};
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&hash, sizeof digest, digest);
  if (!write.sha256.empty() &&
      write.sha256 != HexEncode({reinterpret_cast<const char*>(digest), sizeof digest}))
    return Error{.code = Code::kCorrupt, .what = "the bytes have another digest than announced"};
  return OkStatus();
}

// Opens the file itself, or makes it; `created` says which.
Result<UniqueFd> OpenToAppend(const Place& place, const Conditions& conditions, bool* created) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC;
  const int dir_fd = place.directory.get();
  struct stat st {};
  *created = ::fstatat(dir_fd, place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0;
  if (*created && errno != ENOENT) return FileError(errno, "stat", place.shown);
  if (!*created) RETURN_IF_ERROR(RequireRegular(st.st_mode, place.shown));
  if (!conditions.if_match.empty() &&
      (*created || (conditions.if_match != "*" && conditions.if_match != EntityTag(st))))
    return Error{.code = Code::kPreconditionFailed,
                 .what = place.shown + " is another one than the entity tag says"};
  UniqueFd fd(::openat(dir_fd, place.name.c_str(), *created ? kFlags | O_CREAT | O_EXCL : kFlags,
                       conditions.mode.value_or(0644)));
  if (!fd.valid()) return FileError(errno, "open", place.shown);
  if (::fstat(fd.get(), &st) != 0) return FileError(errno, "stat", place.shown);
  RETURN_IF_ERROR(RequireRegular(st.st_mode, place.shown));
  if (conditions.mode && ::fchmod(fd.get(), *conditions.mode) != 0)
    return FileError(errno, "chmod", place.shown);
  return fd;
}

Status Append(Place place, const WriteRequest& write, Io& io) {
  bool created = false;
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenToAppend(place, write.conditions, &created));
  struct stat before {};
  if (::fstat(fd.get(), &before) != 0) return FileError(errno, "stat", place.shown);
  Status status = TakeBytes(io.in, fd.get(), write);
  if (!status) {
    // What failed leaves nothing; where others append at the same time, their bytes go, too.
    if (created)
      ::unlinkat(place.directory.get(), place.name.c_str(), 0);
    else if (::ftruncate(fd.get(), before.st_size) != 0)
      return FileError(errno, "truncate", place.shown);
    return status;
  }
  ASSIGN_OR_RETURN(oci::Json entry, EntryAt(fd.get(), "", place.shown));
  entry["created"] = created;
  return io.reply.Ok(entry);
}

}  // namespace

Status Stat(const oci::Json& request, Io& io) {
  std::string path;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  ASSIGN_OR_RETURN(const oci::Json entry, EntryAt(AT_FDCWD, path, path));
  return io.reply.Ok(entry);
}

Status Read(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(const ReadRequest read, ParseRead(request));
  ASSIGN_OR_RETURN(const OpenedFile file, OpenRegular(read.path));
  ASSIGN_OR_RETURN(Piece piece, ChoosePiece(read, file.st));
  oci::Json entry = EntryJson(file.st);
  PutPath(entry, "path", read.path);
  // Files of /proc say that they are empty and are not: their length is known when they end.
  char first = 0;
  const bool sizeless = file.st.st_size == 0 && std::string_view(piece.outcome) != "not_modified" &&
                        ::pread(file.fd.get(), &first, 1, 0) == 1;
  if (sizeless) piece = Piece{.length = UINT64_MAX};
  entry["outcome"] = piece.outcome;
  entry["offset"] = piece.offset;
  if (!sizeless) entry["length"] = piece.length;
  RETURN_IF_ERROR(io.reply.Ok(entry));
  if (read.head) return OkStatus();
  return SendBytes(file.fd.get(), io.out, piece.offset, piece.length, read.path);
}

Status Write(const oci::Json& request, Io& io) {
  ASSIGN_OR_RETURN(WriteRequest write, ParseWrite(request));
  ASSIGN_OR_RETURN(Place place, FindPlace(write.path, write.parents));
  if (write.how == How::kAppend) return Append(std::move(place), write, io);
  ASSIGN_OR_RETURN(NewFile file, NewFile::Start(std::move(place), write.conditions));
  RETURN_IF_ERROR(TakeBytes(io.in, file.fd(), write));
  ASSIGN_OR_RETURN(oci::Json entry, file.Publish());
  entry["created"] = !file.replaces();
  return io.reply.Ok(entry);
}

}  // namespace hutch::files
