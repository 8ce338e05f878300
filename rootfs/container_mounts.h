// The mounts of an OCI container, made by its first process in its own mount namespace: from
// config.json to a sealed root. Every destination is resolved inside the root by openat2, and what
// is mounted goes there by descriptor.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"

namespace hutch::rootfs {

struct ContainerMountSurroundings {
  std::string rootfs;  // absolute
  std::string bundle;  // absolute; sources of bind mounts may be relative to it
  bool user_namespace = false;
  bool own_mounts = true;  // a mount namespace of its own; else nothing can be mounted or sealed
  bool no_pivot = false;
  bool cgroup_namespace = false;
  bool running = false;  // its /proc is the container's, and nothing in it is believed
  bool own_network = false, own_ipc = false, own_uts = false;  // namespaces not the host's
};

struct PreparedContainerMounts {
  const oci::ContainerConfig* config = nullptr;  // borrowed
  ContainerMountSurroundings where;
  std::vector<UniqueFd> sources;   // of bind mounts by their index, cloned by who may, finished
  std::vector<std::string> links;  // by the same index: what a link to be copied says
  UniqueFd device_tree;            // nodes made by the parent: see MakeDeviceNodes
  std::vector<UniqueFd> device_nodes;
  UniqueFd root;                   // the mount that becomes "/"
  UniqueFd null;                   // the host's /dev/null, verified, for masked files
  bool late_readonly_dev = false;  // /dev becomes read-only when its devices are there
};

// In the parent, before the clone. Nothing outlives the descriptors. `config` outlives the result.
// kInvalidArgument with `field` for what config.json may not ask for (a sysctl of the host's, a
// mount without a mount namespace), kKernel for a source that is not there.
Result<PreparedContainerMounts> PrepareContainerMounts(const oci::ContainerConfig& config,
                                                       ContainerMountSurroundings where);
// In the child, in this order, with CAP_SYS_ADMIN over its mount namespace. The root becomes "/"
// with the second.
Status MakeContainerMounts(PreparedContainerMounts& mounts);
Status EnterContainerRoot(PreparedContainerMounts& mounts);
// Sysctls, masked and read-only paths, the read-only root, its propagation.
Status SealContainerRoot(PreparedContainerMounts& mounts);

// More mounts for a container that runs: prepared in the parent, made in the container's mount and
// user namespaces, by a process that has nothing else of the container's. kUnsupported for what
// would be made from our own namespaces (only binds and tmpfs are not), kForbidden on procfs.
Result<PreparedContainerMounts> PrepareAddedMounts(const oci::ContainerConfig& config,
                                                   ContainerMountSurroundings where);
Status AddContainerMounts(PreparedContainerMounts& mounts);
// There, too: the topmost mount at each destination, the last one first. kKernel (EINVAL) where
// nothing is mounted.
Status RemoveContainerMounts(const std::vector<oci::ContainerMount>& mounts);

}  // namespace hutch::rootfs
