// Packing a file or a tree into an archive that goes out as it is made.
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/archive_code.h"
#include "base/unique_fd.h"
#include "files/codeset.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/operations.h"
#include "files/request.h"

namespace hutch::files {
namespace {

using DirHandle = std::unique_ptr<DIR, int (*)(DIR*)>;
using EntryHandle = std::unique_ptr<archive_entry, void (*)(archive_entry*)>;

bool IsDots(std::string_view name) { return name == "." || name == ".."; }

// Speed before size: what goes over a socket of the same machine.
struct FormatRow {
  std::string_view name;
  int (*set_format)(archive*);
  int (*add_filter)(archive*);
  const char* options;
};
constexpr FormatRow kFormats[] = {
    {"tar", archive_write_set_format_pax_restricted, archive_write_add_filter_none, nullptr},
    {"tar.gz", archive_write_set_format_pax_restricted, archive_write_add_filter_gzip,
     "gzip:compression-level=1"},
    {"tar.zst", archive_write_set_format_pax_restricted, archive_write_add_filter_zstd,
     "zstd:compression-level=1"},
    {"zip", archive_write_set_format_zip, archive_write_add_filter_none, "zip:compression-level=1"},
};

// A gigabyte of zeros that takes no memory: a hole is told to libarchive as what it reads as.
class Zeros {
 public:
  static constexpr size_t kBytes = 1u << 30;
  Zeros()
      : map_(::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                    0)) {}
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  ~Zeros() {
    if (valid()) ::munmap(map_, kBytes);
  }
  bool valid() const { return map_ != MAP_FAILED; }
  const void* get() const { return map_; }

 private:
  void* map_;
};

struct Run {
  uint64_t offset, length;
};

// The runs of data of a file with holes; none when it has no holes, or too many to be worth it.
std::vector<Run> DataRuns(int fd, const struct stat& st) {
  std::vector<Run> runs;
  if (st.st_blocks * 512 >= st.st_size) return runs;
  for (off_t at = 0; at < st.st_size && runs.size() <= kMaxSparsePieces;) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    const off_t hole = data < 0 ? -1 : ::lseek(fd, data, SEEK_HOLE);
    if (data < 0 || hole < 0) break;
    runs.push_back({static_cast<uint64_t>(data), static_cast<uint64_t>(hole - data)});
    at = hole;
  }
  if (runs.size() > kMaxSparsePieces) runs.clear();
  // Nothing but a hole: a run of no bytes at its end says so.
  if (runs.empty() && ::lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO)
    runs.push_back({static_cast<uint64_t>(st.st_size), 0});
  return runs;
}

class Packer {
 public:
  Packer(const FormatRow& format, int out_fd)
      : archive_(archive_write_new(), archive_write_free),
        keeps_holes_(format.name != "zip"),
        out_fd_(out_fd),
        block_(kCopyBytes) {
    archive* a = archive_.get();
    CHECK(a != nullptr && format.set_format(a) == ARCHIVE_OK && format.add_filter(a) == ARCHIVE_OK);
    if (format.options != nullptr)
      CHECK(archive_write_set_options(a, format.options) == ARCHIVE_OK);
    archive_write_set_bytes_per_block(a, 64 * 1024);
    archive_write_set_bytes_in_last_block(a, 1);
  }

  Status Open() {
    return Check(archive_write_open(archive_.get(), this, nullptr, WriteOut, nullptr));
  }
  Status Close() { return Check(archive_write_close(archive_.get())); }

  // Everything in an open directory, under names that begin with `prefix`.
  Status Below(UniqueFd fd, const std::string& prefix, size_t depth) {
    if (depth > kMaxTreeDepth) return Invalid(prefix + " holds too deep a tree");
    DirHandle dir(::fdopendir(fd.get()), ::closedir);
    if (dir == nullptr) return FileError(errno, "open", prefix);
    fd.release();
    while (const dirent* entry = ::readdir(dir.get()))
      if (!IsDots(entry->d_name))
        RETURN_IF_ERROR(
            One(::dirfd(dir.get()), entry->d_name, JoinPath(prefix, entry->d_name), depth));
    return OkStatus();
  }

  // A directory's contents; under `as`, where it has a name, with the directory itself.
  Status Top(UniqueFd fd, const struct stat& st, const std::string& as) {
    if (!as.empty()) {
      const EntryHandle entry = NewEntry(st, as);
      RETURN_IF_ERROR(Header(entry.get()));
    }
    return Below(std::move(fd), as, 1);
  }

  Status File(int fd, const struct stat& st, const std::string& shown) {
    const EntryHandle entry = NewEntry(st, shown);
    std::vector<Run> runs;
    if (keeps_holes_) runs = DataRuns(fd, st);
    for (const Run& run : runs)
      archive_entry_sparse_add_entry(entry.get(), static_cast<la_int64_t>(run.offset),
                                     static_cast<la_int64_t>(run.length));
    RETURN_IF_ERROR(Header(entry.get()));
    const auto size = static_cast<uint64_t>(st.st_size);
    if (runs.empty()) runs.push_back({0, size});
    uint64_t at = 0;
    for (const Run& run : runs) {
      RETURN_IF_ERROR(Hole(run.offset - at));
      RETURN_IF_ERROR(Data(fd, run, shown));
      at = run.offset + run.length;
    }
    return at < size ? Hole(size - at) : OkStatus();
  }

  uint64_t entries = 0, skipped = 0;

 private:
  static la_ssize_t WriteOut(archive* a, void* self, const void* bytes, size_t size) {
    auto* packer = static_cast<Packer*>(self);
    const Status status = WriteFully(packer->out_fd_, static_cast<const char*>(bytes), size);
    if (status) return static_cast<la_ssize_t>(size);
    archive_set_error(a, status.error().sys, "write");
    return -1;
  }

  Status Check(int rc) {
    if (!ArchiveFailed(rc)) return OkStatus();
    const char* text = archive_error_string(archive_.get());
    return Error{.code = Code::kKernel,
                 .sys = std::max(0, archive_errno(archive_.get())),
                 .step = "pack",
                 .what = std::string("archive: ") + (text == nullptr ? "unwritable" : text)};
  }

  EntryHandle NewEntry(const struct stat& st, const std::string& name) {
    EntryHandle entry(archive_entry_new(), archive_entry_free);
    CHECK(entry != nullptr);
    archive_entry_copy_stat(entry.get(), &st);
    // Names of links and device numbers of this machine say nothing elsewhere.
    archive_entry_set_nlink(entry.get(), 1);
    archive_entry_copy_pathname(entry.get(), name.c_str());
    return entry;
  }

  Status Header(archive_entry* entry) {
    ++entries;
    return Check(archive_write_header(archive_.get(), entry));
  }

  Status Put(const void* bytes, size_t size) {
    while (size > 0) {
      const la_ssize_t n = archive_write_data(archive_.get(), bytes, size);
      if (n < 0) return Check(ARCHIVE_FATAL);
      if (n == 0) return OkStatus();  // beyond the size in the header
      bytes = static_cast<const char*>(bytes) + n;
      size -= static_cast<size_t>(n);
    }
    return OkStatus();
  }

  Status Hole(uint64_t length) {
    for (; length > 0 && zeros_.valid(); length -= std::min<uint64_t>(length, Zeros::kBytes))
      RETURN_IF_ERROR(Put(zeros_.get(), std::min<uint64_t>(length, Zeros::kBytes)));
    return length == 0 ? OkStatus() : Status(FileError(ENOMEM, "pack", "a hole"));
  }

  // A file that shrinks meanwhile is filled up with zeros: its size is in the header.
  Status Data(int fd, const Run& run, const std::string& shown) {
    for (uint64_t at = 0; at < run.length;) {
      const size_t want = std::min<uint64_t>(run.length - at, block_.size());
      const ssize_t n = ::pread(fd, block_.data(), want, static_cast<off_t>(run.offset + at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return FileError(errno, "read", shown);
      if (n == 0) return Hole(run.length - at);
      RETURN_IF_ERROR(Put(block_.data(), static_cast<size_t>(n)));
      at += static_cast<uint64_t>(n);
    }
    return OkStatus();
  }

  Status One(int dir_fd, const std::string& name, const std::string& shown, size_t depth) {
    struct stat st {};
    if (::fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return errno == ENOENT ? OkStatus() : Status(FileError(errno, "stat", shown));
    if (S_ISLNK(st.st_mode)) return Link(dir_fd, name, st, shown);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) return ++skipped, OkStatus();
    UniqueFd fd(
        ::openat(dir_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd.valid()) return errno == ENOENT ? OkStatus() : Status(FileError(errno, "open", shown));
    if (::fstat(fd.get(), &st) != 0) return FileError(errno, "stat", shown);
    if (S_ISREG(st.st_mode)) return File(fd.get(), st, shown);
    if (!S_ISDIR(st.st_mode)) return ++skipped, OkStatus();
    const EntryHandle entry = NewEntry(st, shown);
    RETURN_IF_ERROR(Header(entry.get()));
    return Below(std::move(fd), shown, depth + 1);
  }

  Status Link(int dir_fd, const std::string& name, const struct stat& st,
              const std::string& shown) {
    auto target = ReadLinkAt(dir_fd, name, shown);
    if (!target) return ++skipped, OkStatus();  // replaced meanwhile
    const EntryHandle entry = NewEntry(st, shown);
    archive_entry_copy_symlink(entry.get(), target->c_str());
    archive_entry_set_size(entry.get(), 0);
    return Header(entry.get());
  }

  std::unique_ptr<archive, int (*)(archive*)> archive_;
  bool keeps_holes_;
  int out_fd_;
  std::vector<char> block_;
  Zeros zeros_;
};

Result<const FormatRow*> FindFormat(const std::string& name) {
  for (const FormatRow& row : kFormats)
    if (row.name == name) return &row;
  return Invalid("\"format\" is none of tar, tar.gz, tar.zst, zip", "format");
}

}  // namespace

Status Pack(const oci::Json& request, Io& io) {
  std::string path, format_name = "tar", as;
  bool recursive = true;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  reader.String("format", &format_name)
      .String("as", &as, kMaxPathBytes)
      .Bool("recursive", &recursive);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  ASSIGN_OR_RETURN(const FormatRow* format, FindFormat(format_name));
  const UniqueFd handle(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat st {};
  if (!handle.valid() || ::fstat(handle.get(), &st) != 0) return FileError(errno, "open", path);
  if (!S_ISDIR(st.st_mode)) RETURN_IF_ERROR(RequireRegular(st.st_mode, path));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid() || ::fstat(fd.get(), &st) != 0) return FileError(errno, "open", path);
  if (!S_ISDIR(st.st_mode)) RETURN_IF_ERROR(RequireRegular(st.st_mode, path));
  if (!recursive) RETURN_IF_ERROR(RequireRegular(st.st_mode, path));
  UseCodeset(Codeset::kUtf8);
  Packer packer(*format, io.out);
  RETURN_IF_ERROR(io.reply.Ok({{"format", format_name}, {"type", TypeName(st.st_mode)}}));
  RETURN_IF_ERROR(packer.Open());
  if (S_ISDIR(st.st_mode))
    RETURN_IF_ERROR(packer.Top(std::move(fd), st, as));
  else
    RETURN_IF_ERROR(packer.File(fd.get(), st, as.empty() ? NameOf(path) : as));
  RETURN_IF_ERROR(packer.Close());
  RETURN_IF_ERROR(
      io.reply.Line("done", {{"entries", packer.entries}, {"skipped", packer.skipped}}));
  return io.reply.Flush();
}

}  // namespace hutch::files
