// A container's process between the clone and its program: a table of steps. It is this program's
// own copy, single-threaded, so the steps may allocate; each ends the process when it fails, and
// says why to whoever waits: the command that makes it, then the one that starts it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"
#include "oci/json.h"
#include "rootfs/container_mounts.h"
#include "runtime/container_confine.h"
#include "runtime/container_hooks.h"
#include "runtime/container_namespaces.h"

namespace hutch::runtime {

// Complete before the clone.
struct ChildContext {
  const oci::ContainerConfig* config = nullptr;
  const oci::ContainerProcess* process = nullptr;  // config's, or that of exec
  Confinement confinement;
  NamespacePlan namespaces;
  rootfs::PreparedContainerMounts* mounts = nullptr;
  oci::Json state;        // for hooks; the pid comes with the parent's note
  UniqueFd sync;          // to who makes the process
  UniqueFd gate;          // listening; the first process only
  UniqueFd starter;       // accepted there
  int console_fd = -1;    // a connected console socket; -1: the terminal goes over `sync`
  int target_pidfd = -1;  // exec: whose namespaces are joined
  int target_namespaces = 0;
  std::string root;               // exec, without a mount namespace to join: to be taken as "/"
  int joined_by_helper = 0;       // of those, the ones it is in from its birth
  bool cgroup_namespace = false;  // to be taken once the group has been joined
  bool new_keyring = true;
  unsigned preserve_fds = 0;
  unsigned listen_fds = 0;
  oci::ConsoleSize size;
  // What the steps find out.
  bool in_workdir = false;
  std::string program;
  std::vector<std::string> env;
  std::optional<HookRunner> start_hooks;
  UniqueFd listener;
};

// Makes the directory the caller's root; nothing when there is no name. Needs CAP_SYS_CHROOT.
Status TakeRoot(const std::string& directory);

// Runs the steps of a first process, or of one more; does not come back.
[[noreturn]] void RunFirstProcess(ChildContext& context);
[[noreturn]] void RunOneMoreProcess(ChildContext& context);

}  // namespace hutch::runtime
