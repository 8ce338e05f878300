// System calls as they are: inline, noexcept, no errno, no allocation. Each returns the kernel's
// value, or -errno. Safe after clone. Includes the calls and constants that glibc 2.36 lacks.
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef PIDFD_GET_USER_NAMESPACE
#define PIDFD_GET_USER_NAMESPACE 0xff09  // _IO(0xFF, 9), Linux 6.11
#endif

namespace hutch::sys {

// Runs a raw system call; returns its value or -errno.
template <class... Args>
inline long Raw(long nr, Args... args) noexcept {
  const long value = ::syscall(nr, args...);
  return value == -1 ? -errno : value;
}

inline int Openat2(int dir_fd, const char* path, uint64_t flags, uint64_t resolve,
                   uint64_t mode = 0) noexcept {
  struct open_how how = {flags | O_CLOEXEC, mode, resolve};
  return static_cast<int>(Raw(SYS_openat2, dir_fd, path, &how, sizeof how));
}
inline long Clone3(const struct clone_args* args) noexcept {
  return Raw(SYS_clone3, args, sizeof *args);
}
inline int OpenTree(int dir_fd, const char* path, unsigned flags) noexcept {
  return static_cast<int>(Raw(SYS_open_tree, dir_fd, path, flags | OPEN_TREE_CLOEXEC));
}
inline int MoveMount(int from_fd, const char* from, int to_fd, const char* to,
                     unsigned flags) noexcept {
  return static_cast<int>(Raw(SYS_move_mount, from_fd, from, to_fd, to, flags));
}
inline int Fsopen(const char* type) noexcept {
  return static_cast<int>(Raw(SYS_fsopen, type, FSOPEN_CLOEXEC));
}
inline int Fsconfig(int fs_fd, unsigned cmd, const char* key, const void* value, int aux) noexcept {
  return static_cast<int>(Raw(SYS_fsconfig, fs_fd, cmd, key, value, aux));
}
inline int Fsmount(int fs_fd, unsigned attributes) noexcept {
  return static_cast<int>(Raw(SYS_fsmount, fs_fd, FSMOUNT_CLOEXEC, attributes));
}
inline int Fspick(int dir_fd, const char* path, unsigned flags) noexcept {
  return static_cast<int>(Raw(SYS_fspick, dir_fd, path, flags));
}
inline int PidfdGetfd(int pidfd, int target_fd) noexcept {
  return static_cast<int>(Raw(SYS_pidfd_getfd, pidfd, target_fd, 0u));
}
inline int MountSetattr(int dir_fd, const char* path, unsigned flags,
                        const struct mount_attr* attr) noexcept {
  return static_cast<int>(Raw(SYS_mount_setattr, dir_fd, path, flags, attr, sizeof *attr));
}
inline int PivotRoot(const char* new_root, const char* put_old) noexcept {
  return static_cast<int>(Raw(SYS_pivot_root, new_root, put_old));
}
inline int CloseRange(unsigned first, unsigned last, unsigned flags) noexcept {
  return static_cast<int>(Raw(SYS_close_range, first, last, flags));
}
inline int PidfdOpen(pid_t pid, unsigned flags) noexcept {
  return static_cast<int>(Raw(SYS_pidfd_open, pid, flags));
}
inline int PidfdSendSignal(int pidfd, int signal) noexcept {
  return static_cast<int>(Raw(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0u));
}
inline int Capset(const struct __user_cap_header_struct* header,
                  const struct __user_cap_data_struct* data) noexcept {
  return static_cast<int>(Raw(SYS_capset, header, data));
}
inline int Capget(struct __user_cap_header_struct* header,
                  struct __user_cap_data_struct* data) noexcept {
  return static_cast<int>(Raw(SYS_capget, header, data));
}

}  // namespace hutch::sys
