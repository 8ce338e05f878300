#include "rootfs/source_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/text.h"
#include "rootfs/limits.h"
#include "rootfs/temporary_directory.h"

namespace hutch::rootfs {
namespace {

constexpr int kMaxLinks = 8;
constexpr std::string_view kGzipMagic("\x1f\x8b", 2);
constexpr std::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);

Error NotFound(const std::string& file) {
  return Error{.code = Code::kNotFound, .what = "no file \"" + file + "\" in the image"};
}

Result<bool> IsCompressed(int fd) {
  char magic[4];
  const ssize_t n = ::pread(fd, magic, sizeof magic, 0);
  if (n < 0) return SysError(errno, "read");
  const std::string_view head(magic, static_cast<size_t>(n));
  return head.starts_with(kGzipMagic) || head.starts_with(kZstdMagic);
}

Result<uint64_t> SizeOf(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return SysError(errno, "stat");
  return static_cast<uint64_t>(st.st_size);
}

// "a/b/../c" relative to the directory `from`, as text; kNotFound when it leads out.
Result<std::string> Resolve(const std::string& from, const std::string& path) {
  std::vector<std::string> parts;
  for (const std::string& part : Split(from + "/" + path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
      continue;
    }
    if (parts.empty()) return NotFound(path);
    parts.pop_back();
  }
  return Join(parts, "/");
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

Result<SourceFiles> SourceFiles::Open(const std::string& path, const std::string& scratch_parent) {
  ASSIGN_OR_RETURN(UniqueFd fd, hutch::Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return SysError(errno, "stat " + path);
  SourceFiles files(std::move(fd));
  if (S_ISDIR(st.st_mode)) return files;
  if (!S_ISREG(st.st_mode))
    return Error{.code = Code::kInvalidArgument,
                 .what = path + " is neither a directory nor a file",
                 .field = "path"};
  Status indexed = files.IndexTar(scratch_parent);
  if (indexed) return files;
  Error error = std::move(indexed).error();
  error.what = path + ": " + error.what;
  return error;
}

Status SourceFiles::IndexTar(const std::string& scratch_parent) {
  is_tar_ = true;
  ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Make(scratch_parent));
  ASSIGN_OR_RETURN(const bool compressed, IsCompressed(fd_.get()));
  ASSIGN_OR_RETURN(uint64_t size, SizeOf(fd_.get()));
  if (compressed) {
    ASSIGN_OR_RETURN(UniqueFd plain, hutch::Open(scratch_parent, O_TMPFILE | O_RDWR, 0600));
    const auto report =
        RunUnpack({UnpackMode::kInflate, fd_.get(), size, scratch.fs(), plain.get()});
    if (!report) return report.error();
    fd_ = std::move(plain);
    ASSIGN_OR_RETURN(size, SizeOf(fd_.get()));
    if (::lseek(fd_.get(), 0, SEEK_SET) != 0) return SysError(errno, "lseek");
  }
  ASSIGN_OR_RETURN(UnpackReport report,
                   RunUnpack({UnpackMode::kIndex, fd_.get(), size, scratch.fs()}));
  for (IndexedFile& file : report.files) {
    if (file.kind == IndexedFile::Kind::kFile &&
        (file.offset > size || file.size > size - file.offset))
      return Error{.code = Code::kCorrupt, .what = "\"" + file.path + "\" is cut off"};
    std::string path = file.path;
    tar_[std::move(path)] = std::move(file);  // the last of a name counts, as with tar itself
  }
  return OkStatus();
}

Result<const IndexedFile*> SourceFiles::FindInTar(const std::string& file) const {
  ASSIGN_OR_RETURN(std::string path, Resolve("", file));
  for (int i = 0; i < kMaxLinks; ++i) {
    const auto it = tar_.find(path);
    if (it == tar_.end()) return NotFound(file);
    const IndexedFile& found = it->second;
    if (found.kind == IndexedFile::Kind::kFile) return &found;
    const bool symlink = found.kind == IndexedFile::Kind::kSymlink;
    if (symlink && found.target.starts_with('/')) return NotFound(file);
    ASSIGN_OR_RETURN(path, Resolve(symlink ? ParentOf(path) : "", found.target));
  }
  return NotFound(file);
}

Result<SourceFiles::File> SourceFiles::OpenFile(const std::string& file) const {
  if (is_tar_) {
    ASSIGN_OR_RETURN(const IndexedFile* const found, FindInTar(file));
    // A description of its own: each reader has its own position.
    ASSIGN_OR_RETURN(UniqueFd fd,
                     hutch::Open("/proc/self/fd/" + std::to_string(fd_.get()), O_RDONLY));
    if (::lseek(fd.get(), static_cast<off_t>(found->offset), SEEK_SET) < 0)
      return SysError(errno, "lseek");
    return File{std::move(fd), found->size};
  }
  ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(fd_.get(), file, Links::kBeneath));
  ASSIGN_OR_RETURN(UniqueFd fd, path.OpenRegularFile());
  ASSIGN_OR_RETURN(const uint64_t size, SizeOf(fd.get()));
  return File{std::move(fd), size};
}

Result<std::string> SourceFiles::ReadDocument(const std::string& file) const {
  ASSIGN_OR_RETURN(const File opened, OpenFile(file));
  if (opened.size > kMaxDocumentBytes)
    return Error{.code = Code::kTooLarge,
                 .what = file + ": more than " + std::to_string(kMaxDocumentBytes) + " bytes"};
  std::string bytes(opened.size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::read(opened.fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read " + file);
    if (n == 0) return Error{.code = Code::kCorrupt, .what = file + " is cut off"};
    done += static_cast<size_t>(n);
  }
  return bytes;
}

}  // namespace hutch::rootfs
