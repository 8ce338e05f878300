// The cgroup subtree that belongs to hutchd, and in it one group per sandbox:
//
//   <parent>/daemon                 hutchd itself (v2, when the parent may hold no processes)
//   <parent>/spawner-<pid>-<n>      a spawn server; never killed
//   <parent>/sandboxes/<id>/agent   PID 1 of the sandbox, alone
//   <parent>/sandboxes/<id>/work    limits of the tenant; one child per process: work/<process>
//
// Mode kV2: cgroup v2 with its controllers. Mode kHybrid: the v2 tree groups, freezes and kills;
// limits are set in the v1 hierarchies, where one group per sandbox holds the agent and everything
// below it (v1 membership is inherited by fork). cgroups are single-use: after cgroup.kill every
// CLONE_INTO_CGROUP child would be killed at birth, so a name comes back only after Remove.
// cgroups(7), Documentation/admin-guide/cgroup-v2.rst, docs/cgroups.md.
// Needs write access to the subtree (root, or a delegated unit). Parent-side, allocating.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/group_dir.h"
#include "cgroups/layout.h"
#include "cgroups/stats.h"
#include "oci/runtime_spec.h"

namespace hutch::cgroups {

inline constexpr uid_t kNoDelegate = static_cast<uid_t>(-1);

// One process's group, work/<name>. Owned by its creator; the directory outlives the value: call
// Remove.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  const std::string& name() const { return name_; }
  int fd() const { return dir_.fd(); }  // O_DIRECTORY of the v2 directory, for CLONE_INTO_CGROUP
  bool valid() const { return dir_.valid(); }
  Status Kill() const;  // cgroup.kill: the group and everything below; single-use afterwards
  Result<bool> Populated() const;  // cgroup.events; false when the group is gone
  // Statistics of this process. kHybrid: CPU time only, the rest is known per sandbox. Refused
  // forks are counted where the limit is: SandboxGroup::ReadStats.
  Stats ReadStats() const;
  // A descriptor of cgroup.events: POLLPRI on change (the kernel may delay it by some 10 ms).
  Result<UniqueFd> OpenEvents() const;
  Status Remove();  // rmdir; "already gone" is success; kBadState while populated

 private:
  friend class SandboxGroup;
  ProcessGroup(std::string name, GroupDir dir) : name_(std::move(name)), dir_(std::move(dir)) {}
  std::string name_;
  GroupDir dir_;
};

// The groups of one sandbox.
class SandboxGroup {
 public:
  SandboxGroup() = default;
  const std::string& id() const { return id_; }
  int agent_fd() const { return agent_.fd(); }  // O_DIRECTORY of agent/, for CLONE_INTO_CGROUP
  // Lets the host uid `owner` (root of the sandbox's user namespace) clone from agent/ into
  // work/<process>: gives it cgroup.procs of the sandbox's directory and of each process's group,
  // those of later CreateProcess calls too, and nothing else. Every limit stays unwritable.
  Status DelegateTo(uid_t owner);
  // kHybrid: moves PID 1 into the v1 groups; must be called before it forks (5 to 15 ms on an idle
  // host). No-op on kV2.
  Status AttachAgent(pid_t pid) const;
  // The same from inside: cgroup.procs of each v1 group, O_WRONLY; PID 1 writes "0" to each before
  // it forks. Empty on kV2.
  Result<std::vector<UniqueFd>> OpenAttachFiles() const;
  // Writes every limit that is set; may be called again to change them. The error names file and
  // value. No limit is silently skipped: kUnsupported names the missing controller.
  // kInvalidArgument where the kernel would refuse the value, before anything is written; kBadState
  // for a memory limit below what cannot be reclaimed (the kernel would kill at once).
  Status ApplyLimits(const oci::LinuxResources& resources) const;
  // mkdir work/<name>, memory.oom.group=1. kExists for a name that was not removed yet, kLimit past
  // kMaxSandboxGroups.
  Result<ProcessGroup> CreateProcess(const std::string& name) const;
  Result<ProcessGroup> OpenProcess(const std::string& name) const;  // after a restart; kNotFound
  Result<std::vector<std::string>> ListProcesses() const;           // names of work/*
  Result<std::vector<pid_t>> AgentPids() const;  // agent/cgroup.procs; kNotFound when it is gone
  Stats ReadStats() const;  // of work/ as a whole; kHybrid: memory, pids, io include the agent
  // work/ alone: the agent goes on answering. What is cloned into it meanwhile is born frozen.
  Status Freeze() const;
  Status Thaw() const;
  Result<bool> Frozen() const;
  Status Kill() const;  // cgroup.kill on the whole sandbox, frozen or not
  // rmdir of everything, v1 and v2, deepest first. "Already gone" is success; kBadState while
  // something still lives in it: call again later.
  Status Remove();

 private:
  friend class Tree;
  struct V1Group {
    std::vector<std::string> controllers;  // of this hierarchy
    GroupDir dir;                          // not valid: was never made, or is gone
  };
  Result<const GroupDir*> LimitGroup(const char* controller) const;

  std::string id_;
  Mode mode_ = Mode::kV2;
  uid_t delegate_ = kNoDelegate;
  GroupDir sandbox_, agent_, work_;
  std::vector<V1Group> v1_;
};

struct TreeConfig {
  // Parent cgroup relative to each hierarchy's root ("/hutch"). Empty: the daemon's own cgroup when
  // systemd delegated it (user.delegate or trusted.delegate xattr "1"), else "/hutch".
  std::string parent;
};

class Tree {
 public:
  // Makes the parent groups, moves this process into <parent>/daemon where the v2 rules ask for it,
  // and enables the controllers. Call before threads and before the spawn server starts.
  // kUnsupported or kKernel name the file that refused.
  static Result<Tree> Open(const Layout& layout, const TreeConfig& config);

  Mode mode() const { return layout_.mode; }
  const Layout& layout() const { return layout_; }
  const std::string& parent() const { return parent_; }
  // That limits can use: memory, pids, cpu, and io where the host has it.
  const std::vector<std::string>& controllers() const { return controllers_; }

  // mkdir of every group of the sandbox. kExists if any is there already.
  Result<SandboxGroup> Create(const std::string& id) const;
  // kNotFound when no hierarchy has it. What is half made or half removed opens too, for Kill and
  // Remove.
  Result<SandboxGroup> OpenExisting(const std::string& id) const;
  Result<std::vector<std::string>> List() const;  // ids with a group in any hierarchy, sorted
  // A fresh leaf for a spawn server; never killed. Returns its directory for CLONE_INTO_CGROUP.
  Result<UniqueFd> CreateSpawnerLeaf() const;
  // Removes what Open and CreateSpawnerLeaf made, when empty; for tests and uninstall.
  Status RemoveParents() const;

 private:
  std::string V2Path() const { return layout_.v2_root + parent_; }
  Status OpenV2(const TreeConfig& config);
  Status OpenV1();

  Layout layout_;
  std::string parent_;
  std::vector<std::string> controllers_;
};

}  // namespace hutch::cgroups
