// The cgroup subtree that belongs to hutchd, and in it one group per sandbox:
//
//   <parent>/daemon                 hutchd itself (v2, only when <parent> is its own delegated
//   cgroup) <parent>/spawner-*              the spawn server, alone, never killed
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
#include "oci/runtime_spec.h"

namespace hutch::cgroups {

enum class Mode { kV2, kHybrid };
const char* ModeName(Mode mode);  // "v2", "hybrid"

// Where the hierarchies are. Found once; a parameter so that tests can pass directories.
struct Layout {
  Mode mode = Mode::kV2;
  std::string v2_root;  // mount point of the cgroup2 tree, "/sys/fs/cgroup"
  std::vector<std::pair<std::string, std::string>>
      v1_roots;  // controller -> mount point, kHybrid only: memory, pids, cpu
};
// From /proc/self/mountinfo. kUnsupported names what is missing (no cgroup2 mount; a needed
// controller nowhere).
Result<Layout> DetectLayout();

struct MemoryEvents {
  uint64_t oom_kill = 0;  // processes killed because this group's or an ancestor's limit was hit
  uint64_t oom = 0;
  uint64_t limit_hits = 0;  // memory.events max / v1 failcnt
};

struct Stats {
  std::optional<uint64_t> memory_current_bytes, memory_peak_bytes;
  std::optional<uint64_t> cpu_usage_us, cpu_user_us, cpu_system_us, throttled_us;
  std::optional<uint64_t> pids_current, pids_peak;
  std::optional<uint64_t> io_read_bytes, io_write_bytes;
  MemoryEvents memory_events;
  uint64_t pids_limit_hits = 0;  // forks refused (pids.events max)
};

// One process's group, work/<name>. Owned by its creator; the directory outlives the value: call
// Remove.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  const std::string& name() const { return name_; }
  int fd() const {
    return dir_.get();
  }  // O_RDONLY | O_DIRECTORY of the v2 directory, for CLONE_INTO_CGROUP
  bool valid() const { return dir_.valid(); }
  Status Kill() const;  // cgroup.kill: the group and everything below; single-use afterwards
  Result<bool> Populated() const;  // cgroup.events
  // Statistics of this process (kV2), or only what the v2 tree knows (kHybrid: use
  // SandboxGroup::ReadStats).
  Stats ReadStats() const;
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
  // Writes every limit that is set. The error names file and value. No limit is silently skipped:
  // kUnsupported names the missing controller. kInvalidArgument where the kernel would refuse the
  // value.
  Status ApplyLimits(const oci::LinuxResources& resources) const;
  Result<ProcessGroup> CreateProcess(
      const std::string& name) const;  // mkdir work/<name>, memory.oom.group=1
  Result<ProcessGroup> OpenProcess(const std::string& name) const;  // after a restart of the daemon
  Result<std::vector<std::string>> ListProcesses() const;           // names of work/*
  Result<std::vector<pid_t>> AgentPids() const;                     // agent/cgroup.procs
  Stats ReadStats() const;  // of work/ as a whole, kHybrid: of the v1 groups
  Status Freeze() const;
  Status Thaw() const;
  Result<bool> Frozen() const;
  Status Kill() const;  // cgroup.kill on the whole sandbox; "already gone" is success
  // rmdir of everything, v1 and v2, deepest first. "Already gone" is success; kBadState while
  // something still lives in it.
  Status Remove();

 private:
  friend class Tree;
  struct V1Group {
    std::string controller, path;
    UniqueFd dir;
  };
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
  const std::vector<std::string>& controllers() const {
    return controllers_;
  }  // that limits can use

  // mkdir of every group of the sandbox. kExists if any is there already.
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
  Layout layout_;
  std::string GroupPath(const std::string& root, const std::string& id) const;
  Result<SandboxGroup> Describe(const std::string& id) const;
  Status EnableControllers();

  std::string parent_;
  std::vector<std::string> controllers_;
};

}  // namespace hutch::cgroups
