// Runs after clone, in the sandbox's namespaces. No heap, no exceptions; the functions return 0 or
// an errno value.
#include "rootfs/mount_plan.h"

#include <sys/mount.h>
#include <sys/stat.h>

#include "base/sys_raw.h"
#include "rootfs/proc_files.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
// Any directory that exists on every host will do: these are our own copies of the host's mounts,
// gone after the pivot.
constexpr const char kRootStage[] = "/proc";
constexpr const char kScratchStage[] = "/sys";
constexpr unsigned kByDescriptors = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

// A descriptor closed at the end of the scope; the child has no destructors that allocate.
struct ScopedFd {
  int fd;
  ~ScopedFd() {
    if (fd >= 0) ::close(fd);
  }
};

int Attach(int mount_fd, int root_fd, const char* target) noexcept {
  const ScopedFd at{sys::Openat2(root_fd, target, O_PATH, kInside)};
  if (at.fd < 0) return -at.fd;
  return -sys::MoveMount(mount_fd, "", at.fd, "", kByDescriptors);
}

int SetAttributes(int mount_fd, uint64_t attributes) noexcept {
  struct mount_attr attr {};
  attr.attr_set = attributes;
  return -sys::MountSetattr(mount_fd, "", AT_EMPTY_PATH, &attr);
}

// Clones the mount at `path` below `from_fd` ("" for from_fd itself), sets attributes, attaches it
// at the target.
int Bind(int from_fd, const char* path, uint64_t attributes, int root_fd,
         const char* target) noexcept {
  const unsigned flags = OPEN_TREE_CLONE | (*path == '\0' ? AT_EMPTY_PATH : 0u);
  const ScopedFd clone{sys::OpenTree(from_fd, path, flags)};
  if (clone.fd < 0) return -clone.fd;
  if (const int err = attributes != 0 ? SetAttributes(clone.fd, attributes) : 0; err != 0)
    return err;
  return Attach(clone.fd, root_fd, target);
}

// A new file system instance as a detached mount; or -errno. `options` pairs of NUL-terminated
// strings.
int MakeFilesystem(const char* type, const char* options, size_t pairs,
                   uint64_t attributes) noexcept {
  const ScopedFd fs{sys::Fsopen(type)};
  if (fs.fd < 0) return fs.fd;
  for (size_t i = 0; i < pairs; ++i) {
    const char* key = options;
    while (*options != '\0') ++options;
    const char* value = ++options;
    while (*options != '\0') ++options;
    ++options;
    const int rc = *value == '\0' ? sys::Fsconfig(fs.fd, FSCONFIG_SET_FLAG, key, nullptr, 0)
                                  : sys::Fsconfig(fs.fd, FSCONFIG_SET_STRING, key, value, 0);
    if (rc < 0) return rc;
  }
  if (const int rc = sys::Fsconfig(fs.fd, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0); rc < 0)
    return rc;
  return sys::Fsmount(fs.fd, static_cast<unsigned>(attributes));
}

int AttachNew(int mount_fd, int root_fd, const char* target) noexcept {
  if (mount_fd < 0) return -mount_fd;
  const ScopedFd mount{mount_fd};
  return Attach(mount.fd, root_fd, target);
}

int MissingIsFine(int err) noexcept { return err == ENOENT || err == ENOTDIR ? 0 : err; }

int DoProc(const MountContext& c, const MountOp& op) noexcept {
  if (c.default_proc && c.ready_proc_fd >= 0)
    return Attach(c.ready_proc_fd, c.root_fd, c.strings + op.target);
  return AttachNew(MakeFilesystem("proc", c.strings + op.options_at, op.options, op.attributes),
                   c.root_fd, c.strings + op.target);
}

int DoFilesystem(const MountContext& c, const MountOp& op) noexcept {
  const char* type = c.strings + op.source;
  const int ready = type[0] == 'd' ? c.ready_devpts_fd : type[0] == 'm' ? c.ready_mqueue_fd : -1;
  if (ready >= 0) return Attach(ready, c.root_fd, c.strings + op.target);
  return AttachNew(MakeFilesystem(type, c.strings + op.options_at, op.options, op.attributes),
                   c.root_fd, c.strings + op.target);
}

int DoReadonly(const MountContext& c, const char* target) noexcept {
  const ScopedFd at{sys::Openat2(c.root_fd, target, O_PATH, kInside)};
  if (at.fd < 0) return MissingIsFine(-at.fd);
  return Bind(at.fd, "",
              MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
              c.root_fd, target);
}

// The directory is found without links, and cloned by what was found.
int DoRootView(const MountContext& c, const MountOp& op) noexcept {
  const ScopedFd at{sys::Openat2(c.root_fd, c.strings + op.target, O_PATH | O_DIRECTORY, kInside)};
  if (at.fd < 0) return -at.fd;
  return Bind(at.fd, "", op.attributes, c.root_fd, c.strings + op.target);
}

// The kernel's file is taken while its directory can still be seen.
int DoProcSys(const MountContext& c, const MountOp& op) noexcept {
  const ScopedFd uuid{sys::OpenTree(c.root_fd, kProcUuidTarget, OPEN_TREE_CLONE)};
  if (uuid.fd < 0) return -uuid.fd;
  if (const int err = SetAttributes(uuid.fd, kProcFileAttributes); err != 0) return err;
  if (const int err = Bind(c.mask_fd, c.strings + op.source, 0, c.root_fd, c.strings + op.target);
      err != 0)
    return err;
  return Attach(uuid.fd, c.root_fd, kProcUuidTarget);
}

int DoPinLink(const MountContext& c, const char* target) noexcept {
  for (size_t i = 0; i < kMaxPins; ++i) {
    if (c.pins[i] >= 0) continue;
    c.pins[i] = sys::Openat2(c.root_fd, target, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH);
    return c.pins[i] < 0 ? -c.pins[i] : 0;
  }
  return ENFILE;
}

// 0 when the name cannot be found.
int VerifyHidden(int proc_fd, const char* name) noexcept {
  const ScopedFd at{sys::Openat2(proc_fd, name, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH)};
  return at.fd == -ENOENT ? 0 : EPERM;
}

// subset=pid takes every name away that is not in use: lookups of it answer ENOENT, whatever this
// kernel has there. A dentry that is a mount point or held open stays where it is (dcache), so what
// was put in before is exactly what can be found after.
int ReduceToProcesses(int proc_fd) noexcept {
  const ScopedFd fs{sys::Fspick(proc_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH)};
  if (fs.fd < 0) return -fs.fd;
  int rc = sys::Fsconfig(fs.fd, FSCONFIG_SET_STRING, "subset", "pid", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.fd, FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0);
  return rc < 0 ? -rc : 0;
}

int DoSealProc(const MountContext& c, const MountOp& op) noexcept {
  const ScopedFd proc{sys::Openat2(c.root_fd, c.strings + op.target, O_PATH, kInside)};
  if (proc.fd < 0) return -proc.fd;
  // Where it cannot be changed it was mounted so; either way it is looked at.
  if (const int err = CanSealProc() ? ReduceToProcesses(proc.fd) : 0; err != 0) return err;
  for (const char* name : kNeverInProc)
    if (const int err = VerifyHidden(proc.fd, name); err != 0) return err;
  const char* found = c.strings + op.source;
  if (*found == '\0') return VerifyHidden(proc.fd, "sys");
  const ScopedFd at{sys::Openat2(proc.fd, found, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH)};
  return at.fd < 0 ? -at.fd : 0;
}

int DoOp(const MountContext& c, const MountOp& op) noexcept {
  const char* target = c.strings + op.target;
  switch (op.kind) {
    case MountOpKind::kScratchBind:
      return Bind(c.scratch_fd, c.strings + op.source, op.attributes, c.root_fd, target);
    case MountOpKind::kAttach:
      return op.fd_index < c.fd_count ? Attach(c.fds[op.fd_index], c.root_fd, target) : EBADF;
    case MountOpKind::kProc:
      return DoProc(c, op);
    case MountOpKind::kFilesystem:
      return DoFilesystem(c, op);
    case MountOpKind::kMaskDirectory:
      return MissingIsFine(Bind(c.mask_fd, kEmptyTemplate, 0, c.root_fd, target));
    case MountOpKind::kMaskFile:
      return MissingIsFine(Bind(c.root_fd, "dev/null", 0, c.root_fd, target));
    case MountOpKind::kReadonly:
      return DoReadonly(c, target);
    case MountOpKind::kTemplateBind:
      return MissingIsFine(Bind(c.mask_fd, c.strings + op.source, 0, c.root_fd, target));
    case MountOpKind::kProcSys:
      return DoProcSys(c, op);
    case MountOpKind::kPinLink:
      return DoPinLink(c, target);
    case MountOpKind::kSealProc:
      return DoSealProc(c, op);
    case MountOpKind::kRootView:
      return DoRootView(c, op);
    case MountOpKind::kRootReadonly:
      return SetAttributes(c.root_fd, MOUNT_ATTR_RDONLY);
  }
  return EINVAL;
}

// The old root ends up on top of the new one and is detached: pivot_root(2), "pivot_root(".",
// ".")".
int Pivot(int root_fd) noexcept {
  if (::fchdir(root_fd) != 0) return errno;
  if (const int rc = sys::PivotRoot(".", "."); rc < 0) return -rc;
  if (::umount2(".", MNT_DETACH) != 0) return errno;
  return ::chdir("/") == 0 ? 0 : errno;
}

}  // namespace

int MakeProc() noexcept {
  static constexpr char kOptions[] = "hidepid\0invisible\0subset\0pid\0";
  return MakeFilesystem("proc", kOptions, CanSealProc() ? 1 : 2,
                        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

int MakeDevpts() noexcept {
  static constexpr char kOptions[] = "newinstance\0\0ptmxmode\0000666\0mode\0000620\0gid\0005\0";
  return MakeFilesystem("devpts", kOptions, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

int MakeMqueue() noexcept {
  return MakeFilesystem("mqueue", "", 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

int DoMounts(const MountContext& c, size_t* failed_op) noexcept {
  *failed_op = c.op_count;
  // Attached first: a detached mount can be neither a source of clones nor a target before
  // Linux 6.15.
  int rc = sys::MoveMount(c.root_fd, "", AT_FDCWD, kRootStage, MOVE_MOUNT_F_EMPTY_PATH);
  if (rc == 0)
    rc = sys::MoveMount(c.scratch_fd, "", AT_FDCWD, kScratchStage, MOVE_MOUNT_F_EMPTY_PATH);
  if (rc == 0 && c.mask_fd >= 0)
    rc = sys::MoveMount(c.mask_fd, "", AT_FDCWD, kScratchStage, MOVE_MOUNT_F_EMPTY_PATH);
  if (rc < 0) return -rc;
  for (size_t i = 0; i < c.op_count; ++i) {
    if (const int err = DoOp(c, c.ops[i]); err != 0) {
      *failed_op = i;
      return err;
    }
  }
  return Pivot(c.root_fd);
}

}  // namespace hutch::rootfs
