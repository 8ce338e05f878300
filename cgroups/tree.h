// The cgroup subtree that belongs to hutchd, and in it one group per sandbox:
//
//   <parent>/daemon                 hutchd itself, only when <parent> is its own delegated cgroup
//   <parent>/spawner-*              the spawn server, alone, never killed
//   <parent>/sandboxes/<id>/agent   PID 1 of the sandbox, alone
//   <parent>/sandboxes/<id>/work    limits of the tenant; one child per process: work/<process>
//
// Mode kV2: cgroup v2 with its controllers. Mode kHybrid: the v2 tree groups, freezes and kills;
// limits are set in the v1 hierarchies, where one group per sandbox holds the agent and everything
// below it (v1 membership is inherited by fork). cgroups are single-use: after cgroup.kill every
// CLONE_INTO_CGROUP child would be killed at birth. cgroups(7),
// Documentation/admin-guide/cgroup-v2.rst. Needs write access to the subtree (root, or a delegated
// unit).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/layout.h"
#include "cgroups/pressure.h"
#include "cgroups/reclaimer.h"
#include "cgroups/stats.h"
#include "cgroups/usage.h"
#include "oci/runtime_spec.h"

namespace hutch::cgroups {

struct Controller;

// One process's group, work/<name>. Owned by its creator; the directory outlives the value: call
// Remove.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  const std::string& name() const { return name_; }
  int fd() const { return dir_.get(); }  // O_DIRECTORY of the v2 group, for CLONE_INTO_CGROUP
  bool valid() const { return dir_.valid(); }
  Status Kill() const;  // cgroup.kill: the group and everything below; single-use afterwards
  Result<bool> Populated() const;  // cgroup.events; kNotFound when the group is gone
  // Statistics of this process. kHybrid: CPU time only, the rest is known per sandbox. Refused
  // forks are counted where the limit is: SandboxGroup::ReadStats.
  Stats ReadStats() const;
  Events ReadEvents() const;  // kV2; nothing on kHybrid
  Stats ReadUsage() const;    // CPU time, peak memory and I/O only, where known
  // A signal for each process that is in the group now; kNotFound when there is none.
  Status Signal(int signal) const;
  // A descriptor of cgroup.events: POLLPRI on change (the kernel may delay it by some 10 ms).
  Result<UniqueFd> OpenEvents() const;
  Status Remove();  // rmdir; "already gone" is success; kBadState while populated

 private:
  friend class SandboxGroup;
  std::string name_;
  std::string path_;
  UniqueFd dir_;
  Mode mode_ = Mode::kV2;
};

// The groups of one sandbox.
class SandboxGroup {
 public:
  SandboxGroup() = default;
  const std::string& id() const { return id_; }
  int agent_fd() const { return agent_dir_.get(); }  // O_DIRECTORY of agent/, for CLONE_INTO_CGROUP
  // Lets the agent, whose host uid this is, clone processes into work/*: chown of the cgroup.procs
  // files the kernel asks about (the common ancestor's and each destination's) and of nothing else.
  // No limit becomes writable. Also for groups made later.
  Status DelegateTo(uid_t uid);
  // kHybrid: cgroup.procs of each v1 group, for PID 1 to write "0" to before it forks (5 to 15 ms
  // on an idle host). Empty on kV2.
  Result<std::vector<UniqueFd>> OpenAttachFiles() const;
  // Writes every limit that is set; call it again to change them. The error names file and value.
  // No limit is silently skipped: kUnsupported names the missing controller. kInvalidArgument where
  // the kernel would refuse a value, before anything is written. kBadState for a memory limit below
  // what is in use and cannot be reclaimed: the kernel would obey by killing at once.
  Status ApplyLimits(const oci::LinuxResources& resources) const;
  // mkdir work/<name>, memory.oom.group=1. kExists for a name that was not removed yet (a killed
  // group cannot be used again), kLimit past kMaxSandboxDescendants.
  Result<ProcessGroup> CreateProcess(const std::string& name) const;
  Result<ProcessGroup> OpenProcess(const std::string& name) const;  // after a restart; kNotFound
  Result<std::vector<std::string>> ListProcesses() const;           // names of work/*
  Result<std::vector<pid_t>> AgentPids() const;                     // agent/cgroup.procs
  // Of work/ as a whole. kHybrid: memory, pids and io are of the v1 groups, which hold the agent
  // too.
  Stats ReadStats() const;
  Events ReadEvents() const;
  // The same in short, for numbers shown inside. Zeros where nothing can be read.
  Usage ReadUsage() const;
  // Of work/; nothing where the kernel does not tell.
  Pressures ReadPressure() const;
  // Of work/: every process of the tenant's, those born later included, and not the agent, which
  // goes on answering. Freeze() asks; Frozen() tells when it is so, mostly within 0.1 ms, never
  // while something of it is stuck in the kernel. Kill() works on what is frozen. freezer.cc.
  Status Freeze() const;
  Status Thaw() const;
  Result<bool> Frozen() const;
  Result<UniqueFd> OpenFreezeEvents() const;  // as ProcessGroup::OpenEvents, of work/
  // kUnsupported where the kernel reclaims nothing on request.
  Result<Reclaimer> OpenReclaimer() const;
  Status Kill() const;  // cgroup.kill on the whole sandbox; "already gone" is success
  // rmdir of everything, v1 and v2, deepest first. "Already gone" is success; kBadState while
  // something still lives in it.
  Status Remove();

 private:
  friend class Tree;
  struct V1Group {  // one for each hierarchy
    std::string path;
    UniqueFd dir;  // not valid when the group is not there
    std::vector<std::string> controllers;
  };
  Status CheckLimits(const oci::LinuxResources& resources) const;
  Status ApplyLimit(const Controller& controller, const oci::LinuxResources& resources) const;
  uint64_t RefusedForksOfProcesses() const;
  std::string id_;
  std::string path_;  // of the v2 directory
  std::vector<V1Group> v1_;
  Mode mode_ = Mode::kV2;
  std::vector<std::string> controllers_;
  UniqueFd dir_, agent_dir_, work_dir_;
  uid_t owner_ = 0;
};

struct TreeConfig {
  // Parent cgroup relative to each hierarchy's root ("/hutch"). Empty: the daemon's own v2 cgroup
  // when systemd delegated it (user.delegate or trusted.delegate xattr "1"), else "/hutch".
  std::string parent;
};

class Tree {
 public:
  // Makes the parent groups, moves this process into <parent>/daemon when the parent is its own
  // group (inner groups hold no processes), and enables the controllers on the way down. Call
  // before threads and before the spawn server starts. kUnsupported or kKernel name the file that
  // refused.
  static Result<Tree> Open(const Layout& layout, const TreeConfig& config);

  Mode mode() const { return layout_.mode; }
  const Layout& layout() const { return layout_; }
  const std::string& parent() const { return parent_; }
  // That limits can use: memory, pids, cpu, and io where the host has it.
  const std::vector<std::string>& controllers() const { return controllers_; }

  // mkdir of every group of the sandbox. kExists if any is there already: Remove it first.
  Result<SandboxGroup> Create(const std::string& id) const;
  // Whatever of it is left, in any hierarchy. kNotFound when nothing is.
  Result<SandboxGroup> OpenExisting(const std::string& id) const;
  Result<std::vector<std::string>> List() const;  // ids with a group in any hierarchy
  // A fresh leaf for the spawn server, beside the daemon's; never killed. Returns its directory for
  // CLONE_INTO_CGROUP.
  Result<UniqueFd> CreateSpawnerLeaf() const;
  // Removes what Open and CreateSpawnerLeaf made, when empty; for tests and uninstall.
  Status RemoveParents() const;

 private:
  std::string GroupPath(const std::string& root, const std::string& id) const;
  Result<SandboxGroup> Describe(const std::string& id) const;
  Status MakeGroups(const SandboxGroup& group, std::vector<std::string>* made) const;
  Status SetUp(const SandboxGroup& group) const;
  Status EnableControllers(bool from_root);

  Layout layout_;
  std::string parent_;
  std::vector<std::string> controllers_;
};

}  // namespace hutch::cgroups
