#include "rootfs/container_devices.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "rootfs/container_idmap.h"
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

struct Node {
  mode_t type = 0, mode = 0;
  dev_t number = 0;
};

Result<Node> NodeOf(const oci::Device& device) {
  ASSIGN_OR_RETURN(const mode_t type, TypeOf(device));
  return Node{
      .type = type,
      .mode = device.file_mode.value_or(0666) & 07777,
      .number = makedev(static_cast<unsigned>(device.major), static_cast<unsigned>(device.minor))};
}

bool DevIsBound(const oci::ContainerConfig& config) {
  for (const oci::ContainerMount& mount : config.mounts) {
    if (CleanPath(mount.destination) != "/dev") continue;
    if (mount.type == "bind") return true;
    for (const std::string& option : mount.options)
      if (option == "bind" || option == "rbind") return true;
  }
  return false;
}

// The default ones that the configuration does not name, then its own.
std::vector<oci::Device> AllDevices(const oci::ContainerConfig& config) {
  std::vector<oci::Device> all;
  for (const DefaultDevice& one : kDefaults) {
    bool named = false;
    for (const oci::Device& device : config.linux_.devices) named |= device.path == one.path;
    if (named) continue;
    all.push_back({.path = one.path,
                   .type = "c",
                   .major = one.major,
                   .minor = one.minor,
                   .file_mode = {},
                   .uid = {},
                   .gid = {}});
  }
  all.insert(all.end(), config.linux_.devices.begin(), config.linux_.devices.end());
  return all;
}

Result<uint32_t> OwnerOnHost(const std::vector<oci::IdMapping>& maps, uint32_t id,
                             const oci::Device& device) {
  const std::optional<uint32_t> host = HostId(maps, id);
  if (host) return *host;
  return Error{.code = Code::kInvalidArgument,
               .what = "owner " + std::to_string(id) + " of device " + device.path +
                       " has no id outside of the user namespace",
               .field = "linux.devices"};
}

Status BindNode(int tree_fd, int parent_fd, const std::string& name, const oci::Device& device) {
  ASSIGN_OR_RETURN(const UniqueFd target, OpenOrMakeTarget(parent_fd, name, TargetKind::kFile));
  const int rc = sys::MoveMount(tree_fd, "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  return rc < 0 ? Status(SysError(-rc, "bind device " + device.path)) : OkStatus();
}

// The host's node must be the one that is asked for. Read-only is its inode, not the device: nobody
// inside changes the mode or the owner of what the host uses.
Status BindHostNode(int parent_fd, const std::string& name, const oci::Device& device,
                    const Node& node) {
  const std::string& source = device.path;
  const UniqueFd tree(sys::OpenTree(AT_FDCWD, source.c_str(), OPEN_TREE_CLONE));
  if (tree.get() < 0) return SysError(-tree.get(), "device " + source);
  struct stat st {};
  if (::fstat(tree.get(), &st) != 0) return SysError(errno, "device " + source);
  if ((st.st_mode & S_IFMT) != node.type || (node.type != S_IFIFO && st.st_rdev != node.number))
    return Error{.code = Code::kForbidden,
                 .what = "device " + source + " of the host is another one",
                 .field = "linux.devices"};
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
  if (const int rc = sys::MountSetattr(tree.get(), "", AT_EMPTY_PATH, &attributes); rc < 0)
    return SysError(-rc, "make device " + source + " read-only");
  return BindNode(tree.get(), parent_fd, name, device);
}

// One that is there must be the one that is asked for, says the specification.
Status CheckExisting(int parent_fd, const std::string& name, const oci::Device& device,
                     const Node& node) {
  struct stat st {};
  if (::fstatat(parent_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return SysError(errno, "device " + device.path);
  if ((st.st_mode & S_IFMT) == node.type && (node.type == S_IFIFO || st.st_rdev == node.number))
    return OkStatus();
  return Error{.code = Code::kExists,
               .what = "something else is at " + device.path + " where a device is to be",
               .field = "linux.devices"};
}

// `made`: a node for it that the parent made; -1: none.
Status MakeDevice(PreparedContainerMounts& m, const oci::Device& device, int made) {
  std::string name;
  ASSIGN_OR_RETURN(const UniqueFd parent, ParentOf(m.root.get(), device.path, &name));
  if (made >= 0) return BindNode(made, parent.get(), name, device);
  ASSIGN_OR_RETURN(const Node node, NodeOf(device));
  if (m.where.user_namespace && node.type != S_IFIFO)
    return BindHostNode(parent.get(), name, device, node);
  if (::mknodat(parent.get(), name.c_str(), node.type | node.mode, node.number) != 0) {
    if (errno == EPERM) return BindHostNode(parent.get(), name, device, node);
    if (errno != EEXIST) return SysError(errno, "device " + device.path);
    return CheckExisting(parent.get(), name, device, node);
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

Status MakeNode(int directory_fd, const std::string& name, const oci::Device& device,
                const oci::ContainerLinux& linux_part) {
  ASSIGN_OR_RETURN(const Node node, NodeOf(device));
  ASSIGN_OR_RETURN(const uid_t uid,
                   OwnerOnHost(linux_part.uid_mappings, device.uid.value_or(0), device));
  ASSIGN_OR_RETURN(const gid_t gid,
                   OwnerOnHost(linux_part.gid_mappings, device.gid.value_or(0), device));
  if (::mknodat(directory_fd, name.c_str(), node.type | node.mode, node.number) != 0 ||
      ::fchownat(directory_fd, name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fchmodat(directory_fd, name.c_str(), node.mode, 0) != 0)  // whatever the umask
    return SysError(errno, "device " + device.path);
  return OkStatus();
}

}  // namespace

Result<UniqueFd> MakeDeviceNodes(const oci::ContainerConfig& config) {
  if (DevIsBound(config)) return UniqueFd();
  const UniqueFd fs(sys::Fsopen("tmpfs"));
  if (fs.get() < 0) return SysError(-fs.get(), "tmpfs of devices");
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "mode", "755", 0);
  if (rc >= 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return SysError(-rc, "tmpfs of devices");
  UniqueFd tree(sys::Fsmount(fs.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (tree.get() < 0) return SysError(-tree.get(), "tmpfs of devices");
  const std::vector<oci::Device> devices = AllDevices(config);
  for (size_t i = 0; i < devices.size(); ++i) {
    Status made = MakeNode(tree.get(), std::to_string(i), devices[i], config.linux_);
    if (!made && made.error().sys == EPERM) return UniqueFd();
    RETURN_IF_ERROR(made);
  }
  return tree;
}

Status TakeDeviceNodes(PreparedContainerMounts& m) {
  if (!m.device_tree.valid()) return OkStatus();
  const std::string& place = m.where.rootfs;
  int rc =
      sys::MoveMount(m.device_tree.get(), "", AT_FDCWD, place.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  if (rc < 0) return SysError(-rc, "take the devices");
  const size_t count = AllDevices(*m.config).size();
  for (size_t i = 0; i < count; ++i) {
    m.device_nodes.emplace_back(
        sys::OpenTree(m.device_tree.get(), std::to_string(i).c_str(), OPEN_TREE_CLONE));
    if (const int fd = m.device_nodes.back().get(); fd < 0) return SysError(-fd, "take a device");
  }
  if (::umount2(place.c_str(), MNT_DETACH) != 0) return SysError(errno, "put the devices away");
  m.device_tree.reset();
  return OkStatus();
}

Status MakeContainerDevices(PreparedContainerMounts& m) {
  if (DevIsBound(*m.config)) return OkStatus();
  const std::vector<oci::Device> devices = AllDevices(*m.config);
  for (size_t i = 0; i < devices.size(); ++i)
    RETURN_IF_ERROR(
        MakeDevice(m, devices[i], i < m.device_nodes.size() ? m.device_nodes[i].get() : -1));
  for (const auto& link : kLinks) RETURN_IF_ERROR(MakeLink(m, link[0], link[1]));
  return MakeLink(m, "pts/ptmx", "/dev/ptmx");
}

}  // namespace hutch::rootfs
