#include "tools/host_tree.h"

#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr size_t kBlock = 512;
constexpr uint64_t kLargestOctal = (uint64_t{1} << 33) - 1;
constexpr uint32_t kPermissions = 0777;

void PutText(std::string* block, size_t offset, size_t size, std::string_view text) {
  std::memcpy(block->data() + offset, text.data(), std::min(size, text.size()));
}

void PutOctal(std::string* block, size_t offset, size_t size, uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llo", static_cast<int>(size - 1),
                static_cast<unsigned long long>(value));
  PutText(block, offset, size - 1, text);
}

std::string Block(char type, std::string_view name, std::string_view target, uint64_t size,
                  uint32_t mode, int64_t mtime) {
  std::string block(kBlock, '\0');
  PutText(&block, 0, 100, name);
  PutOctal(&block, 100, 8, mode);
  PutOctal(&block, 108, 8, 0);
  PutOctal(&block, 116, 8, 0);
  PutOctal(&block, 124, 12, std::min(size, kLargestOctal));
  PutOctal(&block, 136, 12,
           mtime < 0 ? 0 : std::min<uint64_t>(static_cast<uint64_t>(mtime), kLargestOctal));
  PutText(&block, 148, 8, "        ");
  block[156] = type;
  PutText(&block, 157, 100, target);
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  uint64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  PutOctal(&block, 148, 7, sum);
  return block;
}

std::string PaxRecord(const char* name, std::string_view value) {
  const size_t rest = std::strlen(name) + value.size() + 3;
  size_t length = rest + 1;
  while (length != rest + std::to_string(length).size())
    length = rest + std::to_string(length).size();
  return std::to_string(length).append(" ").append(name).append("=").append(value).append("\n");
}

std::string Padded(std::string text) {
  text.append((kBlock - text.size() % kBlock) % kBlock, '\0');
  return text;
}

Result<std::string> ReadLink(const char* path) {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlink(path, target.data(), target.size());
  if (size < 0) return SysError(errno, std::string("readlink ") + path);
  target.resize(static_cast<size_t>(size));
  return target;
}

bool HasDots(const std::string& name) {
  const auto parts = Split(name, '/');
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

// "./a/", "/a" and "a" are one.
std::string Plain(const std::string& name) {
  std::vector<std::string> parts;
  for (const std::string& part : Split(name, '/'))
    if (!part.empty() && part != ".") parts.push_back(part);
  return Join(parts, "/");
}

Status SetMode(const RootedPath& path, mode_t mode) {
  ASSIGN_OR_RETURN(const UniqueFd fd, path.Open(O_RDONLY | O_DIRECTORY));
  if (::fchmod(fd.get(), mode) != 0) return SysError(errno, "mode of " + path.shown());
  return OkStatus();
}

}  // namespace

std::string TarHeader(const TarEntry& entry, int64_t mtime) {
  constexpr struct {
    TarEntry::Kind kind;
    char type;
  } kTypes[] = {{TarEntry::Kind::kFile, '0'},
                {TarEntry::Kind::kDirectory, '5'},
                {TarEntry::Kind::kSymlink, '2'}};
  char type = '0';
  for (const auto& row : kTypes)
    if (row.kind == entry.kind) type = row.type;
  std::string pax;
  if (entry.name.size() > 100) pax += PaxRecord("path", entry.name);
  if (entry.target.size() > 100) pax += PaxRecord("linkpath", entry.target);
  if (entry.size > kLargestOctal) pax += PaxRecord("size", std::to_string(entry.size));
  std::string text;
  if (!pax.empty()) {
    text = Block('x', "pax", "", pax.size(), 0644, mtime);
    text += Padded(pax);
  }
  return text + Block(type, entry.name, entry.target, entry.size, entry.mode, mtime);
}

struct TreePacker::Walk {
  std::string root;
  FTS* fts = nullptr;
  ~Walk() {
    if (fts != nullptr) ::fts_close(fts);
  }
};

TreePacker::TreePacker(std::unique_ptr<Walk> walk) : walk_(std::move(walk)) {}
TreePacker::TreePacker(TreePacker&&) noexcept = default;
TreePacker::~TreePacker() = default;

Result<TreePacker> TreePacker::Open(const std::string& directory) {
  auto walk = std::make_unique<Walk>();
  walk->root = directory;
  char* roots[] = {walk->root.data(), nullptr};
  // FTS_COMFOLLOW: a directory that was named by a symlink is still the one that was meant.
  walk->fts = ::fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, nullptr);
  if (walk->fts == nullptr) return SysError(errno, "open " + directory);
  return TreePacker(std::move(walk));
}

Result<size_t> TreePacker::Read(char* bytes, size_t size) {
  while (pending_.empty() && file_left_ == 0 && !ended_) RETURN_IF_ERROR(Next());
  if (!pending_.empty()) {
    const size_t n = std::min(size, pending_.size());
    std::memcpy(bytes, pending_.data(), n);
    pending_.erase(0, n);
    return n;
  }
  if (file_left_ == 0) return size_t{0};
  const ssize_t got = ::read(file_.get(), bytes, std::min<uint64_t>(size, file_left_));
  if (got < 0) return SysError(errno, "read a file of " + walk_->root);
  if (got == 0)
    return Error{.code = Code::kUnavailable, .what = "a file of " + walk_->root + " has shrunk"};
  file_left_ -= static_cast<uint64_t>(got);
  if (file_left_ == 0) pending_.assign(padding_, '\0');
  return static_cast<size_t>(got);
}

// The next header into pending_, its file opened.
Status TreePacker::Next() {
  errno = 0;
  const FTSENT* found = ::fts_read(walk_->fts);
  if (found == nullptr) {
    if (errno != 0) return SysError(errno, "read " + walk_->root);
    ended_ = true;
    pending_.assign(2 * kBlock, '\0');
    return OkStatus();
  }
  const unsigned info = found->fts_info;
  if (info == FTS_DNR || info == FTS_ERR || info == FTS_NS)
    return SysError(found->fts_errno, std::string("read ") + found->fts_path);
  if (info == FTS_DP || found->fts_level == 0) return OkStatus();
  TarEntry entry;
  entry.name = Plain(std::string(found->fts_path).substr(walk_->root.size()));
  struct stat st = *found->fts_statp;
  if (info == FTS_D) {
    entry.kind = TarEntry::Kind::kDirectory;
    entry.name += "/";
  } else if (S_ISLNK(st.st_mode)) {
    entry.kind = TarEntry::Kind::kSymlink;
    ASSIGN_OR_RETURN(entry.target, ReadLink(found->fts_path));
  } else if (S_ISREG(st.st_mode)) {
    ASSIGN_OR_RETURN(file_, hutch::Open(found->fts_path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    if (::fstat(file_.get(), &st) != 0) return SysError(errno, found->fts_path);
    entry.size = static_cast<uint64_t>(st.st_size);
  } else {
    ++left_out_;
    return OkStatus();
  }
  entry.mode = st.st_mode & kPermissions;
  file_left_ = entry.size;
  padding_ = (kBlock - entry.size % kBlock) % kBlock;
  pending_ = TarHeader(entry, st.st_mtime);
  return OkStatus();
}

TreeUnpacker::TreeUnpacker(UniqueFd directory)
    : directory_(std::move(directory)),
      reader_({.begin = [this](const TarEntry& entry) { return Begin(entry); },
               .data = [this](uint64_t offset, std::string_view bytes) -> Status {
                 if (!file_.valid()) return OkStatus();
                 if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
                   return SysError(errno, "seek in " + entry_.name);
                 return WriteAll(file_.get(), bytes);
               },
               .end = [this] { return End(); }}) {}

Status TreeUnpacker::Begin(const TarEntry& entry) {
  entry_ = entry;
  file_.reset();
  if (HasDots(entry.name))
    return Error{.code = Code::kForbidden, .what = "the archive has the name " + entry.name};
  const std::string plain = Plain(entry.name);
  if (plain.empty()) return OkStatus();  // the directory itself
  if (entry.kind == TarEntry::Kind::kDirectory) {
    // Ours to fill for now: its own mode comes last.
    const mode_t mode = (entry.mode & kPermissions) | S_IRWXU;
    ASSIGN_OR_RETURN(const RootedPath path,
                     RootedPath::Make(directory_.get(), plain, Links::kNone));
    RETURN_IF_ERROR(path.MakeDirectories(mode, ::geteuid(), ::getegid()));
    RETURN_IF_ERROR(SetMode(path, mode));
    if ((entry.mode & S_IRWXU) != S_IRWXU)
      closed_directories_.emplace_back(plain, entry.mode & kPermissions);
    return OkStatus();
  }
  const size_t slash = plain.rfind('/');
  UniqueFd parent;
  if (slash == std::string::npos) {
    ASSIGN_OR_RETURN(parent, Duplicate(directory_.get()));
  } else {
    ASSIGN_OR_RETURN(const RootedPath above,
                     RootedPath::Make(directory_.get(), plain.substr(0, slash), Links::kNone));
    ASSIGN_OR_RETURN(parent, above.MakeDirectories(0755, ::geteuid(), ::getegid()));
  }
  return BeginFile(entry, parent.get(),
                   slash == std::string::npos ? plain : plain.substr(slash + 1));
}

Status TreeUnpacker::BeginFile(const TarEntry& entry, int parent_fd, const std::string& name) {
  if (entry.kind == TarEntry::Kind::kOther) {
    ++left_out_;
    return OkStatus();
  }
  if (::unlinkat(parent_fd, name.c_str(), 0) != 0 && errno != ENOENT)
    return SysError(errno, "replace " + entry.name);
  if (entry.kind == TarEntry::Kind::kSymlink) {
    if (::symlinkat(entry.target.c_str(), parent_fd, name.c_str()) == 0) return OkStatus();
    return SysError(errno, "symlink " + entry.name);
  }
  if (entry.kind == TarEntry::Kind::kHardLink) {
    std::string old_name;
    if (HasDots(entry.target))
      return Error{.code = Code::kForbidden, .what = "the archive has the name " + entry.target};
    ASSIGN_OR_RETURN(const RootedPath target,
                     RootedPath::Make(directory_.get(), Plain(entry.target), Links::kNone));
    ASSIGN_OR_RETURN(const UniqueFd old_parent, target.OpenParent(&old_name));
    if (::linkat(old_parent.get(), old_name.c_str(), parent_fd, name.c_str(), 0) == 0)
      return OkStatus();
    return SysError(errno, "link " + entry.name);
  }
  file_.reset(::openat(parent_fd, name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_.valid()) return SysError(errno, "create " + entry.name);
  return OkStatus();
}

Status TreeUnpacker::End() {
  if (!file_.valid()) return OkStatus();
  // A hole at the end has no data that would have made the file so long.
  if (::ftruncate(file_.get(), static_cast<off_t>(entry_.size)) != 0)
    return SysError(errno, "size of " + entry_.name);
  if (::fchmod(file_.get(), entry_.mode & kPermissions) != 0)
    return SysError(errno, "mode of " + entry_.name);
  file_.reset();
  return OkStatus();
}

Status TreeUnpacker::Finish() {
  if (!reader_.finished())
    return Error{.code = Code::kCorrupt,
                 .what = "the archive was cut off",
                 .hint = "what came up to there was kept"};
  for (auto row = closed_directories_.rbegin(); row != closed_directories_.rend(); ++row) {
    ASSIGN_OR_RETURN(const RootedPath path,
                     RootedPath::Make(directory_.get(), row->first, Links::kNone));
    RETURN_IF_ERROR(SetMode(path, row->second));
  }
  return OkStatus();
}

}  // namespace hutch::tools
