#include "rootfs/container_devices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "rootfs/container_target.h"

namespace hutch::rootfs {
namespace {

struct DefaultDevice {
  const char* path;
  unsigned major, minor;
};
constexpr DefaultDevice kDefaults[] = {{"/dev/null", 1, 3},    {"/dev/zero", 1, 5},
                                       {"/dev/full", 1, 7},    {"/dev/random", 1, 8},
                                       {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};
constexpr const char* kLinks[][2] = {{"/proc/self/fd", "/dev/fd"},
                                     {"/proc/self/fd/0", "/dev/stdin"},
                                     {"/proc/self/fd/1", "/dev/stdout"},
                                     {"/proc/self/fd/2", "/dev/stderr"}};

// The directory of a node. /dev itself is no link of an image's to elsewhere (CVE-2026-41579).
Result<UniqueFd> ParentOf(int root_fd, const std::string& given, std::string* name) {
  if (!given.starts_with("/"))
    return Error{.code = Code::kInvalidArgument,
                 .what = given + " is no absolute path",
                 .field = "linux.devices"};
  const std::string path = CleanPath(given);
  const size_t slash = path.rfind('/');
  *name = path.substr(slash + 1);
  if (name->empty()) return Error{.code = Code::kInvalidArgument, .what = given + " has no name"};
  if (slash == 0) return Duplicate(root_fd);
  if (path.starts_with("/dev/")) {
    struct stat st {};
    if (::fstatat(root_fd, "dev", &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
      return Error{.code = Code::kForbidden, .what = "/dev is no directory"};
  }
  return OpenOrMakeTarget(root_fd, path.substr(0, slash), TargetKind::kDirectory);
}

Result<mode_t> TypeOf(const oci::Device& device) {
  if (device.type == "c" || device.type == "u") return S_IFCHR;
  if (device.type == "b") return S_IFBLK;
  if (device.type == "p") return S_IFIFO;
  return Error{.code = Code::kInvalidArgument,
               .what = "device type \"" + device.type + "\"",
               .field = "linux.devices"};
}

// The host's node must be the one that is asked for.
Status BindDevice(int parent_fd, const std::string& name, const oci::Device& device, mode_t type,
                  dev_t number) {
  const std::string& source = device.path;
  const UniqueFd tree(sys::OpenTree(AT_FDCWD, source.c_str(), OPEN_TREE_CLONE));
  if (tree.get() < 0) return SysError(-tree.get(), "device " + source);
  struct stat st {};
  if (::fstat(tree.get(), &st) != 0) return SysError(errno, "device " + source);
  if ((st.st_mode & S_IFMT) != type || (type != S_IFIFO && st.st_rdev != number))
    return Error{.code = Code::kForbidden,
                 .what = "device " + source + " of the host is another one",
                 .field = "linux.devices"};
  ASSIGN_OR_RETURN(const UniqueFd target, OpenOrMakeTarget(parent_fd, name, TargetKind::kFile));
  const int rc = sys::MoveMount(tree.get(), "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  return rc < 0 ? Status(SysError(-rc, "bind device " + source)) : OkStatus();
}

// One that is there must be the one that is asked for, says the specification.
Status CheckExisting(int parent_fd, const std::string& name, const oci::Device& device, mode_t type,
                     dev_t number) {
  struct stat st {};
  if (::fstatat(parent_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return SysError(errno, "device " + device.path);
  if ((st.st_mode & S_IFMT) == type && (type == S_IFIFO || st.st_rdev == number)) return OkStatus();
  return Error{.code = Code::kExists,
               .what = "something else is at " + device.path + " where a device is to be",
               .field = "linux.devices"};
}

Status MakeDevice(PreparedContainerMounts& m, const oci::Device& device) {
  std::string name;
  ASSIGN_OR_RETURN(const UniqueFd parent, ParentOf(m.root.get(), device.path, &name));
  ASSIGN_OR_RETURN(const mode_t type, TypeOf(device));
  const mode_t mode = device.file_mode.value_or(0666) & 07777;
  const dev_t number =
      makedev(static_cast<unsigned>(device.major), static_cast<unsigned>(device.minor));
  if (m.where.user_namespace) return BindDevice(parent.get(), name, device, type, number);
  if (::mknodat(parent.get(), name.c_str(), type | mode, number) != 0) {
    if (errno == EPERM) return BindDevice(parent.get(), name, device, type, number);
    if (errno != EEXIST) return SysError(errno, "device " + device.path);
    return CheckExisting(parent.get(), name, device, type, number);
  }
  const uid_t uid = device.uid.value_or(0);
  const gid_t gid = device.gid.value_or(0);
  if ((uid != 0 || gid != 0) &&
      ::fchownat(parent.get(), name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
    return SysError(errno, "owner of device " + device.path);
  return OkStatus();
}

Status MakeLink(PreparedContainerMounts& m, const char* target, const std::string& path) {
  std::string name;
  ASSIGN_OR_RETURN(const UniqueFd parent, ParentOf(m.root.get(), path, &name));
  if (::symlinkat(target, parent.get(), name.c_str()) == 0 || errno == EEXIST) return OkStatus();
  return SysError(errno, "link " + path);
}

}  // namespace

Status MakeContainerDevices(PreparedContainerMounts& m) {
  for (const oci::ContainerMount& mount : m.config->mounts) {
    if (CleanPath(mount.destination) != "/dev") continue;
    if (mount.type == "bind") return OkStatus();
    for (const std::string& option : mount.options)
      if (option == "bind" || option == "rbind") return OkStatus();
  }
  for (const DefaultDevice& one : kDefaults) {
    bool named = false;
    for (const oci::Device& device : m.config->linux_.devices) named |= device.path == one.path;
    if (named) continue;
    RETURN_IF_ERROR(MakeDevice(m, {.path = one.path,
                                   .type = "c",
                                   .major = one.major,
                                   .minor = one.minor,
                                   .file_mode = {},
                                   .uid = {},
                                   .gid = {}}));
  }
  for (const oci::Device& device : m.config->linux_.devices) RETURN_IF_ERROR(MakeDevice(m, device));
  for (const auto& link : kLinks) RETURN_IF_ERROR(MakeLink(m, link[0], link[1]));
  return MakeLink(m, "pts/ptmx", "/dev/ptmx");
}

}  // namespace hutch::rootfs
