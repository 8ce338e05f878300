// The life of an OCI container, for hutch-oci: made, started, signalled, removed. Each call is one
// command of one short-lived process; what lasts is in the container's directory. The container's
// first process is the user's own: there is no agent. Steps: container_create.cc,
// container_init.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "cgroups/container_group.h"
#include "oci/container_config.h"
#include "runtime/container_state.h"

namespace hutch::runtime {

// Where containers of this caller live, and how.
struct ContainerHost {
  std::string root;  // absolute; a directory for each container in it
  cgroups::GroupManager manager = cgroups::GroupManager::kCgroupfs;
  cgroups::GroupUser user = cgroups::GroupUser::kRoot;
  bool no_group = false;                         // --cgroup-manager=disabled
  std::function<void(const std::string&)> warn;  // what went wrong without being an error
  std::function<void(const std::string&)> debug = nullptr;  // --debug: what was done
};

struct CreateRequest {
  std::string id;
  std::string bundle;          // absolute
  std::string config_file;     // absolute; normally <bundle>/config.json
  std::string console_socket;  // where the terminal goes; empty: to the caller
  oci::ConsoleSize size;       // of the caller's terminal, for a process that has no consoleSize
  std::string pid_file;
  std::string pidfd_socket;   // gets a descriptor of the first process; empty: nobody does
  unsigned preserve_fds = 0;  // descriptors 3 .. 3 + n - 1 stay open in the program
  unsigned listen_fds = 0;    // the first of them, as sd_listen_fds(3) has them
  bool no_pivot = false;
  bool no_new_keyring = false;
};

struct CreatedContainer {
  Pidfd init;
  UniqueFd terminal;  // the master, when config.json asks for one and there is no console socket
};

// Everything but the program: kCreated afterwards. A failure leaves the host as it was. Errors with
// the JSON path in `field` where config.json is at fault.
Result<CreatedContainer> CreateContainer(const ContainerHost& host, const CreateRequest& request);

// Lets the first process execute its program; the error is that of the execve, or of a
// startContainer hook. kBadState when it is not kCreated.
Status StartContainer(const ContainerHost& host, const std::string& id);

struct ContainerView {
  ContainerRecord record;
  ContainerStatus status = ContainerStatus::kStopped;
};
Result<ContainerView> ViewContainer(const ContainerHost& host, const std::string& id);

enum class SignalTo { kFirstProcess, kAllProcesses };
// kBadState ("container not running") for one that is stopped. A SIGKILL ends every process of a
// container without a pid namespace of its own, whether the first one lives or not.
Status SignalContainer(const ContainerHost& host, const std::string& id, int signal, SignalTo to);

enum class DeleteMode { kStoppedOnly, kForce };
// Group, poststop hooks, directory. With kForce every process is killed first, and a container that
// is not there is success.
Status DeleteContainer(const ContainerHost& host, const std::string& id, DeleteMode mode);

Status PauseContainer(const ContainerHost& host, const std::string& id);
Status ResumeContainer(const ContainerHost& host, const std::string& id);
Result<std::vector<pid_t>> ContainerPids(const ContainerHost& host, const std::string& id);
Status UpdateContainer(const ContainerHost& host, const std::string& id,
                       const oci::ContainerResources& resources);
Result<cgroups::ContainerGroup> OpenContainerGroup(const ContainerHost& host,
                                                   const std::string& id);

// The mounts of a JSON file (an array, as `mounts` of config.json) for a container that lives: see
// rootfs/container_mounts.h for which. A failure leaves those before it. Needs CAP_SYS_ADMIN over
// the sources' mount namespace.
Status AddMounts(const ContainerHost& host, const std::string& id, const std::string& file);
Status RemoveMounts(const ContainerHost& host, const std::string& id, const std::string& file);

struct ExecRequest {
  std::string process_file;  // --process; empty: the container's own process with what follows
  std::vector<std::string> args;
  std::vector<std::string> env;           // added
  std::vector<std::string> capabilities;  // added to all sets
  std::vector<uint32_t> additional_gids;
  std::optional<std::string> cwd, apparmor, process_label;
  std::optional<std::pair<uint32_t, std::optional<uint32_t>>> user;  // uid, gid
  std::optional<bool> no_new_privileges, terminal;
  oci::ConsoleSize size;             // of a terminal whose size --process leaves open
  std::vector<std::string> cgroups;  // --cgroup
  std::string console_socket, pid_file, pidfd_socket;
  unsigned preserve_fds = 0;
  bool ignore_paused = false;
};
// The process is executed when this comes back. Its confinement is the container's own, as it was
// at the creation. It is the caller's child.
Result<CreatedContainer> ExecInContainer(const ContainerHost& host, const std::string& id,
                                         const ExecRequest& request);

// Exit code of a child as a shell would say it, once it has ended: 128 + n for signal n.
Result<int> ReapExitCode(const Pidfd& process);

// Makes sure that the program which runs is no file of the host's that a container could open for
// writing by /proc/<pid>/exe (CVE-2019-5736): executes itself anew from a read-only clone of its
// mount, or from sealed memory, unless it is so already or nobody it starts could write it: because
// the caller could not, or because the container's user namespace, as `config_file` has it, does
// not know the file's owner.
Status ProtectOwnProgram(char** argv, const std::string& config_file);

}  // namespace hutch::runtime
