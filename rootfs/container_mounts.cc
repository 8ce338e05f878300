#include "rootfs/container_mounts.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/container_devices.h"
#include "rootfs/container_filesystems.h"
#include "rootfs/container_idmap.h"
#include "rootfs/container_mount_options.h"
#include "rootfs/container_sysctl.h"
#include "rootfs/container_target.h"
#include "rootfs/tree_copy.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMountTableBytes = 16u << 20;

LastLink LastOf(const ContainerMountOptions& options) {
  return options.link_target ? LastLink::kKeep : LastLink::kFollow;
}

bool IsBind(const oci::ContainerMount& mount, const ContainerMountOptions& options) {
  return options.bind || mount.type == "bind";
}

// A mount that says nothing of propagation has that of the root where it is recursive. An
// unbindable one could not be covered any more: that comes last.
Result<ContainerMountOptions> OptionsOf(const PreparedContainerMounts& m,
                                        const oci::ContainerMount& mount) {
  ASSIGN_OR_RETURN(ContainerMountOptions options,
                   ReadMountOptions(mount.options, mount.destination));
  const std::string& word = m.config->linux_.rootfs_propagation;
  if (options.propagation != 0 || word.empty()) return options;
  ASSIGN_OR_RETURN(const ContainerMountOptions root, ReadMountOptions({word}, "/"));
  if (!root.propagation_all || root.propagation == MS_UNBINDABLE) return options;
  options.propagation = root.propagation;
  options.propagation_all = true;
  return options;
}

// Mounts of the container's are to reach the host: then "/" stays as shared as it is.
bool RootIsShared(const PreparedContainerMounts& m) {
  const std::string& word = m.config->linux_.rootfs_propagation;
  return word == "shared" || word == "rshared";
}

std::string SourceOf(const PreparedContainerMounts& m, const oci::ContainerMount& mount) {
  return mount.source.starts_with("/") ? mount.source : m.where.bundle + "/" + mount.source;
}

// What the container mounts in it is to reach the host. Never from a user namespace: the kernel
// lets nothing of one through between mount namespaces either.
bool ReachesHost(const PreparedContainerMounts& m, const ContainerMountOptions& options) {
  if (m.where.user_namespace) return false;
  if (RootIsShared(m)) return true;
  return options.propagation == MS_SHARED && (options.propagation_all || !options.bind_all);
}

Result<UniqueFd> CloneSource(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                             const ContainerMountOptions& options) {
  unsigned flags = OPEN_TREE_CLONE;
  if (options.bind_all) flags |= static_cast<unsigned>(AT_RECURSIVE);
  if (options.link_source) flags |= static_cast<unsigned>(AT_SYMLINK_NOFOLLOW);
  UniqueFd tree(sys::OpenTree(AT_FDCWD, SourceOf(m, mount).c_str(), flags));
  if (tree.get() < 0) return MountError(-tree.get(), mount);
  return tree;
}

// What the link that is the source says; empty when it is none.
Result<std::string> ReadSourceLink(const PreparedContainerMounts& m,
                                   const oci::ContainerMount& mount) {
  char text[PATH_MAX];
  const ssize_t size = ::readlink(SourceOf(m, mount).c_str(), text, sizeof text);
  if (size < 0 && errno == EINVAL) return std::string();
  if (size < 0) return MountError(errno, mount);
  if (static_cast<size_t>(size) == sizeof text) return MountError(ENAMETOOLONG, mount);
  return std::string(text, static_cast<size_t>(size));
}

// Where a mount would be: the same link. It is for the container to follow.
Status CopyLink(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                const std::string& text) {
  const std::string path = CleanPath(mount.destination);
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  if (name.empty()) return MountError(EBUSY, mount);
  ASSIGN_OR_RETURN(const UniqueFd parent, OpenOrMakeTarget(m.root.get(), path.substr(0, slash + 1),
                                                           TargetKind::kDirectory));
  if (::symlinkat(text.c_str(), parent.get(), name.c_str()) == 0) return OkStatus();
  if (errno != EEXIST) return MountError(errno, mount);
  char there[PATH_MAX];
  const ssize_t size = ::readlinkat(parent.get(), name.c_str(), there, sizeof there);
  if (size >= 0 && text == std::string(there, static_cast<size_t>(size))) return OkStatus();
  return MountError(EEXIST, mount);
}

Status MapOwners(const PreparedContainerMounts& m, const oci::ContainerMount& mount, bool all,
                 int tree_fd) {
  const oci::ContainerLinux& container = m.config->linux_;
  const bool own = !mount.uid_mappings.empty() || !mount.gid_mappings.empty();
  ASSIGN_OR_RETURN(const UniqueFd space,
                   MakeMappingNamespace(own ? mount.uid_mappings : container.uid_mappings,
                                        own ? mount.gid_mappings : container.gid_mappings));
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<uint64_t>(space.get());
  const int rc = sys::MountSetattr(
      tree_fd, "", AT_EMPTY_PATH | (all ? static_cast<unsigned>(AT_RECURSIVE) : 0u), &attributes);
  if (rc >= 0) return OkStatus();
  Error error = MountError(-rc, mount);
  error.what += " (id-mapped)";
  return error;
}

Status FinishTree(const oci::ContainerMount& mount, const ContainerMountOptions& options,
                  int tree_fd) {
  RETURN_IF_ERROR(ChangeMount(
      tree_fd, {.set = options.set_all, .clear = options.clear_all, .all = true}, mount));
  return ChangeMount(tree_fd, {.propagation = options.propagation, .all = options.propagation_all},
                     mount);
}

// A bind mount, detached and finished; where: by the parent when the child may not.
Result<UniqueFd> BindTree(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                          const ContainerMountOptions& options) {
  ASSIGN_OR_RETURN(UniqueFd tree, CloneSource(m, mount, options));
  // The child's own clones are slaves by what it did to "/".
  if (!ReachesHost(m, options))
    RETURN_IF_ERROR(ChangeMount(tree.get(), {.propagation = MS_SLAVE, .all = true}, mount));
  if (options.idmap || !mount.uid_mappings.empty() || !mount.gid_mappings.empty())
    RETURN_IF_ERROR(MapOwners(m, mount, options.idmap_all, tree.get()));
  RETURN_IF_ERROR(ChangeMount(tree.get(), {.set = options.set, .clear = options.clear}, mount));
  RETURN_IF_ERROR(FinishTree(mount, options, tree.get()));
  return tree;
}

// The mode of the directory that is covered; empty when there is none yet.
Result<std::string> ModeOfCovered(const PreparedContainerMounts& m,
                                  const oci::ContainerMount& mount) {
  ASSIGN_OR_RETURN(const RootedPath place,
                   RootedPath::Make(m.root.get(), CleanPath(mount.destination)));
  const Result<UniqueFd> there = place.Open(O_PATH);
  if (!there) {
    if (there.error().sys == ENOENT) return std::string();
    return there.error();
  }
  struct stat st {};
  if (::fstat(there->get(), &st) != 0) return SysError(errno, mount.destination);
  char mode[16];
  std::snprintf(mode, sizeof mode, "mode=%o", st.st_mode & 07777u);
  return std::string(mode);
}

// A tmpfs has the mode of what it covers unless one is asked for, and with tmpcopyup what is in it.
Status MountTmpfs(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                  ContainerMountOptions options) {
  ASSIGN_OR_RETURN(const std::string mode, ModeOfCovered(m, mount));
  const bool named = std::any_of(options.superblock.begin(), options.superblock.end(),
                                 [](const std::string& word) { return word.starts_with("mode="); });
  if (!named && !mode.empty()) options.superblock.push_back(mode);
  const LastLink last = LastOf(options);
  const uint64_t readonly = options.set & MOUNT_ATTR_RDONLY;
  options.set &= ~readonly;
  ASSIGN_OR_RETURN(const UniqueFd tree, NewFilesystem(mount, "tmpfs", options));
  if (options.copy_up) {
    ASSIGN_OR_RETURN(
        const UniqueFd target,
        OpenOrMakeTarget(m.root.get(), CleanPath(mount.destination), TargetKind::kDirectory, last));
    ASSIGN_OR_RETURN(const UniqueFd from, OpenAt(target.get(), ".", O_RDONLY | O_DIRECTORY));
    ASSIGN_OR_RETURN(const UniqueFd to, OpenAt(tree.get(), ".", O_RDONLY | O_DIRECTORY));
    RETURN_IF_ERROR(CopyTree({.source = from.get(), .target = to.get(), .by = CopyBy::kContainer}));
  }
  RETURN_IF_ERROR(AttachMount(m, mount, tree.get(), last));
  if (readonly != 0 && CleanPath(mount.destination) == "/dev")
    m.late_readonly_dev = true;  // devices are made in it first
  else
    RETURN_IF_ERROR(ChangeMount(tree.get(), {.set = readonly}, mount));
  return FinishTree(mount, options, tree.get());
}

Error NotForThis(const char* option, const oci::ContainerMount& mount) {
  return Error{.code = Code::kUnsupported,
               .what = std::string("option \"") + option + "\" of the mount at " +
                       mount.destination + ", which is no bind mount",
               .field = "mounts"};
}

// The kernel refuses it to a user namespace without a network of its own.
bool NeedsHostSysfs(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                    const ContainerMountOptions& options) {
  return mount.type == "sysfs" && m.where.user_namespace && !m.where.own_network &&
         ((options.set | options.set_all) & MOUNT_ATTR_RDONLY) != 0;
}

Status MountOne(PreparedContainerMounts& m, size_t index) {
  const oci::ContainerMount& mount = m.config->mounts[index];
  ASSIGN_OR_RETURN(ContainerMountOptions options, OptionsOf(m, mount));
  const LastLink last = LastOf(options);
  if (!m.links[index].empty()) return CopyLink(m, mount, m.links[index]);
  if (m.sources[index].valid()) return AttachMount(m, mount, m.sources[index].get(), last);
  if (IsBind(mount, options)) {
    ASSIGN_OR_RETURN(const UniqueFd tree, BindTree(m, mount, options));
    return AttachMount(m, mount, tree.get(), last);
  }
  if (options.idmap) return NotForThis("idmap", mount);
  if (options.copy_link) return NotForThis("copy-symlink", mount);
  if (options.link_source) return NotForThis("src-nofollow", mount);
  if (mount.type == "cgroup" || mount.type == "cgroup2") return MountCgroups(m, mount, options);
  AddMountLabel(m.config->linux_.mount_label, mount.type, &options);
  if (mount.type == "tmpfs") return MountTmpfs(m, mount, options);
  Result<UniqueFd> tree = NeedsHostSysfs(m, mount, options)
                              ? HostSysfs(mount)
                              : NewFilesystem(mount, mount.type, options);
  if (!tree) return std::move(tree).error();
  RETURN_IF_ERROR(AttachMount(m, mount, tree->get(), last));
  return FinishTree(mount, options, tree->get());
}

// Where the mount that holds `path` is attached.
Result<std::string> MountPointOf(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string table, ReadFile("/proc/self/mountinfo", kMountTableBytes));
  struct statx st {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_MNT_ID, &st) != 0) return SysError(errno, path);
  const std::string id = std::to_string(st.stx_mnt_id);
  for (const std::string& line : Split(table, '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    if (fields.size() > 4 && fields[0] == id) return fields[4];
  }
  return Error{.code = Code::kNotFound, .what = "the mount of " + path};
}

Status SetPropagations(const PreparedContainerMounts& m) {
  if (!RootIsShared(m)) {
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0) return OkStatus();
    return SysError(errno, "make every mount a slave");
  }
  // The root's own mount must not appear on the host.
  ASSIGN_OR_RETURN(const std::string point, MountPointOf(m.where.rootfs));
  if (::mount(nullptr, point.c_str(), nullptr, MS_PRIVATE, nullptr) != 0)
    return SysError(errno, "make " + point + " private");
  return OkStatus();
}

// Cloned detached and attached where it is, so that hooks find the container's mounts there.
Status AttachRoot(PreparedContainerMounts& m) {
  const std::string& path = m.where.rootfs;
  m.root = UniqueFd(sys::OpenTree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | AT_RECURSIVE));
  if (m.root.get() < 0) return SysError(-m.root.get(), "clone the root " + path);
  // Without this the root, a peer of the host's, could not be entered.
  RETURN_IF_ERROR(ChangeMount(m.root.get(), {.propagation = MS_SLAVE}, {}));
  if (m.config->linux_.rootfs_propagation == "rprivate")
    RETURN_IF_ERROR(ChangeMount(m.root.get(), {.propagation = MS_PRIVATE, .all = true}, {}));
  const int rc = sys::MoveMount(m.root.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  return rc < 0 ? Status(SysError(-rc, "attach the root " + path)) : OkStatus();
}

// A host's procfs and sysfs that stay mounted beside a root that was only moved could be unmasked.
Status UnmountHostViews(const PreparedContainerMounts& m) {
  ASSIGN_OR_RETURN(const std::string table, ReadFile("/proc/self/mountinfo", kMountTableBytes));
  for (const std::string& line : Split(table, '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 7 || dash == fields.end() || dash + 1 == fields.end()) continue;
    const std::string& point = fields[4];
    const std::string& type = *(dash + 1);
    if ((type != "proc" && type != "sysfs") || point.starts_with(m.where.rootfs + "/")) continue;
    if (::umount2(point.c_str(), MNT_DETACH) != 0 && errno != EINVAL && errno != EPERM &&
        errno != ENOENT)
      return SysError(errno, "unmount " + point);
  }
  return OkStatus();
}

// Taken while the host's /dev is in reach: nothing of the container's is trusted to be the null
// device (CVE-2025-31133).
Status TakeNull(PreparedContainerMounts& m) {
  if (m.config->linux_.masked_paths.empty()) return OkStatus();
  m.null = UniqueFd(sys::OpenTree(AT_FDCWD, "/dev/null", OPEN_TREE_CLONE));
  if (m.null.get() < 0) return SysError(-m.null.get(), "clone /dev/null");
  struct stat st {};
  if (::fstat(m.null.get(), &st) != 0) return SysError(errno, "/dev/null");
  if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
    return Error{.code = Code::kForbidden, .what = "/dev/null is not the null device"};
  // Its inode is the host's: a chmod inside would be one of the host's /dev/null.
  return ChangeMount(m.null.get(),
                     {.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC}, {});
}

Status CheckRoot(const PreparedContainerMounts& m) {
  struct stat st {};
  if (::stat(m.where.rootfs.c_str(), &st) != 0)
    return SysError(errno, "invalid rootfs: " + m.where.rootfs);
  if (!S_ISDIR(st.st_mode) || CleanPath(m.where.rootfs) == "/")
    return Error{.code = Code::kInvalidArgument,
                 .what = "invalid rootfs: " + m.where.rootfs,
                 .field = "root.path"};
  return OkStatus();
}

// What the child's user namespace could not reach, or not map, and what is to stay the host's peer.
Status PrepareMount(PreparedContainerMounts& m, size_t index) {
  const oci::ContainerMount& mount = m.config->mounts[index];
  ASSIGN_OR_RETURN(const ContainerMountOptions options, OptionsOf(m, mount));
  if (NeedsHostSysfs(m, mount, options) && ::geteuid() == 0) {
    ASSIGN_OR_RETURN(m.sources[index], HostSysfs(mount));
    return OkStatus();
  }
  if (!IsBind(mount, options)) return OkStatus();
  if (options.copy_link) {
    ASSIGN_OR_RETURN(m.links[index], ReadSourceLink(m, mount));
    if (!m.links[index].empty()) return OkStatus();
  }
  const bool mapped = options.idmap || !mount.uid_mappings.empty();
  const bool peer = ReachesHost(m, options) && !RootIsShared(m);
  if (!m.where.user_namespace && !m.where.running && !mapped && !peer) return OkStatus();
  Result<UniqueFd> tree = BindTree(m, mount, options);
  if (tree)
    m.sources[index] = std::move(*tree);
  else if (::geteuid() == 0 || mapped ||
           m.where.running)  // an ordinary user's child does it itself
    return std::move(tree).error();
  return OkStatus();
}

}  // namespace

Result<PreparedContainerMounts> PrepareContainerMounts(const oci::ContainerConfig& config,
                                                       ContainerMountSurroundings where) {
  PreparedContainerMounts m;
  m.config = &config;
  m.where = std::move(where);
  m.sources.resize(config.mounts.size());
  m.links.resize(config.mounts.size());
  if (!m.where.own_mounts && !config.mounts.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "mounts without a mount namespace",
                 .field = "mounts"};
  for (const auto& [name, value] : config.linux_.sysctl)
    RETURN_IF_ERROR(CheckSysctl(name, value, m.where));
  RETURN_IF_ERROR(CheckRoot(m));
  for (size_t i = 0; i < config.mounts.size(); ++i) RETURN_IF_ERROR(PrepareMount(m, i));
  if (m.where.user_namespace && m.where.own_mounts && ::geteuid() == 0) {
    ASSIGN_OR_RETURN(m.device_tree, MakeDeviceNodes(config));
  }
  return m;
}

Result<PreparedContainerMounts> PrepareAddedMounts(const oci::ContainerConfig& config,
                                                   ContainerMountSurroundings where) {
  PreparedContainerMounts m;
  m.config = &config;
  m.where = std::move(where);
  m.where.running = true;
  m.sources.resize(config.mounts.size());
  m.links.resize(config.mounts.size());
  for (size_t i = 0; i < config.mounts.size(); ++i) {
    const oci::ContainerMount& mount = config.mounts[i];
    ASSIGN_OR_RETURN(const ContainerMountOptions options, OptionsOf(m, mount));
    // What is there could change while it is copied.
    if (!IsBind(mount, options) && (mount.type != "tmpfs" || options.copy_up))
      return Error{.code = Code::kUnsupported,
                   .what = "the mount at " + mount.destination +
                           ": a container that runs gets bind mounts and empty tmpfs only",
                   .field = "mounts"};
    RETURN_IF_ERROR(PrepareMount(m, i));
  }
  return m;
}

Status AddContainerMounts(PreparedContainerMounts& m) {
  ::umask(0);
  ASSIGN_OR_RETURN(m.root, Open("/", O_PATH | O_DIRECTORY));
  for (size_t i = 0; i < m.config->mounts.size(); ++i) RETURN_IF_ERROR(MountOne(m, i));
  return OkStatus();
}

// By the directory's descriptor and a name: whoever changes the tree meanwhile leads it nowhere.
Status RemoveContainerMounts(const std::vector<oci::ContainerMount>& mounts) {
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
    ASSIGN_OR_RETURN(const RootedPath place,
                     RootedPath::Make(root.get(), CleanPath(mount->destination)));
    std::string name;
    ASSIGN_OR_RETURN(const UniqueFd parent, place.OpenParent(&name));
    if (::fchdir(parent.get()) != 0) return SysError(errno, mount->destination);
    if (::umount2(name.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
      return SysError(errno, "unmount " + mount->destination);
  }
  return OkStatus();
}

Status MakeContainerMounts(PreparedContainerMounts& m) {
  if (!m.where.own_mounts) return OkStatus();
  const mode_t umask_before = ::umask(0);
  const auto all = [&m]() -> Status {
    RETURN_IF_ERROR(SetPropagations(m));
    RETURN_IF_ERROR(TakeDeviceNodes(m));
    RETURN_IF_ERROR(AttachRoot(m));
    for (size_t i = 0; i < m.config->mounts.size(); ++i) RETURN_IF_ERROR(MountOne(m, i));
    return MakeContainerDevices(m);
  };
  Status made = all();
  ::umask(umask_before);
  return made;
}

Status EnterContainerRoot(PreparedContainerMounts& m) {
  if (!m.where.own_mounts) {
    if (::chroot(m.where.rootfs.c_str()) != 0) return SysError(errno, "chroot");
    return ::chdir("/") == 0 ? OkStatus() : Status(SysError(errno, "chdir"));
  }
  RETURN_IF_ERROR(TakeNull(m));
  if (m.where.no_pivot) RETURN_IF_ERROR(UnmountHostViews(m));
  if (::fchdir(m.root.get()) != 0) return SysError(errno, "enter the root");
  if (m.where.no_pivot) {
    const int rc = sys::MoveMount(m.root.get(), "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH);
    if (rc < 0) return SysError(-rc, "move the root");
    if (::chroot(".") != 0) return SysError(errno, "chroot");
  } else {
    ASSIGN_OR_RETURN(const UniqueFd old_root, Open("/", O_PATH | O_DIRECTORY));
    if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "pivot_root");
    // What is unmounted here must not be unmounted on the host.
    if (RootIsShared(m))
      RETURN_IF_ERROR(ChangeMount(old_root.get(), {.propagation = MS_SLAVE, .all = true}, {}));
    if (::fchdir(old_root.get()) != 0) return SysError(errno, "enter the old root");
    if (::umount2(".", MNT_DETACH) != 0) return SysError(errno, "unmount the old root");
  }
  return ::chdir("/") == 0 ? OkStatus() : Status(SysError(errno, "chdir"));
}

}  // namespace hutch::rootfs
