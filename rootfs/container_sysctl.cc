#include "rootfs/container_sysctl.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"

namespace hutch::rootfs {
namespace {

constexpr ino_t kProcRootInode = 1;
constexpr const char* kIpcKeys[] = {"kernel.msgmax", "kernel.msgmnb",         "kernel.msgmni",
                                    "kernel.sem",    "kernel.shmall",         "kernel.shmmax",
                                    "kernel.shmmni", "kernel.shm_rmid_forced"};

// "net.ipv4.conf.eth0/1.mtu" and "net/ipv4/conf/eth0.1/mtu" name the same: the first separator is
// the one that separates.
std::string PathOf(std::string name) {
  const size_t first = name.find_first_of("./");
  if (first == std::string::npos || name[first] == '/') return name;
  for (char& c : name) c = c == '.' ? '/' : c == '/' ? '.' : c;
  return name;
}

bool IsPlain(const std::string& path) {
  const std::vector<std::string> parts = Split(path, '/');
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return std::isgraph(static_cast<unsigned char>(c)) != 0 && c != '+';
           });
  });
}

Error Refusal(const std::string& what) {
  return Error{.code = Code::kInvalidArgument, .what = what, .field = "linux.sysctl"};
}

}  // namespace

Status CheckSysctl(const std::string& name, const std::string& value,
                   const ContainerMountSurroundings& where) {
  const std::string path = PathOf(name);
  if (!IsPlain(path)) return Refusal("sysctl \"" + name + "\" is no name of one");
  if (value.find_first_of(std::string_view("\n\0", 2)) != std::string::npos)
    return Refusal("the value of sysctl " + name + " has more than one line");
  bool ipc = path.starts_with("fs/mqueue/");
  for (const char* key : kIpcKeys) ipc = ipc || path == PathOf(key);
  if (path == "kernel/hostname")
    return Refusal("sysctl \"kernel.hostname\" conflicts with hostname: use that field instead");
  if ((ipc && where.own_ipc) || (path == "kernel/domainname" && where.own_uts) ||
      (path.starts_with("net/") && where.own_network) ||
      (path.starts_with("user/") && where.user_namespace))
    return OkStatus();
  return Refusal("sysctl \"" + name + "\" is not in a separate kernel namespace");
}

Result<UniqueFd> OpenVerifiedProc(int root_fd) {
  const int fd =
      sys::Openat2(root_fd, "proc", O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  if (fd < 0) return SysError(-fd, "open /proc");
  UniqueFd proc(fd);
  struct statfs fs {};
  struct stat st {};
  if (::fstatfs(fd, &fs) != 0 || ::fstat(fd, &st) != 0) return SysError(errno, "stat /proc");
  if (fs.f_type != PROC_SUPER_MAGIC || st.st_ino != kProcRootInode)
    return Error{.code = Code::kForbidden, .what = "/proc is no procfs"};
  return proc;
}

Status WriteSysctl(int proc_fd, const std::string& name, const std::string& value) {
  const UniqueFd file(sys::Openat2(proc_fd, ("sys/" + PathOf(name)).c_str(), O_WRONLY,
                                   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV));
  if (file.get() < 0) return SysError(-file.get(), "sysctl " + name);
  Status written = WriteAll(file.get(), value);
  if (written) return written;
  Error error = std::move(written).error();
  error.what = "sysctl " + name + ": " + error.what;
  return error;
}

Status WriteOwnAttribute(int proc_fd, const std::string& name, const std::string& value) {
  char pid[32];
  const ssize_t size = ::readlinkat(proc_fd, "self", pid, sizeof pid);
  if (size <= 0 || static_cast<size_t>(size) >= sizeof pid)
    return Error{.code = Code::kForbidden, .what = "/proc is of another pid namespace"};
  const std::string path = std::string(pid, static_cast<size_t>(size)) + "/attr/" + name;
  const UniqueFd file(sys::Openat2(proc_fd, path.c_str(), O_WRONLY,
                                   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV));
  if (file.get() < 0) return SysError(-file.get(), "open /proc/self/attr/" + name);
  Status written = WriteAll(file.get(), value);
  if (written) return written;
  Error error = std::move(written).error();
  error.what = "write \"" + value + "\" to /proc/self/attr/" + name + ": " + error.what;
  return error;
}

}  // namespace hutch::rootfs
