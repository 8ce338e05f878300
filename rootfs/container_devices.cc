#include "rootfs/container_devices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"

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

Result<UniqueFd> ParentOf(int root_fd, const std::string& path, std::string* name) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || path[0] != '/')
    return Error{.code = Code::kInvalidArgument,
                 .what = path + " is no absolute path",
                 .field = "linux.devices"};
  *name = path.substr(slash + 1);
  if (name->empty() || *name == "." || *name == "..")
    return Error{.code = Code::kInvalidArgument, .what = path + " has no name"};
  if (slash == 0) return Duplicate(root_fd);
  ASSIGN_OR_RETURN(const RootedPath parent, RootedPath::Make(root_fd, path.substr(0, slash)));
  return parent.MakeDirectories(0755, 0, 0);
}

Result<mode_t> TypeOf(const oci::Device& device) {
  if (device.type == "c" || device.type == "u") return S_IFCHR;
  if (device.type == "b") return S_IFBLK;
  if (device.type == "p") return S_IFIFO;
  return Error{.code = Code::kInvalidArgument,
               .what = "device type \"" + device.type + "\"",
               .field = "linux.devices"};
}

Status BindDevice(int parent_fd, const std::string& name, const std::string& source) {
  const UniqueFd tree(sys::OpenTree(AT_FDCWD, source.c_str(), OPEN_TREE_CLONE));
  if (tree.get() < 0) return SysError(-tree.get(), "device " + source);
  ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(parent_fd, name, Links::kNone));
  if (Result<UniqueFd> made = place.CreateFile(0666); !made && made.error().sys != EEXIST)
    return std::move(made).error();
  ASSIGN_OR_RETURN(const UniqueFd target, place.Open(O_PATH | O_NOFOLLOW));
  const int rc = sys::MoveMount(tree.get(), "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  return rc < 0 ? Status(SysError(-rc, "bind device " + source)) : OkStatus();
}

Status MakeDevice(PreparedContainerMounts& m, const oci::Device& device) {
  std::string name;
  ASSIGN_OR_RETURN(const UniqueFd parent, ParentOf(m.root.get(), device.path, &name));
  if (m.where.user_namespace) return BindDevice(parent.get(), name, device.path);
  ASSIGN_OR_RETURN(const mode_t type, TypeOf(device));
  const mode_t mode = device.file_mode.value_or(0666) & 07777;
  const dev_t number =
      makedev(static_cast<unsigned>(device.major), static_cast<unsigned>(device.minor));
  if (::mknodat(parent.get(), name.c_str(), type | mode, number) != 0) {
    // One that is there already is made anew: an image's own is not believed.
    if (errno != EEXIST || ::unlinkat(parent.get(), name.c_str(), 0) != 0 ||
        ::mknodat(parent.get(), name.c_str(), type | mode, number) != 0)
      return SysError(errno, "device " + device.path);
  }
  if (::fchmodat(parent.get(), name.c_str(), mode, 0) != 0 ||
      ::fchownat(parent.get(), name.c_str(), device.uid.value_or(0), device.gid.value_or(0),
                 AT_SYMLINK_NOFOLLOW) != 0)
    return SysError(errno, "device " + device.path);
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
    if (mount.destination != "/dev" && mount.destination != "/dev/") continue;
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
