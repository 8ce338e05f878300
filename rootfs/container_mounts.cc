#include "rootfs/container_mounts.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/container_devices.h"
#include "rootfs/container_mount_options.h"

namespace hutch::rootfs {
namespace {

constexpr unsigned kHere = AT_EMPTY_PATH;

Error MountError(int rc, const oci::ContainerMount& mount) {
  return SysError(
      -rc, "error mounting \"" + mount.source + "\" to rootfs at \"" + mount.destination + "\"");
}

Result<UniqueFd> CloneSource(const oci::ContainerMount& mount, const std::string& bundle,
                             bool all) {
  const std::string path =
      mount.source.starts_with("/") ? mount.source : bundle + "/" + mount.source;
  UniqueFd tree(sys::OpenTree(AT_FDCWD, path.c_str(),
                              OPEN_TREE_CLONE | (all ? static_cast<unsigned>(AT_RECURSIVE) : 0u)));
  if (tree.get() < 0) return MountError(tree.get(), mount);
  return tree;
}

Status SetAttributes(int tree_fd, uint64_t set, uint64_t clear, uint64_t propagation, bool all,
                     const oci::ContainerMount& mount) {
  mount_attr attributes{};
  attributes.attr_set = set;
  attributes.attr_clr = clear;
  attributes.propagation = propagation;
  const int rc = sys::MountSetattr(tree_fd, "", kHere | (all ? AT_RECURSIVE : 0u), &attributes);
  return rc < 0 ? Status(MountError(rc, mount)) : OkStatus();
}

// What the file system says of its own about a failure.
std::string KernelMessage(int fs_fd) {
  char text[512];
  const ssize_t n = ::read(fs_fd, text, sizeof text);
  return n > 0 ? ": " + std::string(Trim({text, static_cast<size_t>(n)})) : "";
}

Result<UniqueFd> NewFilesystem(const oci::ContainerMount& mount, const std::string& type,
                               const ContainerMountOptions& options) {
  const auto fail = [&mount](int rc, int fs_fd) {
    Error error = MountError(rc, mount);
    if (fs_fd >= 0) error.what += KernelMessage(fs_fd);
    return error;
  };
  const UniqueFd fs(sys::Fsopen(type.c_str()));
  if (fs.get() < 0) return fail(fs.get(), -1);
  const std::string source = mount.source.empty() ? type : mount.source;
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "source", source.c_str(), 0);
  for (const std::string& words : options.superblock)
    for (const std::string& word : Split(words, ',')) {
      if (rc < 0) return fail(rc, fs.get());
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      if (equals == std::string::npos)
        rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0);
      else
        rc =
            sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, key.c_str(), word.c_str() + equals + 1, 0);
    }
  if (rc >= 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return fail(rc, fs.get());
  UniqueFd tree(sys::Fsmount(fs.get(), static_cast<unsigned>(options.set)));
  if (tree.get() < 0) return fail(tree.get(), fs.get());
  return tree;
}

// The destination, made when it is not there: a file for a file, else a directory.
Result<UniqueFd> OpenDestination(int root_fd, const oci::ContainerMount& mount, int tree_fd) {
  struct stat st;
  if (::fstat(tree_fd, &st) != 0) return SysError(errno, mount.destination);
  // /proc and /sys of an image may not be links to elsewhere (CVE-2019-16884, CVE-2019-19921).
  const bool strict = mount.type == "proc" || mount.type == "sysfs";
  ASSIGN_OR_RETURN(
      const RootedPath place,
      RootedPath::Make(root_fd, mount.destination, strict ? Links::kNone : Links::kInRoot));
  Result<UniqueFd> there = place.Open(O_PATH);
  if (there || there.error().code != Code::kNotFound) return there;
  if (S_ISDIR(st.st_mode)) return place.MakeDirectories(0755, 0, 0);
  const size_t slash = mount.destination.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    ASSIGN_OR_RETURN(const RootedPath parent,
                     RootedPath::Make(root_fd, mount.destination.substr(0, slash)));
    ASSIGN_OR_RETURN(const UniqueFd made, parent.MakeDirectories(0755, 0, 0));
  }
  ASSIGN_OR_RETURN(const UniqueFd file, place.CreateFile(0644));
  return place.Open(O_PATH);
}

Status Attach(int root_fd, const oci::ContainerMount& mount, int tree_fd) {
  ASSIGN_OR_RETURN(const UniqueFd target, OpenDestination(root_fd, mount, tree_fd));
  const int rc = sys::MoveMount(tree_fd, "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  return rc < 0 ? Status(MountError(rc, mount)) : OkStatus();
}

Status Finish(const oci::ContainerMount& mount, const ContainerMountOptions& options, int tree_fd) {
  if ((options.set_all | options.clear_all) != 0)
    RETURN_IF_ERROR(SetAttributes(tree_fd, options.set_all, options.clear_all, 0, true, mount));
  if (options.propagation != 0)
    RETURN_IF_ERROR(
        SetAttributes(tree_fd, 0, 0, options.propagation, options.propagation_all, mount));
  return OkStatus();
}

bool IsPureV2() {
  struct statfs fs;
  return ::statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

// One v1 hierarchy or the v2 tree of a hybrid host, below the tmpfs at the destination.
Status MountHierarchy(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                      const ContainerMountOptions& options, const std::string& name) {
  oci::ContainerMount one = mount;
  one.destination += "/" + name;
  struct statfs fs;
  const std::string host = "/sys/fs/cgroup/" + name;
  if (::statfs(host.c_str(), &fs) != 0) return SysError(errno, host);
  ContainerMountOptions own;
  own.set = options.set;
  Result<UniqueFd> tree = Error{.what = ""};
  if (fs.f_type == CGROUP2_SUPER_MAGIC) {
    tree = NewFilesystem(one, "cgroup2", own);
  } else if (fs.f_type == CGROUP_SUPER_MAGIC) {
    own.superblock =
        name == "systemd" ? std::vector<std::string>{"none", "name=systemd"} : Split(name, ',');
    tree = NewFilesystem(one, "cgroup", own);
  } else {
    return OkStatus();
  }
  if (!tree) return std::move(tree).error();
  return Attach(m.root.get(), one, tree->get());
}

Status MountCgroup(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                   const ContainerMountOptions& options) {
  if (!m.where.cgroup_namespace) {
    oci::ContainerMount bind = mount;
    bind.source = "/sys/fs/cgroup";
    ASSIGN_OR_RETURN(const UniqueFd tree, CloneSource(bind, "", true));
    RETURN_IF_ERROR(SetAttributes(tree.get(), MOUNT_ATTR_RDONLY | options.set, 0, 0, true, bind));
    return Attach(m.root.get(), bind, tree.get());
  }
  ContainerMountOptions plain;
  plain.set = options.set;
  if (IsPureV2() || mount.type == "cgroup2") {
    ASSIGN_OR_RETURN(const UniqueFd tree, NewFilesystem(mount, "cgroup2", plain));
    return Attach(m.root.get(), mount, tree.get());
  }
  ContainerMountOptions shelf;
  shelf.set = options.set & ~static_cast<uint64_t>(MOUNT_ATTR_RDONLY);
  shelf.superblock = {"mode=755"};
  ASSIGN_OR_RETURN(const UniqueFd tree, NewFilesystem(mount, "tmpfs", shelf));
  RETURN_IF_ERROR(Attach(m.root.get(), mount, tree.get()));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory("/sys/fs/cgroup"));
  for (const std::string& name : names) {
    struct stat st;
    const std::string path = "/sys/fs/cgroup/" + name;
    if (::lstat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
    RETURN_IF_ERROR(MountHierarchy(m, mount, options, name));
  }
  return SetAttributes(tree.get(), options.set, 0, 0, false, mount);
}

Status MountOne(PreparedContainerMounts& m, size_t index) {
  const oci::ContainerMount& mount = m.config->mounts[index];
  ASSIGN_OR_RETURN(ContainerMountOptions options,
                   ReadMountOptions(mount.options, mount.destination));
  if (mount.type == "cgroup" || (mount.type == "cgroup2" && !options.bind))
    return MountCgroup(m, mount, options);
  if (options.copy_up)
    return Error{.code = Code::kUnsupported,
                 .what = "option \"tmpcopyup\" of the mount at " + mount.destination,
                 .field = "mounts"};
  UniqueFd tree;
  if (options.bind || mount.type == "bind") {
    if (m.sources[index].valid()) {
      tree = std::move(m.sources[index]);
    } else {
      ASSIGN_OR_RETURN(tree, CloneSource(mount, m.where.bundle, options.bind_all));
    }
    if ((options.set | options.clear) != 0)
      RETURN_IF_ERROR(SetAttributes(tree.get(), options.set, options.clear, 0, false, mount));
  } else {
    ASSIGN_OR_RETURN(tree, NewFilesystem(mount, mount.type, options));
  }
  RETURN_IF_ERROR(Attach(m.root.get(), mount, tree.get()));
  return Finish(mount, options, tree.get());
}

// A sysctl that is not of a namespace of the container's own would be the host's.
Status CheckSysctl(const std::string& name, const ContainerMountSurroundings& where) {
  std::string dotted = name;
  if (dotted.find('/') != std::string::npos && dotted.find('.') == std::string::npos)
    for (char& c : dotted)
      if (c == '/') c = '.';
  const bool ipc = dotted.starts_with("kernel.msg") || dotted.starts_with("kernel.shm") ||
                   dotted == "kernel.sem" || dotted.starts_with("fs.mqueue.");
  const bool uts = dotted == "kernel.domainname" || dotted == "kernel.hostname";
  const bool traversal = dotted.find("..") != std::string::npos;
  if (!traversal && ((ipc && where.own_ipc) || (uts && where.own_uts) ||
                     (dotted.starts_with("net.") && where.own_network)))
    return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "sysctl \"" + name + "\" is not in a separate kernel namespace",
               .field = "linux.sysctl"};
}

}  // namespace

Result<PreparedContainerMounts> PrepareContainerMounts(const oci::ContainerConfig& config,
                                                       ContainerMountSurroundings where) {
  PreparedContainerMounts m;
  m.config = &config;
  m.where = std::move(where);
  m.sources.resize(config.mounts.size());
  if (!m.where.own_mounts && !config.mounts.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "mounts without a mount namespace",
                 .field = "mounts"};
  for (const auto& [name, value] : config.linux_.sysctl)
    RETURN_IF_ERROR(CheckSysctl(name, m.where));
  struct stat st;
  if (::stat(m.where.rootfs.c_str(), &st) != 0)
    return SysError(errno, "invalid rootfs: " + m.where.rootfs);
  if (!m.where.user_namespace) return m;
  for (size_t i = 0; i < config.mounts.size(); ++i) {
    const oci::ContainerMount& mount = config.mounts[i];
    ASSIGN_OR_RETURN(const ContainerMountOptions options,
                     ReadMountOptions(mount.options, mount.destination));
    if ((!options.bind && mount.type != "bind") || mount.type == "cgroup2") continue;
    Result<UniqueFd> tree = CloneSource(mount, m.where.bundle, options.bind_all);
    if (!tree) {
      if (::geteuid() != 0) continue;  // an ordinary user: the child does it in its own namespace
      return std::move(tree).error();
    }
    RETURN_IF_ERROR(SetAttributes(tree->get(), 0, 0, MS_SLAVE, true, mount));
    m.sources[i] = std::move(*tree);
  }
  return m;
}

Status MakeContainerMounts(PreparedContainerMounts& m) {
  if (!m.where.own_mounts) return OkStatus();
  const char* root = m.where.rootfs.c_str();
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return SysError(errno, "make every mount a slave");
  if (::mount(root, root, nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return SysError(errno, "bind the root " + m.where.rootfs);
  ASSIGN_OR_RETURN(m.root, Open(m.where.rootfs, O_PATH | O_DIRECTORY));
  for (size_t i = 0; i < m.config->mounts.size(); ++i) RETURN_IF_ERROR(MountOne(m, i));
  return MakeContainerDevices(m);
}

Status EnterContainerRoot(PreparedContainerMounts& m) {
  if (!m.where.own_mounts) {
    if (::chroot(m.where.rootfs.c_str()) != 0) return SysError(errno, "chroot");
    return ::chdir("/") == 0 ? OkStatus() : Status(SysError(errno, "chdir"));
  }
  if (::fchdir(m.root.get()) != 0) return SysError(errno, "enter the root");
  if (m.where.no_pivot) {
    if (::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0) return SysError(errno, "move the root");
    if (::chroot(".") != 0) return SysError(errno, "chroot");
  } else {
    if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "pivot_root");
    if (::umount2(".", MNT_DETACH) != 0) return SysError(errno, "unmount the old root");
  }
  m.root.reset();
  return ::chdir("/") == 0 ? OkStatus() : Status(SysError(errno, "chdir"));
}

}  // namespace hutch::rootfs
