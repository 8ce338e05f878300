#include "rootfs/container_filesystems.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/container_target.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMembershipBytes = 65536;
constexpr const char* kCgroupRoot = "/sys/fs/cgroup";
// Types whose superblock is the kernel's or shared: "ro" is of the mount alone.
constexpr const char* kKernelTypes[] = {"proc",   "sysfs",  "tmpfs",   "devpts",
                                        "mqueue", "cgroup", "cgroup2", "ramfs"};
// What may be covered below /proc: numbers, as lxcfs has them.
constexpr const char* kCoverable[] = {"/proc/cpuinfo",
                                      "/proc/diskstats",
                                      "/proc/meminfo",
                                      "/proc/stat",
                                      "/proc/swaps",
                                      "/proc/uptime",
                                      "/proc/loadavg",
                                      "/proc/slabinfo",
                                      "/proc/net/dev",
                                      "/proc/sys/kernel/ns_last_pid",
                                      "/proc/sys/crypto/fips_enabled"};

constexpr const char* kContextWord = "context=";

// What the file system says of its own about a failure.
std::string KernelMessage(int fs_fd) {
  char text[512];
  const ssize_t size = ::read(fs_fd, text, sizeof text);
  return size > 0 ? ": " + std::string(Trim({text, static_cast<size_t>(size)})) : "";
}

// 0 or -errno.
int Configure(int fs_fd, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  if (equals == std::string::npos)
    return sys::Fsconfig(fs_fd, FSCONFIG_SET_FLAG, key.c_str(), nullptr, 0);
  std::string value = word.substr(equals + 1);
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  if (quoted && word.starts_with(kContextWord)) value = value.substr(1, value.size() - 2);
  return sys::Fsconfig(fs_fd, FSCONFIG_SET_STRING, key.c_str(), value.c_str(), 0);
}

std::vector<std::string> SuperblockWords(const std::string& type,
                                         const ContainerMountOptions& options) {
  std::vector<std::string> words;
  for (const std::string& given : options.superblock)
    // Labels of SELinux have commas of their own.
    for (std::string& word :
         given.starts_with(kContextWord) ? std::vector<std::string>{given} : Split(given, ','))
      if (!word.empty() && word != "iversion") words.push_back(std::move(word));
  const bool kernels = std::any_of(std::begin(kKernelTypes), std::end(kKernelTypes),
                                   [&type](const char* one) { return type == one; });
  if (!kernels && (options.set & MOUNT_ATTR_RDONLY) != 0) words.push_back("ro");
  return words;
}

std::string PathOfFd(int fd) {
  char text[PATH_MAX];
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), text, sizeof text);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string();
}

// Decided by where the descriptor is, not by how the destination is written.
Status CheckNotInProc(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                      int tree_fd, int target_fd) {
  const auto refuse = [&mount] {
    return Error{
        .code = Code::kForbidden,
        .what = "\"" + mount.destination + "\" cannot be mounted because it is inside /proc",
        .field = "mounts"};
  };
  struct statfs fs {};
  if (m.where.running) {
    if (::fstatfs(target_fd, &fs) != 0) return SysError(errno, "statfs of a target");
    return fs.f_type == PROC_SUPER_MAGIC ? Status(refuse()) : OkStatus();
  }
  const std::string root = PathOfFd(m.root.get());
  std::string path = PathOfFd(target_fd);
  if (root != "/" && path.starts_with(root)) path = path.substr(root.size());
  if (path == "/proc") {
    if (::fstatfs(tree_fd, &fs) != 0) return SysError(errno, "statfs of a mount");
    if (fs.f_type == PROC_SUPER_MAGIC) return OkStatus();
    return refuse();
  }
  if (!path.starts_with("/proc/")) return OkStatus();
  // A process's own entries appear as numbers: /proc/net is /proc/<pid>/net.
  for (const char* one : kCoverable)
    if (path == one || CleanPath(mount.destination) == one) return OkStatus();
  return refuse();
}

// The groups of this process: {hierarchy ("" for v2), path}.
Result<std::vector<std::pair<std::string, std::string>>> OwnGroups() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/cgroup", kMembershipBytes));
  std::vector<std::pair<std::string, std::string>> groups;
  for (const std::string& line : Split(text, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    groups.emplace_back(line.substr(first + 1, second - first - 1), line.substr(second + 1));
  }
  return groups;
}

// The name of a hierarchy's directory: "name=systemd" is systemd, v2 beside others unified.
std::string HierarchyName(const std::string& controllers) {
  if (controllers.empty()) return "unified";
  return controllers.starts_with("name=") ? controllers.substr(5) : controllers;
}

bool IsPureV2() {
  struct statfs fs {};
  return ::statfs(kCgroupRoot, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

// One hierarchy's view: the namespace's root is the container's group; without one the group's own
// directory of the host's tree.
Result<UniqueFd> HierarchyTree(const PreparedContainerMounts& m, const oci::ContainerMount& mount,
                               const std::string& controllers, const std::string& group,
                               const std::string& host, const ContainerMountOptions& options) {
  ContainerMountOptions own;
  own.set = options.set;
  if (m.where.cgroup_namespace) {
    own.superblock = options.superblock;
    if (controllers.empty()) return NewFilesystem(mount, "cgroup2", own);
    own.superblock = Split(controllers, ',');
    if (controllers.starts_with("name=")) own.superblock.push_back("none");
    return NewFilesystem(mount, "cgroup", own);
  }
  const std::string path = host + CleanPath(group);
  UniqueFd tree(sys::OpenTree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE));
  if (tree.get() < 0) return MountError(-tree.get(), mount);
  RETURN_IF_ERROR(ChangeMount(
      tree.get(), {.set = options.set, .clear = options.clear, .propagation = MS_PRIVATE}, mount));
  return tree;
}

Status LinkControllers(int shelf_fd, const std::string& name) {
  if (name.find(',') == std::string::npos) return OkStatus();
  for (const std::string& one : Split(name, ','))
    if (::symlinkat(name.c_str(), shelf_fd, one.c_str()) != 0 && errno != EEXIST)
      return SysError(errno, "link of controller " + one);
  return OkStatus();
}

Status MountHybrid(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                   const ContainerMountOptions& options) {
  ContainerMountOptions shelf;
  shelf.set = options.set & ~static_cast<uint64_t>(MOUNT_ATTR_RDONLY);
  shelf.superblock = {"mode=755"};
  ASSIGN_OR_RETURN(const UniqueFd tree, NewFilesystem(mount, "tmpfs", shelf));
  RETURN_IF_ERROR(AttachMount(m, mount, tree.get()));
  ASSIGN_OR_RETURN(const auto groups, OwnGroups());
  for (const auto& [controllers, group] : groups) {
    oci::ContainerMount one = mount;
    const std::string name = HierarchyName(controllers);
    const std::string host = std::string(kCgroupRoot) + "/" + name;
    if (!PathExists(host)) continue;  // not mounted by the host: there is nothing to show
    ASSIGN_OR_RETURN(const UniqueFd hierarchy,
                     HierarchyTree(m, one, controllers, group, host, options));
    ASSIGN_OR_RETURN(const UniqueFd target,
                     OpenOrMakeTarget(tree.get(), name, TargetKind::kDirectory));
    const int rc = sys::MoveMount(hierarchy.get(), "", target.get(), "",
                                  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
    if (rc < 0) return MountError(-rc, one);
    RETURN_IF_ERROR(LinkControllers(tree.get(), name));
  }
  return ChangeMount(tree.get(), {.set = options.set}, mount);
}

}  // namespace

void AddMountLabel(const std::string& label, const std::string& type,
                   ContainerMountOptions* options) {
  if (label.empty() || type == "proc" || type == "sysfs" || type == "mqueue") return;
  for (const std::string& word : options->superblock)
    if (word.starts_with(kContextWord)) return;
  options->superblock.push_back(kContextWord + label);
}

Error MountError(int sys, const oci::ContainerMount& mount) {
  return SysError(sys, "error mounting \"" + (mount.source.empty() ? mount.type : mount.source) +
                           "\" to rootfs at \"" + mount.destination + "\"");
}

Result<UniqueFd> NewFilesystem(const oci::ContainerMount& mount, const std::string& type,
                               const ContainerMountOptions& options) {
  if (type.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "the mount at " + mount.destination + " has no type",
                 .field = "mounts"};
  const UniqueFd fs(sys::Fsopen(type.c_str()));
  if (fs.get() < 0) return MountError(-fs.get(), mount);
  const std::string source = mount.source.empty() ? type : mount.source;
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "source", source.c_str(), 0);
  for (const std::string& word : SuperblockWords(type, options))
    if (rc >= 0) rc = Configure(fs.get(), word);
  if (rc >= 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) {
    Error error = MountError(-rc, mount);
    error.what += KernelMessage(fs.get());
    return error;
  }
  UniqueFd tree(sys::Fsmount(fs.get(), static_cast<unsigned>(options.set)));
  if (tree.get() < 0) return MountError(-tree.get(), mount);
  return tree;
}

Status ChangeMount(int tree_fd, const MountChange& change, const oci::ContainerMount& mount) {
  if ((change.set | change.clear | change.propagation) == 0) return OkStatus();
  mount_attr attributes{};
  attributes.attr_set = change.set;
  attributes.attr_clr = change.clear;
  attributes.propagation = change.propagation;
  const int rc = sys::MountSetattr(
      tree_fd, "", AT_EMPTY_PATH | (change.all ? static_cast<unsigned>(AT_RECURSIVE) : 0u),
      &attributes);
  return rc < 0 ? Status(MountError(-rc, mount)) : OkStatus();
}

Status AttachMount(PreparedContainerMounts& m, const oci::ContainerMount& mount, int tree_fd,
                   LastLink last) {
  struct stat st {};
  if (::fstat(tree_fd, &st) != 0) return SysError(errno, mount.destination);
  const std::string path = CleanPath(mount.destination);
  // /proc and /sys of an image may not be links to elsewhere (CVE-2019-19921, CVE-2023-28642).
  if (mount.type == "proc" || mount.type == "sysfs") {
    ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(m.root.get(), path, Links::kNone));
    const Result<struct stat> there = place.Stat();
    if (there && !S_ISDIR(there->st_mode))
      return Error{
          .code = Code::kForbidden,
          .what = mount.destination + ": " + mount.type + " must be mounted on ordinary directory"};
    if (!there && there.error().sys != ENOENT) return there.error();
  }
  const TargetKind kind = S_ISDIR(st.st_mode) ? TargetKind::kDirectory : TargetKind::kFile;
  ASSIGN_OR_RETURN(UniqueFd target, OpenOrMakeTarget(m.root.get(), path, kind, last));
  RETURN_IF_ERROR(CheckNotInProc(m, mount, tree_fd, target.get()));
  const int rc = sys::MoveMount(tree_fd, "", target.get(), "",
                                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
  if (rc < 0) return MountError(-rc, mount);
  if (path != "/") return OkStatus();
  ASSIGN_OR_RETURN(m.root, Duplicate(tree_fd));  // what follows goes into the new root
  return OkStatus();
}

Result<UniqueFd> HostSysfs(const oci::ContainerMount& mount) {
  constexpr const char* kSys = "/sys";
  const unsigned depth = ::geteuid() == 0 ? 0 : static_cast<unsigned>(AT_RECURSIVE);
  UniqueFd tree(sys::OpenTree(AT_FDCWD, kSys, OPEN_TREE_CLONE | depth));
  if (tree.get() < 0) return MountError(-tree.get(), mount);
  struct statfs fs {};
  if (::fstatfs(tree.get(), &fs) != 0) return SysError(errno, kSys);
  if (fs.f_type != SYSFS_MAGIC)
    return Error{.code = Code::kForbidden, .what = std::string(kSys) + " is no sysfs"};
  RETURN_IF_ERROR(ChangeMount(
      tree.get(),
      {.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
       .propagation = MS_PRIVATE,
       .all = true},
      mount));
  return tree;
}

Status MountCgroups(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                    const ContainerMountOptions& given) {
  ContainerMountOptions options = given;
  options.set |= given.set_all;  // nothing is below
  options.clear |= given.clear_all;
  const bool pure = IsPureV2();
  const bool hybrid = mount.type == "cgroup" && !pure;
  if (!options.superblock.empty() && (hybrid || !m.where.cgroup_namespace))
    return MountError(EINVAL, mount);
  if (hybrid) return MountHybrid(m, mount, options);
  ASSIGN_OR_RETURN(const auto groups, OwnGroups());
  for (const auto& [controllers, group] : groups) {
    if (!controllers.empty()) continue;
    const std::string host = std::string(kCgroupRoot) + (pure ? "" : "/unified");
    ASSIGN_OR_RETURN(const UniqueFd tree,
                     HierarchyTree(m, mount, controllers, group, host, options));
    return AttachMount(m, mount, tree.get());
  }
  return Error{.code = Code::kUnsupported, .what = "no cgroup v2 tree for " + mount.destination};
}

}  // namespace hutch::rootfs
