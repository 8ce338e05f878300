// The mounts of a sandbox as data: made by PlanMounts() in the daemon, carried out by DoMounts() in
// the sandbox's own namespaces (rootfs/mounts_child.cc). Plain memory: it crosses to the agent
// inside a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hutch::rootfs {

inline constexpr size_t kMaxMountOps = 96;
inline constexpr size_t kMaxPins = 2;

enum class MountOpKind : uint8_t {
  kScratchBind,    // a directory of the scratch file system: source = its name there
  kAttach,         // a detached mount that came along: fd_index
  kProc,           // a new procfs of the sandbox's pid namespace; options "subset=pid" style pairs
  kFilesystem,     // a new instance of `source` (tmpfs, devpts, mqueue) with option pairs
  kMaskDirectory,  // an empty read-only directory over the target; a missing target is fine
  kMaskFile,       // the template's /dev/null over the target; a missing target is fine
  kReadonly,       // the target bound over itself, read-only; a missing target is fine
  kTemplateBind,   // a file of the templates (source) over the target, which may be missing
  kProcSys,       // the templates' tree at source over the target, a procfs's sys; the kernel's own
                  // random/uuid shows through
  kPinLink,       // keeps the symbolic link that is the target in use, through a descriptor
  kSealProc,      // from now on only processes, and what is mounted over or pinned, are to be found
                  // in the procfs at the target; proved with names. source: must be found, or ""
  kRootView,      // a directory of the root over itself, as writable as the root is now
  kRootReadonly,  // the root is read-only from now on; what is mounted in it is not touched
  kLast = kRootReadonly,
};

// Offsets point into the plan's string area; every string ends with a NUL.
struct MountOp {
  MountOpKind kind;
  uint8_t fd_index;  // kAttach: which of the descriptors that came with the plan
  uint16_t options;  // number of key/value pairs at options_at ("key\0value\0"; an empty value is a
                     // flag)
  uint32_t
      target;  // path inside the root, no leading slash; resolved without following any symlink
  uint32_t source;
  uint32_t options_at;
  uint64_t attributes;  // MOUNT_ATTR_*
};
static_assert(std::is_trivially_copyable_v<MountOp>);

// What DoMounts works on. Descriptors are borrowed.
struct MountContext {
  const MountOp* ops;
  size_t op_count;
  const char* strings;
  const int* fds;  // what came with the plan, for kAttach
  size_t fd_count;
  int root_fd;          // the detached root file system
  int scratch_fd;       // the detached scratch file system
  int mask_fd;          // a detached read-only file system: rootfs/proc_files.h
  int ready_proc_fd;    // made ahead, or -1: procfs with hidepid=invisible, not sealed yet
  int ready_devpts_fd;  // made ahead, or -1
  int ready_mqueue_fd;  // made ahead, or -1
  bool default_proc;    // kProc may use ready_proc_fd
  int* pins;            // kMaxPins, -1 where unused: what kPinLink opened, owned by the caller
};

// Runs in the child: attaches root and scratch, does every op inside the root by descriptors, and
// makes the root "/" of the mount namespace (pivot_root(2)), with nothing of the host left. Returns
// 0 or an errno value; *failed_op is the index of the op at fault (op_count for the root itself).
// Needs CAP_SYS_ADMIN in the user namespace that owns the mount namespace.
int DoMounts(const MountContext& context, size_t* failed_op) noexcept;

// Whether this kernel lets a mounted procfs be reduced to processes: what "honest" needs. Probed at
// the first call, which needs CAP_SYS_ADMIN; what is cloned afterwards knows it.
bool CanSealProc() noexcept;

// Makes ahead what does not depend on any request. Each descriptor, or -errno.
int MakeProc() noexcept;  // hidepid=invisible, and subset=pid where no kSealProc can add it later
int MakeDevpts() noexcept;
int MakeMqueue() noexcept;

}  // namespace hutch::rootfs
