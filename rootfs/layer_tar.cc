#include "rootfs/layer_tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
constexpr std::string_view kWhiteout = ".wh.";
constexpr char kOpaqueName[] = ".wh..wh..opq";
constexpr char kOpaqueXattr[] = "trusted.overlay.opaque";
// What overlayfs says of an entry whose content is elsewhere; switched off where an upper is made.
constexpr const char* kElsewhereXattrs[] = {"trusted.overlay.redirect", "trusted.overlay.metacopy"};
constexpr std::string_view kKept = "user.";
constexpr size_t kReadBytes = 1u << 20;
constexpr size_t kMaxTargetBytes = 4096;
constexpr uint64_t kMinHoleBytes = 65536;  // fewer are written as zeros
constexpr size_t kMaxNamesBytes = 65536;   // XATTR_LIST_MAX

Error Failed(const char* verb, const std::string& path) {
  return SysError(errno, std::string(verb) + " \"" + path + "\"");
}

// About what a name takes besides its bytes in a list or a map.
constexpr size_t kPerName = 64;
size_t BytesToKeep(std::string_view name) { return name.size() + kPerName; }

using AttributeList = std::vector<std::pair<std::string, std::string>>;

// What the tree is that is written.
struct Tree {
  bool is_layer = true;             // has whiteouts and opaque directories
  bool opaque_root = false;         // hides what is below its first directory
  bool changing = false;            // others write meanwhile: what is gone is left out
  uint32_t host_id_start = 0;       // owners count from here
  SkippedFiles* skipped = nullptr;  // of a sandbox: what no layer can hold; nullptr: an error
};

class Packer {
 public:
  explicit Packer(const ByteSink& sink) : tar_(sink), buffer_(kReadBytes) {}
  void Begin(const Tree& tree) { tree_ = tree; }
  Status Directory(int fd, const std::string& path, size_t depth);
  Status Parent(const std::string& path, const std::optional<LowerEntry>& found);
  Status End() { return tar_.End(); }

 private:
  struct Entry {
    std::string path, name;
    struct stat st;
  };
  TarHeader HeaderOf(const Entry& entry, char type) const;
  Status CheckOwner(const Entry& entry) const;
  Status CheckWhole(int fd, const std::string& path) const;
  Result<AttributeList> Attributes(int fd, const std::string& path);
  Status Skip(const std::string& path, const char* why);
  Status One(int dir_fd, const Entry& entry, size_t depth);
  Status Marker(const std::string& path);
  Status File(int dir_fd, const Entry& entry);
  Status Link(int dir_fd, const Entry& entry);
  Status Copy(int fd, const Entry& entry, uint64_t offset, uint64_t size);

  Result<std::vector<std::string>> NamesIn(int dir_fd, const std::string& path);
  Status Keep(size_t bytes);

  Status Gone(Error error) const;

  TarStream tar_;
  Tree tree_;
  std::vector<char> buffer_;
  size_t kept_bytes_ = 0;
  std::map<ino_t, std::string> linked_;  // files of several links, by their first path
};

// Of a tree: another one has removed or replaced it since its name was read.
Status Packer::Gone(Error error) const {
  const bool gone = error.sys == ENOENT || error.sys == ENOTDIR || error.sys == ELOOP ||
                    error.sys == ENXIO || error.code == Code::kCorrupt;
  if (tree_.changing && gone) return OkStatus();
  return error;
}

Status Packer::Keep(size_t bytes) {
  kept_bytes_ += bytes;
  if (kept_bytes_ <= kMaxSavedNameBytes) return OkStatus();
  return Error{.code = Code::kTooLarge,
               .what = "a layer of more names than " + FormatSize(kMaxSavedNameBytes) + " hold"};
}

// Sorted: the order of a directory is its file system's affair.
Result<std::vector<std::string>> Packer::NamesIn(int dir_fd, const std::string& path) {
  const int fd = sys::Openat2(dir_fd, ".", O_RDONLY | O_DIRECTORY, kInside);
  if (fd < 0) return SysError(-fd, "open \"" + path + "\"");
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd), ::closedir);
  if (dir == nullptr) return Failed("list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      RETURN_IF_ERROR(Keep(BytesToKeep(name)));
      names.emplace_back(name);
    }
    errno = 0;
  }
  if (errno != 0) return Failed("list", path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<AttributeList> Xattrs(int fd, const std::string& path) {
  char names[kMaxNamesBytes];
  const ssize_t size = ::flistxattr(fd, names, sizeof names);
  if (size < 0 && errno != ENOTSUP) return Failed("attributes of", path);
  AttributeList kept;
  if (size <= 0) return kept;
  for (const std::string& name : Split({names, static_cast<size_t>(size)}, '\0')) {
    if (!name.starts_with(kKept)) continue;
    std::string value(kMaxXattrBytes, '\0');
    const ssize_t n = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
    if (n < 0) return Failed("attributes of", path);
    value.resize(static_cast<size_t>(n));
    kept.emplace_back(name, std::move(value));
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// Where a file has data. Nothing for one without holes worth the trouble.
Result<std::vector<DataPiece>> Pieces(int fd, const std::string& path, uint64_t size) {
  std::vector<DataPiece> pieces;
  uint64_t data_bytes = 0;
  for (off_t at = 0; static_cast<uint64_t>(at) < size;) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // a hole up to the end
    if (data < 0) return Failed("seek in", path);
    at = ::lseek(fd, data, SEEK_HOLE);
    if (at < 0) return Failed("seek in", path);
    pieces.push_back({static_cast<uint64_t>(data), static_cast<uint64_t>(at - data)});
    data_bytes += pieces.back().size;
    if (pieces.size() > kMaxSavedPieces) return std::vector<DataPiece>();
  }
  if (size - std::min(size, data_bytes) < kMinHoleBytes) return std::vector<DataPiece>();
  // What GNU tar does, too: the last piece says where the file ends.
  if (pieces.empty() || pieces.back().offset + pieces.back().size < size)
    pieces.push_back({size, 0});
  return pieces;
}

TarHeader Packer::HeaderOf(const Entry& entry, char type) const {
  return TarHeader{.path = entry.path,
                   .type = type,
                   .mode = entry.st.st_mode & 07777u,
                   .uid = entry.st.st_uid - tree_.host_id_start,
                   .gid = entry.st.st_gid - tree_.host_id_start,
                   .mtime = entry.st.st_mtim};
}

Status Packer::CheckOwner(const Entry& entry) const {
  const uint32_t first = tree_.host_id_start;
  if (tree_.skipped == nullptr ||
      (entry.st.st_uid - first <= kMaxOwnerId && entry.st.st_gid - first <= kMaxOwnerId))
    return OkStatus();
  return Error{.code = Code::kCorrupt,
               .what = "\"" + entry.path + "\" belongs to nobody in the sandbox"};
}

Status Packer::CheckWhole(int fd, const std::string& path) const {
  if (tree_.skipped == nullptr || !tree_.is_layer) return OkStatus();
  for (const char* name : kElsewhereXattrs)
    if (::fgetxattr(fd, name, nullptr, 0) > 0)
      return Error{.code = Code::kUnsupported,
                   .what = "\"" + path + "\" was renamed by overlayfs, which a layer cannot say"};
  return OkStatus();
}

Status Packer::Skip(const std::string& path, const char* why) {
  ++tree_.skipped->count;
  if (tree_.skipped->examples.size() < kSkippedExamples)
    tree_.skipped->examples.push_back({"/" + path, why});
  return OkStatus();
}

// Those a tar can name.
Result<AttributeList> Packer::Attributes(int fd, const std::string& path) {
  ASSIGN_OR_RETURN(auto attributes, Xattrs(fd, path));
  if (tree_.skipped == nullptr) return attributes;
  const size_t all = attributes.size();
  std::erase_if(attributes,
                [](const auto& one) { return one.first.find('=') != std::string::npos; });
  if (attributes.size() != all) RETURN_IF_ERROR(Skip(path, "an attribute whose name holds '='"));
  if (attributes.size() > kMaxXattrsPerEntry) {
    attributes.resize(kMaxXattrsPerEntry);
    RETURN_IF_ERROR(Skip(path, "more attributes than a layer may hold"));
  }
  return attributes;
}

Status Packer::Copy(int fd, const Entry& entry, uint64_t offset, uint64_t size) {
  while (size > 0) {
    const ssize_t n = ::pread(fd, buffer_.data(), std::min<uint64_t>(size, buffer_.size()),
                              static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", entry.path);
    if (n == 0 && !tree_.changing)
      return Error{.code = Code::kCorrupt,
                   .what = "\"" + entry.path + "\" is cut off in the store"};
    if (n == 0) {  // its header has said how long it is
      const uint64_t rest = std::min<uint64_t>(size, buffer_.size());
      std::fill_n(buffer_.begin(), rest, '\0');
      RETURN_IF_ERROR(tar_.Data({buffer_.data(), rest}));
      size -= rest;
      continue;
    }
    RETURN_IF_ERROR(tar_.Data({buffer_.data(), static_cast<size_t>(n)}));
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return OkStatus();
}

Status Packer::File(int dir_fd, const Entry& entry) {
  const int opened = sys::Openat2(dir_fd, entry.name.c_str(),
                                  O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, kInside);
  if (opened < 0) return Gone(SysError(-opened, "open \"" + entry.path + "\""));
  const UniqueFd fd(opened);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Failed("stat", entry.path);
  if (!S_ISREG(st.st_mode) || st.st_ino != entry.st.st_ino)
    return Gone(
        Error{.code = Code::kCorrupt, .what = "\"" + entry.path + "\" changed in the store"});
  TarHeader header = HeaderOf(entry, '0');
  header.size = static_cast<uint64_t>(st.st_size);
  RETURN_IF_ERROR(CheckWhole(fd.get(), entry.path));
  ASSIGN_OR_RETURN(header.xattrs, Attributes(fd.get(), entry.path));
  const bool whole = static_cast<uint64_t>(st.st_blocks) * 512 >= header.size;
  if (!whole) {
    ASSIGN_OR_RETURN(header.pieces, Pieces(fd.get(), entry.path, header.size));
  }
  RETURN_IF_ERROR(tar_.Begin(header));
  if (header.pieces.empty()) RETURN_IF_ERROR(Copy(fd.get(), entry, 0, header.size));
  for (const DataPiece& piece : header.pieces)
    RETURN_IF_ERROR(Copy(fd.get(), entry, piece.offset, piece.size));
  return tar_.Pad();
}

Status Packer::Link(int dir_fd, const Entry& entry) {
  char target[kMaxTargetBytes];
  const ssize_t n = ::readlinkat(dir_fd, entry.name.c_str(), target, sizeof target);
  if (n < 0 && errno == EINVAL && tree_.changing) return OkStatus();
  if (n < 0) return Gone(Failed("read the link", entry.path));
  TarHeader header = HeaderOf(entry, '2');
  header.link.assign(target, static_cast<size_t>(n));
  return tar_.Begin(header);
}

// An empty file that only its name means something by.
Status Packer::Marker(const std::string& path) { return tar_.Begin(TarHeader{.path = path}); }

Status Packer::One(int dir_fd, const Entry& entry, size_t depth) {
  const bool removal = entry.name.starts_with(kWhiteout) && !tree_.changing;
  if (removal && tree_.skipped != nullptr)
    return Skip(entry.path, "a name that means a removal in a layer");
  if (removal)
    return Error{.code = Code::kUnsupported,
                 .what = "\"" + entry.path + "\" would mean a removal in another layer"};
  const mode_t type = entry.st.st_mode & S_IFMT;
  if (tree_.is_layer && type == S_IFCHR && entry.st.st_rdev == makedev(0, 0)) {
    const size_t parent = entry.path.size() - entry.name.size();
    return Marker(entry.path.substr(0, parent) + std::string(kWhiteout) + entry.name);
  }
  RETURN_IF_ERROR(CheckOwner(entry));  // a whiteout is the host's
  if (type == S_IFDIR) {
    const int fd =
        sys::Openat2(dir_fd, entry.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, kInside);
    if (fd < 0) return Gone(SysError(-fd, "open \"" + entry.path + "\""));
    return Directory(UniqueFd(fd).get(), entry.path, depth + 1);
  }
  const bool held = type == S_IFREG || type == S_IFLNK || type == S_IFIFO;
  if (!held && tree_.skipped != nullptr)
    return Skip(entry.path, type == S_IFSOCK ? "a socket" : "a device");
  if (entry.st.st_nlink > 1) {
    const auto [first, is_new] = linked_.emplace(entry.st.st_ino, entry.path);
    if (is_new) RETURN_IF_ERROR(Keep(BytesToKeep(entry.path)));
    if (!is_new) {
      TarHeader header = HeaderOf(entry, '1');
      header.link = first->second;
      return tar_.Begin(header);
    }
  }
  if (type == S_IFREG) return File(dir_fd, entry);
  if (type == S_IFLNK) return Link(dir_fd, entry);
  if (type == S_IFIFO) return tar_.Begin(HeaderOf(entry, '6'));
  if (tree_.changing) return OkStatus();
  return Error{.code = Code::kCorrupt,
               .what = "\"" + entry.path + "\" is of a kind that no layer here holds"};
}

Status Packer::Directory(int fd, const std::string& path, size_t depth) {
  if (depth > kMaxEntryDepth)
    return Error{.code = Code::kUnsupported,
                 .what = "\"" + path + "\" is deeper than a layer may be"};
  Entry self{.path = path.empty() ? "." : path, .name = {}, .st = {}};
  if (::fstat(fd, &self.st) != 0) return Failed("stat", self.path);
  RETURN_IF_ERROR(CheckOwner(self));
  TarHeader header = HeaderOf(self, '5');
  RETURN_IF_ERROR(CheckWhole(fd, self.path));
  ASSIGN_OR_RETURN(header.xattrs, Attributes(fd, self.path));
  RETURN_IF_ERROR(tar_.Begin(header));
  const std::string prefix = path.empty() ? "" : path + "/";
  char opaque = 'n';
  // Before what is in it, so that a reader that applies marks as they come removes nothing new.
  const bool marked = tree_.is_layer && ::fgetxattr(fd, kOpaqueXattr, &opaque, 1) == 1;
  if ((marked && opaque == 'y') || (tree_.opaque_root && depth == 0))
    RETURN_IF_ERROR(Marker(prefix + kOpaqueName));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(fd, self.path));
  for (const std::string& name : names) {
    Entry entry{.path = prefix + name, .name = name, .st = {}};
    if (::fstatat(fd, name.c_str(), &entry.st, AT_SYMLINK_NOFOLLOW) != 0) {
      RETURN_IF_ERROR(Gone(Failed("stat", entry.path)));
      continue;
    }
    RETURN_IF_ERROR(One(fd, entry, depth));
  }
  for (const std::string& name : names) kept_bytes_ -= BytesToKeep(name);
  return OkStatus();
}

Status Packer::Parent(const std::string& path, const std::optional<LowerEntry>& found) {
  TarHeader header{.path = path, .type = '5', .mode = 0755};
  if (found && found->kind == FileKind::kDirectory) {
    header.mode = found->mode;
    header.uid = found->uid;
    header.gid = found->gid;
  }
  return tar_.Begin(header);
}

// The directories above a root, which the layer must not change: those that the upper has are
// written by then, the others stay as the layers have them.
Status WriteParents(Packer& packer, int upper_fd, const std::string& path, const LowerLayers& lower,
                    std::set<std::string>* written) {
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (!written->insert(parent).second) continue;
    if (upper_fd >= 0) {
      const UniqueFd there(sys::Openat2(upper_fd, parent.c_str(), O_PATH | O_DIRECTORY, kInside));
      if (there.valid()) continue;
    }
    RETURN_IF_ERROR(packer.Parent(parent, lower.Find("/" + parent)));
  }
  return OkStatus();
}

Result<UniqueFd> OpenRoot(int scratch_fd, const TrackedRoot& root) {
  UniqueFd fd(sys::Openat2(scratch_fd, root.source.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                           kInside | RESOLVE_NO_XDEV));
  if (!fd.valid()) return SysError(-fd.release(), "open scratch " + root.source);
  return fd;
}

}  // namespace

std::vector<TrackedRoot> SealedRoots(std::span<const TrackedRoot> roots) {
  std::vector<TrackedRoot> sealed;
  for (const TrackedRoot& root : roots)
    if (root.target != "/run" && !root.target.starts_with("/proc/")) sealed.push_back(root);
  // The upper's "/" first: what is mounted lies over it.
  std::sort(sealed.begin(), sealed.end(),
            [](const TrackedRoot& a, const TrackedRoot& b) { return a.target < b.target; });
  return sealed;
}

Status WriteScratchTar(const ScratchTar& scratch, const ByteSink& sink, SkippedFiles* skipped) {
  Packer packer(sink);
  UniqueFd upper;
  std::set<std::string> parents;
  for (const TrackedRoot& root : SealedRoots(scratch.roots)) {
    ASSIGN_OR_RETURN(UniqueFd fd, OpenRoot(scratch.scratch_fd, root));
    packer.Begin({.is_layer = root.is_upper,
                  .opaque_root = !root.is_upper,
                  .host_id_start = scratch.host_id_start,
                  .skipped = skipped});
    const std::string path = root.target.substr(1);
    RETURN_IF_ERROR(WriteParents(packer, upper.get(), path, scratch.lower, &parents));
    RETURN_IF_ERROR(packer.Directory(fd.get(), path, 0));
    if (root.is_upper) upper = std::move(fd);
  }
  return packer.End();
}

namespace {

Status WriteTar(int root_fd, const ByteSink& sink, const Tree& tree) {
  const int fd = sys::Openat2(root_fd, ".", O_RDONLY | O_DIRECTORY, kInside);
  if (fd < 0) return SysError(-fd, "open what is to be packed");
  const UniqueFd root(fd);
  Packer packer(sink);
  packer.Begin(tree);
  RETURN_IF_ERROR(packer.Directory(root.get(), "", 0));
  return packer.End();
}

}  // namespace

Status WriteLayerTar(int layer_fd, const ByteSink& sink) { return WriteTar(layer_fd, sink, {}); }

Status WriteTreeTar(int root_fd, const ByteSink& sink) {
  return WriteTar(root_fd, sink, {.is_layer = false, .changing = true});
}

}  // namespace hutch::rootfs
