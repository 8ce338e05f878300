#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/file.h"
#include "base/sys_raw.h"
#include "rootfs/overlay.h"
#include "rootfs/proc_files.h"
#include "rootfs/proc_template.h"

namespace hutch::rootfs {
namespace {

struct DeviceRow {
  const char* name;
  unsigned major, minor;
};
constexpr DeviceRow kDevices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                                  {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

struct LinkRow {
  const char* name;
  const char* target;
};
constexpr LinkRow kLinks[] = {{"fd", "/proc/self/fd"},
                              {"stdin", "/proc/self/fd/0"},
                              {"stdout", "/proc/self/fd/1"},
                              {"stderr", "/proc/self/fd/2"},
                              {"ptmx", "pts/ptmx"}};
constexpr const char* kDevDirectories[] = {"pts", "shm", "mqueue"};

struct SkeletonRow {
  const char* path;
  mode_t mode;
};
// Every mount point a sandbox may need, parents first. As the topmost layer it also replaces links
// an image put in their place.
constexpr SkeletonRow kSkeleton[] = {
    {"proc", 0555},         {"sys", 0555},       {"dev", 0755},      {"tmp", 01777},
    {"run", 0755},          {"var", 0755},       {"var/tmp", 01777}, {"home", 0755},
    {"home/sandbox", 0700}, {"workspace", 0755}, {"root", 0700},     {"etc", 0755},
};
struct SkeletonFile {
  const char* path;
  const char* content;
};
constexpr SkeletonFile kSkeletonFiles[] = {
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"etc/resolv.conf",
     "# hutch answers here, names that the sandbox may reach\nnameserver 127.0.0.1\n"},
};

Status FillDev(int dev) {
  for (const DeviceRow& d : kDevices) {
    if (::mknodat(dev, d.name, S_IFCHR | 0666, makedev(d.major, d.minor)) != 0)
      return SysError(errno, std::string("mknod ") + d.name);
    if (::fchmodat(dev, d.name, 0666, 0) != 0)
      return SysError(errno, std::string("chmod ") + d.name);
  }
  for (const LinkRow& link : kLinks)
    if (::symlinkat(link.target, dev, link.name) != 0)
      return SysError(errno, std::string("symlink ") + link.name);
  for (const char* name : kDevDirectories) {
    if (::mkdirat(dev, name, 0755) != 0) return SysError(errno, std::string("mkdir ") + name);
    if (::fchmodat(dev, name, 0755, 0) != 0) return SysError(errno, std::string("chmod ") + name);
  }
  return OkStatus();
}

// Sets attributes of a whole template; flags are inherited by its clones.
Status Freeze(int mount, uint64_t attributes) {
  struct mount_attr attr {};
  attr.attr_set = attributes;
  if (const int rc = sys::MountSetattr(mount, "", AT_EMPTY_PATH, &attr); rc < 0)
    return SysError(-rc, "freeze a template");
  return OkStatus();
}

Status FillMask(int mask) {
  if (::mkdirat(mask, kEmptyTemplate, 0755) != 0 || ::fchmodat(mask, kEmptyTemplate, 0755, 0) != 0)
    return SysError(errno, "make the empty template");
  return FillProcTemplate(mask);
}

Status FillSkeleton(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory, 0755));
  if (::chmod(directory.c_str(), 0755) != 0)
    return SysError(errno, "chmod " + directory);  // "/" of every sandbox
  for (const SkeletonRow& row : kSkeleton) {
    const std::string path = directory + "/" + row.path;
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST)
      return SysError(errno, "mkdir " + path);
    if (::chmod(path.c_str(), row.mode) != 0) return SysError(errno, "chmod " + path);
  }
  for (const SkeletonFile& file : kSkeletonFiles) {
    const std::string path = directory + "/" + file.path;
    RETURN_IF_ERROR(WriteFileAtomic(path, file.content, Durability::kMemory));
    if (::chmod(path.c_str(), 0644) != 0) return SysError(errno, "chmod " + path);
  }
  return OkStatus();
}

Result<UniqueFd> Clone(int mount) {
  UniqueFd clone(sys::OpenTree(mount, "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (!clone.valid()) return SysError(-clone.get(), "clone a template");
  return clone;
}

}  // namespace

// A tmpfs attached at `path` of our own mount namespace, returned by descriptor.
Result<Templates::Attached> Templates::Attach(const std::string& path) {
  RETURN_IF_ERROR(MakeDirectories(path, 0700));
  const UniqueFd fs(sys::Fsopen("tmpfs"));
  if (!fs.valid()) return SysError(-fs.get(), "fsopen tmpfs");
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "mode", "0755", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "size", "256k", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return SysError(-rc, "create a template file system");
  UniqueFd mount(sys::Fsmount(fs.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (!mount.valid()) return SysError(-mount.get(), "fsmount a template");
  rc = sys::MoveMount(mount.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  if (rc < 0) return SysError(-rc, "attach a template at " + path);
  return Attached{std::move(mount), path};
}

Templates::~Templates() {
  for (const Attached* a : {&dev_, &mask_})
    if (a->mount.valid()) ::umount2(a->path.c_str(), MNT_DETACH);
}

Result<Templates> Templates::Make(const std::string& directory, const std::string& skeleton_dir) {
  Templates t;
  ASSIGN_OR_RETURN(t.dev_, Attach(directory + "/dev"));
  RETURN_IF_ERROR(FillDev(t.dev_.mount.get()));
  RETURN_IF_ERROR(Freeze(t.dev_.mount.get(), MOUNT_ATTR_RDONLY));
  ASSIGN_OR_RETURN(t.mask_, Attach(directory + "/mask"));
  RETURN_IF_ERROR(FillMask(t.mask_.mount.get()));
  RETURN_IF_ERROR(Freeze(t.mask_.mount.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
  RETURN_IF_ERROR(FillSkeleton(skeleton_dir));
  ASSIGN_OR_RETURN(t.skeleton_, Open(skeleton_dir, O_PATH | O_DIRECTORY));
  return t;
}

Result<UniqueFd> Templates::CloneDev() const { return Clone(dev_.mount.get()); }
Result<UniqueFd> Templates::CloneMask() const { return Clone(mask_.mount.get()); }

}  // namespace hutch::rootfs
