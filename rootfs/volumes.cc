#include "rootfs/volumes.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/limits.h"
#include "rootfs/loop_device.h"

namespace hutch::rootfs {
namespace {

using oci::Json;

constexpr char kImage[] = "/image";
constexpr char kRecord[] = "/volume.json";
constexpr char kLostAndFound[] = "lost+found";
constexpr uint64_t kMiB = 1u << 20;
constexpr int kIdleTries = 1000;
constexpr std::chrono::milliseconds kIdlePause{5};

Error NotFound(const std::string& name) {
  return Error{.code = Code::kNotFound, .what = "no volume \"" + name + "\""};
}
Error Taken(const std::string& name) {
  return Error{
      .code = Code::kExists, .what = "there is a volume \"" + name + "\"", .field = "name"};
}

Status CheckSize(uint64_t size_bytes) {
  if (size_bytes >= kMinVolumeBytes && size_bytes <= kMaxVolumeBytes) return OkStatus();
  return Error{
      .code = Code::kInvalidArgument,
      .what = "must be from " + FormatSize(kMinVolumeBytes) + " to " + FormatSize(kMaxVolumeBytes),
      .field = "size_bytes"};
}

uint64_t WholeMiB(uint64_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

std::string RecordText(const VolumeFacts& facts) {
  return oci::PrintJson({{"version", 1},
                         {"uid", facts.uid},
                         {"gid", facts.gid},
                         {"labels", facts.labels},
                         {"created_at", FormatRfc3339(facts.created_at)}});
}

Result<VolumeFacts> ReadFacts(const std::string& path, const std::string& name) {
  VolumeFacts facts{.name = name};
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path + kRecord, kVolumeRecordBytes));
  ASSIGN_OR_RETURN(const Json json, oci::ParseJson(text));
  uint64_t version = 0, uid = 0, gid = 0;
  std::string created_at;
  RETURN_IF_ERROR(oci::ObjectReader(json, "volume")
                      .Uint("version", &version, 1, 1)
                      .Uint("uid", &uid, 0, kMaxOwnerId)
                      .Uint("gid", &gid, 0, kMaxOwnerId)
                      .StringMap("labels", &facts.labels)
                      .String("created_at", &created_at)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  facts.uid = static_cast<uint32_t>(uid);
  facts.gid = static_cast<uint32_t>(gid);
  ASSIGN_OR_RETURN(facts.created_at, ParseRfc3339(created_at));
  ASSIGN_OR_RETURN(const UniqueFd image, Open(path + kImage, O_RDONLY));
  ASSIGN_OR_RETURN(facts.size_bytes, FilesystemBytes(image.get()));
  return facts;
}

// Devices may be made on it: nodes that /dev lacks.
Status MountStage(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  const UniqueFd fs(sys::Fsopen("tmpfs"));
  if (!fs.valid()) return SysError(-fs.get(), "fsopen tmpfs");
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "mode", "0700", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "size", "4m", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return SysError(-rc, "create a file system for mounts of volumes");
  const UniqueFd mount(sys::Fsmount(fs.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (!mount.valid()) return SysError(-mount.get(), "fsmount tmpfs");
  rc = sys::MoveMount(mount.get(), "", AT_FDCWD, directory.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  return rc < 0 ? SysError(-rc, "attach " + directory) : OkStatus();
}

// Until no device and no tool has the image; then it is locked by this open file.
Status WaitIdle(int image_fd, const std::string& nodes_dir) {
  for (int i = 0; i < kIdleTries; ++i) {
    if (::flock(image_fd, LOCK_EX | LOCK_NB) == 0) {
      ASSIGN_OR_RETURN(const LoopDevice loop, FindLoop(image_fd, nodes_dir));
      if (!loop.fd.valid()) return OkStatus();
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      return SysError(errno, "lock an image");
    }
    std::this_thread::sleep_for(kIdlePause);
  }
  return Error{.code = Code::kUnavailable, .what = "the volume's image is in use still"};
}

// As e2fsck makes it; nobody else's.
void RemoveLostAndFound(const VolumeMount& mount) {
  struct stat st {};
  if (::fstatat(mount.fd(), kLostAndFound, &st, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 07777) != 0700) return;
  ::unlinkat(mount.fd(), kLostAndFound, AT_REMOVEDIR);  // where something is in it, it stays
}

class Frozen {
 public:
  static Result<Frozen> Take(const VolumeMount& mount) {
    RETURN_IF_ERROR(mount.Freeze());
    return Frozen(&mount);
  }
  Frozen(Frozen&& other) noexcept : mount_(std::exchange(other.mount_, nullptr)) {}
  ~Frozen() {
    if (mount_ != nullptr) IgnoreError(mount_->Thaw(), "the next mount tries again");
  }
  Status End() { return std::exchange(mount_, nullptr)->Thaw(); }

 private:
  explicit Frozen(const VolumeMount* mount) : mount_(mount) {}
  const VolumeMount* mount_;
};

}  // namespace

bool Volumes::IsName(const std::string& name) {
  const auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= 63 && alnum(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alnum(c) || c == '_' || c == '.' || c == '-'; });
}

Result<std::unique_ptr<Volumes>> Volumes::Open(VolumesOptions options) {
  std::unique_ptr<Volumes> volumes(new Volumes(std::move(options)));
  RETURN_IF_ERROR(MakeDirectories(volumes->options_.directory, 0700));
  RETURN_IF_ERROR(MountStage(volumes->options_.mounts));
  RETURN_IF_ERROR(volumes->Sweep());
  RETURN_IF_ERROR(volumes->Load());
  volumes->ThawLeftovers();
  return volumes;
}

Status Volumes::Sweep() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options_.directory));
  for (const std::string& name : names)
    if (name.starts_with('.')) RETURN_IF_ERROR(RemoveTree(PathOf(name)));
  return OkStatus();
}

Status Volumes::Load() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(options_.directory));
  for (const std::string& name : names) {
    if (!IsName(name)) continue;
    Result<VolumeFacts> facts = ReadFacts(PathOf(name), name);
    // It is kept and listed, and cannot be used: what is damaged is not ours to remove.
    if (!facts.has_value()) facts = VolumeFacts{.name = name};
    entries_[name].facts = *std::move(facts);
  }
  return OkStatus();
}

// A daemon that was killed while it copied leaves a frozen file system behind, which waits for ever
// with all who write to it.
void Volumes::ThawLeftovers() {
  for (const auto& [name, entry] : entries_) {
    const auto image = hutch::Open(PathOf(name) + kImage, O_RDWR);
    if (!image) continue;
    const auto loop = FindLoop(image->get(), options_.mounts);
    if (!loop || !loop->fd.valid()) continue;
    IgnoreError(Attach(name), "whoever uses it meets the same error");  // thaws
  }
}

std::vector<VolumeFacts> Volumes::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<VolumeFacts> list;
  for (const auto& [name, entry] : entries_) list.push_back(entry.facts);
  return list;
}

Result<VolumeFacts> Volumes::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return NotFound(name);
  return it->second.facts;
}

uint64_t Volumes::disk_bytes(const std::string& name) const {
  struct stat st {};
  if (::stat((PathOf(name) + kImage).c_str(), &st) != 0) return 0;
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

Result<VolumeMount::Use> Volumes::Measure(const std::string& name) const {
  if (const auto mount = Attached(name)) return mount->Measure();
  ASSIGN_OR_RETURN(const UniqueFd image, hutch::Open(PathOf(name) + kImage, O_RDONLY));
  return FilesystemUse(image.get());
}

std::string Volumes::NewPath(const char* prefix) {
  return PathOf(prefix + std::to_string(::getpid()) + "-" + std::to_string(++serial_));
}

Status Volumes::CheckNew(const std::string& name) const {
  if (!IsName(name))
    return Error{.code = Code::kInvalidArgument,
                 .what = "must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}",
                 .field = "name"};
  const std::lock_guard lock(mutex_);
  if (entries_.contains(name)) return Taken(name);
  if (entries_.size() >= kMaxVolumesStored)
    return Error{.code = Code::kLimit,
                 .what = "there are " + std::to_string(entries_.size()) + " volumes already"};
  return OkStatus();
}

// --- making

Status Volumes::Fill(const std::string& path, const VolumeFacts& facts) {
  const std::string image = path + kImage;
  ASSIGN_OR_RETURN(const UniqueFd fd, hutch::Open(image, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::ftruncate(fd.get(), static_cast<off_t>(facts.size_bytes)) != 0)
    return SysError(errno, "size of " + image);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return SysError(errno, "lock " + image);
  options_.at("make the file system");
  return RunVolumeTool(VolumeTool::kMake, image, fd.get(),
                       {std::to_string(facts.uid), std::to_string(facts.gid)});
}

// From a whole directory of another name.
Result<VolumeFacts> Volumes::Publish(const std::string& path, VolumeFacts facts) {
  ASSIGN_OR_RETURN(const UniqueFd image, hutch::Open(path + kImage, O_RDONLY));
  ASSIGN_OR_RETURN(facts.size_bytes, FilesystemBytes(image.get()));
  options_.at("sync the image");
  RETURN_IF_ERROR(SyncFd(image.get(), path + kImage));
  options_.at("write the record");
  RETURN_IF_ERROR(WriteFileAtomic(path + kRecord, RecordText(facts), Durability::kDisk));
  options_.at("give it its name");
  if (sys::Raw(SYS_renameat2, AT_FDCWD, path.c_str(), AT_FDCWD, PathOf(facts.name).c_str(),
               RENAME_NOREPLACE) < 0)
    return SysError(errno, "rename " + path);
  RETURN_IF_ERROR(SyncPath(options_.directory, O_DIRECTORY));
  options_.at("list it");
  const std::lock_guard lock(mutex_);
  entries_[facts.name] = Entry{.facts = facts};
  return facts;
}

Result<VolumeFacts> Volumes::Create(VolumeFacts wanted) {
  RETURN_IF_ERROR(CheckSize(wanted.size_bytes));
  wanted.size_bytes = WholeMiB(wanted.size_bytes);
  const std::lock_guard working(work_);
  RETURN_IF_ERROR(CheckNew(wanted.name));
  const std::string path = NewPath(".new-");
  RETURN_IF_ERROR(MakeDirectories(path, 0700));
  const auto make = [&]() -> Result<VolumeFacts> {
    RETURN_IF_ERROR(Fill(path, wanted));
    options_.at("mount it");
    {
      // A directory of tools that no tenant runs; programs that want an empty one refuse it.
      ASSIGN_OR_RETURN(const VolumeMount mount,
                       VolumeMount::Attach(path + kImage, options_.mounts + "/new"));
      if (::unlinkat(mount.fd(), kLostAndFound, AT_REMOVEDIR) != 0)
        return SysError(errno, "remove lost+found");
    }
    return Publish(path, std::move(wanted));
  };
  Result<VolumeFacts> made = make();
  if (!made.has_value()) IgnoreError(RemoveTree(path), "the next start removes it");
  return made;
}

// --- removing

Status Volumes::Remove(const std::string& name) {
  const std::lock_guard working(work_);
  const std::string path = NewPath(".gone-");
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) return NotFound(name);
    if (!it->second.mount.expired())
      return Error{.code = Code::kBadState, .what = "volume \"" + name + "\" is in use"};
    options_.at("take its name");
    if (::rename(PathOf(name).c_str(), path.c_str()) != 0)
      return SysError(errno, "rename " + PathOf(name));
    entries_.erase(it);
  }
  RETURN_IF_ERROR(SyncPath(options_.directory, O_DIRECTORY));
  options_.at("remove it");
  return RemoveTree(path);
}

// --- mounting

std::shared_ptr<VolumeMount> Volumes::Attached(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : it->second.mount.lock();
}

Result<std::shared_ptr<VolumeMount>> Volumes::Attach(const std::string& name) {
  if (auto mount = Attached(name)) return mount;
  const std::lock_guard working(work_);
  return AttachLocked(name);
}

Result<std::shared_ptr<VolumeMount>> Volumes::AttachLocked(const std::string& name) {
  RETURN_IF_ERROR(Find(name));
  if (auto mount = Attached(name)) return mount;  // meanwhile
  ASSIGN_OR_RETURN(VolumeMount attached,
                   VolumeMount::Attach(PathOf(name) + kImage, options_.mounts + "/" + name + "-" +
                                                                  std::to_string(++serial_)));
  const std::shared_ptr<VolumeMount> mount(
      new VolumeMount(std::move(attached)),
      [later = options_.later](VolumeMount* gone) { later([gone] { delete gone; }); });
  const std::lock_guard lock(mutex_);
  entries_[name].mount = mount;
  return mount;
}

// --- growing

Result<VolumeFacts> Volumes::Reread(const std::string& name) {
  ASSIGN_OR_RETURN(VolumeFacts facts, ReadFacts(PathOf(name), name));
  const std::lock_guard lock(mutex_);
  entries_[name].facts = facts;
  return facts;
}

Status Volumes::GrowOffline(const std::string& image, uint64_t size_bytes) {
  ASSIGN_OR_RETURN(const UniqueFd fd, hutch::Open(image, O_RDWR));
  RETURN_IF_ERROR(WaitIdle(fd.get(), options_.mounts));
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return SysError(errno, "size of " + image);
  RETURN_IF_ERROR(RunVolumeTool(VolumeTool::kCheck, image, fd.get(), {}));
  RETURN_IF_ERROR(RunVolumeTool(VolumeTool::kGrow, image, fd.get(), {}));
  return SyncFd(fd.get(), image);
}

Result<VolumeFacts> Volumes::Grow(const std::string& name, uint64_t size_bytes) {
  RETURN_IF_ERROR(CheckSize(size_bytes));
  size_bytes = WholeMiB(size_bytes);
  const std::lock_guard resting(image_);
  const std::lock_guard working(work_);
  ASSIGN_OR_RETURN(const VolumeFacts facts, Find(name));
  if (size_bytes < facts.size_bytes)
    return Error{.code = Code::kInvalidArgument,
                 .what = "volume \"" + name + "\" has " + std::to_string(facts.size_bytes) +
                         " bytes, and none becomes smaller",
                 .field = "size_bytes"};
  if (size_bytes == facts.size_bytes) return facts;
  const std::string image = PathOf(name) + kImage;
  if (CanGrowLive()) {
    ASSIGN_OR_RETURN(const auto mount, AttachLocked(name));
    if (::truncate(image.c_str(), static_cast<off_t>(size_bytes)) != 0)
      return SysError(errno, "size of " + image);
    RETURN_IF_ERROR(mount->Grow());
  } else {
    if (const auto used = Attached(name)) RETURN_IF_ERROR(used->Grow());  // says why not
    RETURN_IF_ERROR(GrowOffline(image, size_bytes));
    ASSIGN_OR_RETURN(const auto mount, AttachLocked(name));
    RemoveLostAndFound(*mount);
  }
  return Reread(name);
}

// --- copying

Status Volumes::CopyImage(const std::string& from, const std::string& to,
                          const CopyProgress& progress, const std::atomic<bool>& cancelled) {
  constexpr uint64_t kPiece = 16u << 20;
  ASSIGN_OR_RETURN(const UniqueFd in, hutch::Open(from, O_RDONLY));
  ASSIGN_OR_RETURN(const UniqueFd out, hutch::Open(to, O_WRONLY | O_CREAT | O_EXCL, 0600));
  struct stat st {};
  if (::fstat(in.get(), &st) != 0) return SysError(errno, "fstat " + from);
  if (::ftruncate(out.get(), st.st_size) != 0) return SysError(errno, "size of " + to);
  const auto total = static_cast<uint64_t>(st.st_blocks) * 512;
  uint64_t done = 0;
  for (off_t at = 0; at < st.st_size;) {
    off_t data = ::lseek(in.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    if (data < 0) return SysError(errno, "seek in " + from);
    const off_t end = ::lseek(in.get(), data, SEEK_HOLE);
    if (end < 0) return SysError(errno, "seek in " + from);
    for (off_t target = data; data < end;) {
      if (cancelled) return Error{.code = Code::kUnavailable, .what = "nobody waits for the copy"};
      const size_t want = std::min<uint64_t>(kPiece, static_cast<uint64_t>(end - data));
      const ssize_t n = ::copy_file_range(in.get(), &data, out.get(), &target, want, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SysError(errno, "copy to " + to);
      if (n == 0) return Error{.code = Code::kCorrupt, .what = from + " is cut off"};
      done += static_cast<uint64_t>(n);
      progress(done, std::max(total, done));
    }
    at = end;
  }
  return SyncFd(out.get(), to);
}

Result<VolumeFacts> Volumes::Copy(const std::string& from, const std::string& to,
                                  const CopyProgress& progress,
                                  const std::atomic<bool>& cancelled) {
  const std::lock_guard resting(image_);  // others are mounted meanwhile
  ASSIGN_OR_RETURN(VolumeFacts facts, Find(from));
  RETURN_IF_ERROR(CheckNew(to));
  facts.name = to;
  facts.created_at = std::chrono::system_clock::now();
  // Mounted whether it is used or not: then nothing waits in a journal, and a file system that has
  // not quite gone yet is found again.
  ASSIGN_OR_RETURN(const auto mount, Attach(from));
  const std::string path = NewPath(".new-");
  RETURN_IF_ERROR(MakeDirectories(path, 0700));
  const auto copy = [&]() -> Result<VolumeFacts> {
    options_.at("freeze");
    ASSIGN_OR_RETURN(Frozen frozen, Frozen::Take(*mount));
    options_.at("copy the image");
    RETURN_IF_ERROR(CopyImage(PathOf(from) + kImage, path + kImage, progress, cancelled));
    RETURN_IF_ERROR(frozen.End());
    return Publish(path, std::move(facts));
  };
  Result<VolumeFacts> made = copy();
  if (!made.has_value()) IgnoreError(RemoveTree(path), "the next start removes it");
  return made;
}

}  // namespace hutch::rootfs
