// The control groups of one OCI container: linux.cgroupsPath and linux.resources of config.json, by
// the cgroup file system itself or through systemd. For hutch-oci; sandboxes have tree.h.
//
// Pure v2: one group. Hybrid hosts: one group of the same path in every mounted v1 hierarchy, for
// limits, and one in the v2 tree, which groups, freezes and kills. The order of calls:
//
//   Plan -> Make -> clone3(CLONE_INTO_CGROUP clone_fd()) -> Attach(pid) -> Apply -> go on with the
//   child, which takes its cgroup namespace only now (see NamespaceByClone)
//
// and place() is what the state file keeps for Open(). Errors: kUnsupported names what this host
// lacks, kInvalidArgument what the kernel refuses (with the JSON path in `field`), kForbidden where
// an ordinary user may not write.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/container_layout.h"
#include "oci/container_config.h"
#include "oci/json.h"

namespace hutch::cgroups {

enum class GroupManager { kCgroupfs, kSystemd };
enum class GroupUser {
  kRoot,      // what cannot be done is an error
  kOrdinary,  // without a delegated group there is none: an error only once a limit is asked for
};

inline constexpr std::string_view kScopePropertyPrefix = "org.systemd.property.";

struct GroupRequest {
  std::string container_id;
  std::string cgroups_path;  // linux.cgroupsPath as it stands there; empty: a default place
  GroupManager manager = GroupManager::kCgroupfs;
  GroupUser user = GroupUser::kRoot;
  // Of these the ones with kScopePropertyPrefix are given to the scope.
  std::map<std::string, std::string> annotations = {};
};

// Where a container's groups are. Plain data, for the state file.
struct GroupPlace {
  struct V1 {  // one for each hierarchy
    std::string path;
    std::vector<std::string> controllers;  // "cpu", "cpuacct", "name=systemd"
  };
  std::string v2_path;  // empty: no group at all (an ordinary user without a delegated one)
  std::vector<V1> v1;
  std::string unit;                    // systemd's; empty with cgroupfs
  bool user_manager = false;           // the user's systemd, not the system's
  std::vector<std::string> made = {};  // directories above the group that Make() made, top first
};
oci::Json PrintGroupPlace(const GroupPlace& place);
Result<GroupPlace> ParseGroupPlace(const oci::Json& json);

enum class DeviceRules { kApply, kLeave };  // kLeave: for updates, which do not name devices

enum class BornIn { kGroup, kElsewhere };  // cloned with clone_fd(), or without

class ContainerGroup {
 public:
  // Looks where the groups will be; changes nothing.
  static Result<ContainerGroup> Plan(const GroupRequest& request);
  // Of a container that Plan and Make made. Groups that are gone are no error here.
  static Result<ContainerGroup> Open(const GroupPlace& place);

  const GroupPlace& place() const { return place_; }
  bool exists() const { return v2_dir_.valid(); }

  // cgroupfs: the directories, with their parents and controllers. systemd: nothing yet, a scope
  // needs a process. kExists when processes live in the group already. Undone by Remove().
  Status Make();
  // O_DIRECTORY for CLONE_INTO_CGROUP; -1 when the process has to come by Attach alone (systemd; no
  // group; a group that was there before: after a cgroup.kill the kernel kills what is cloned into
  // it). A clone that fails with EBUSY, EACCES or EOPNOTSUPP, or whose child is dead at once (the
  // caller's own group was killed once), is tried again without, and is then BornIn::kElsewhere.
  int clone_fd() const { return clone_into_ ? v2_dir_.get() : -1; }
  // Whether a cgroup namespace taken by clone3 itself, with clone_fd(), has the right roots. If not
  // the child calls unshare(CLONE_NEWCGROUP) once it is attached.
  bool NamespaceByClone() const { return clone_fd() >= 0 && place_.v1.empty(); }
  // Moves the process into every group it is not in yet; systemd: starts the scope with it, waits
  // for it (60 s) and finds the paths. Call it in any case, before the child goes on.
  Status Attach(pid_t pid, BornIn born);
  // A process of `exec`: as Attach, and where the group itself holds no processes any more, since
  // what runs inside has made groups of its own, into that of the container's first process.
  // `sub`: exec --cgroup, below the container's group ("a/b", or "controller:a/b" on v1).
  Status AttachExec(pid_t pid, BornIn born, pid_t init_pid, const std::vector<std::string>& sub);

  // Every limit that is set, checked and converted before the first is written. For create and for
  // update. Devices: by BPF on v2, in the devices hierarchy on v1; what create's rules do not allow
  // is denied, but for the default devices of the specification.
  Status Apply(const oci::ContainerResources& resources, DeviceRules devices) const;
  // Gives the group to the container's root for groups of its own (the specification's "cgroup
  // ownership"): the directory and the files of /sys/kernel/cgroup/delegate, v2 only, no limits.
  Status DelegateTo(uid_t uid) const;

  // Waits until every process is frozen; kUnavailable when that takes too long, then it is thawed.
  Status Freeze(int timeout_ms) const;
  Status Thaw() const;
  Result<bool> Frozen() const;  // false when there is no group
  // SIGKILL for every process, those being born too. kNotFound without a group.
  Status Kill() const;
  Status Signal(int signal) const;  // every process that is there now
  // Of the group and all below it, sorted, as this process's pid namespace sees them.
  Result<std::vector<pid_t>> Pids() const;
  // `data` of `events --stats`, in runc's shape.
  Result<oci::Json> ReadStats() const;
  // Kills by the out-of-memory killer so far; 0 where nothing counts them.
  uint64_t OomKills() const;

  // Every group, those made inside too, deepest first, waits up to 2 s for what is ending; systemd:
  // stops the unit. Then the parents Make() made, if nobody else uses them. "Already gone" is
  // success; kBadState while something lives in it.
  Status Remove();
  // Of one that was only planned, or is half made: nobody is killed for it, and what somebody lives
  // in stays, as it may be another's.
  void RemoveIfEmpty();

 private:
  struct V1Dir {
    std::string path;
    UniqueFd dir;
    std::vector<std::string> controllers;
  };
  // Where a controller's files of this container are on this host.
  struct Home {
    int dir_fd = -1;
    std::string path;
    int version = 0;  // 1, 2; 0: nowhere
  };
  Home HomeOf(std::string_view controller) const;
  void OpenDirectories();
  Status ThawV1() const;
  Status PlanScope();
  Status MakeV2();
  enum class Inhabitants { kRefused, kAllowed };
  Status MakeV1(Inhabitants inhabitants);
  Status AttachV1(pid_t pid) const;
  Status StartScope(pid_t pid);
  Status AttachSub(pid_t pid, const std::string& sub) const;
  bool MayGoWithout(const Error& error) const;
  void HandDownToV2() const;
  Status ApplyDevices(const oci::ContainerResources& resources) const;

  GroupRequest request_;
  Hierarchies found_;  // of Plan; empty after Open
  GroupPlace place_;
  std::string slice_;  // systemd's, for a scope that is not started yet
  UniqueFd v2_dir_;
  std::vector<V1Dir> v1_dirs_;
  bool clone_into_ = false;
};

}  // namespace hutch::cgroups
