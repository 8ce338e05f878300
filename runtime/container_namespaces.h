// The namespaces of a container: which are new, which are joined, the id maps, and the process that
// is cloned into them.
#pragma once

#include <sys/types.h>

#include <climits>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"

namespace hutch::runtime {

struct JoinedNamespace {
  int flag;  // CLONE_NEW...
  UniqueFd fd;
};

struct NamespacePlan {
  uint64_t fresh = 0;  // CLONE_NEW... of those that are made
  std::vector<JoinedNamespace> joined;
  bool Makes(uint64_t flag) const { return (fresh & flag) != 0; }
  int JoinedFd(int flag) const;  // -1: not joined
};

// The types that linux.namespaces may have.
std::vector<std::string> NamespaceTypes();

// Opens every path; kInvalidArgument names the one that is no namespace of its type.
Result<NamespacePlan> PlanNamespaces(const std::vector<oci::Namespace>& namespaces);

// Which CLONE_NEW... namespaces of the process are not the caller's. kNotFound when it has ended:
// what was read may be another's then.
Result<int> NamespacesUnlikeOurs(const Pidfd& process);

// Whether the descriptor is of the caller's own namespace of that kind; -1 is of none.
Result<bool> IsOwnNamespace(int flag, int namespace_fd);

// For as long as it lives the caller is in these namespaces: of those that another process gets by
// inheriting them. Comes back at its end, and ends the program when that fails.
class NamespaceVisit {
 public:
  NamespaceVisit() = default;
  NamespaceVisit(const NamespaceVisit&) = delete;
  NamespaceVisit& operator=(const NamespaceVisit&) = delete;
  ~NamespaceVisit();
  Status Enter(int flag, int namespace_fd);

 private:
  std::vector<JoinedNamespace> former_;
};

// Close-on-exec would be too late for who looks into /proc/<pid>/fd before (CVE-2016-9962): closes
// every descriptor from keep_below on but those of `keep` (-1: none).
Status CloseOthers(int keep_below, std::vector<int> keep);

struct CloneRequest {
  uint64_t flags = 0;  // CLONE_NEW...
  int cgroup_fd = -1;  // CLONE_INTO_CGROUP
  // Called in a process of its own before the clone: it joins what the parent cannot come back from
  // (a user namespace), and what the child must not be seen outside of. Empty: none is needed.
  std::function<Status()> prepare = {};
  // With `prepare`: the child is born without any descriptor but these and 0 to keep_below - 1.
  std::vector<int> keep = {};
  int keep_below = INT_MAX;
  std::function<void()> child;  // must not come back
};
struct ClonedProcess {
  Pidfd process;
  bool in_cgroup = false;
};
// Clones a child of the caller. CLONE_CLEAR_SIGHAND. Without the cgroup where that one's own
// history forbids it (ContainerGroup::clone_fd).
Result<ClonedProcess> CloneContainer(const CloneRequest& request);

// The id maps that the configuration leaves to us. A new user namespace without any has one id, 0,
// which is the caller. A namespace that is joined has its own, whatever config.json says (read by a
// short-lived process in it).
Status FillIdMaps(const NamespacePlan& plan, oci::ContainerLinux* linux_part);

// The id maps of a process's user namespace, as seen from ours.
Status ReadIdMaps(pid_t pid, oci::ContainerLinux* linux_part);

// Writes uid_map, gid_map (and setgroups, as an ordinary user with no helper). With newuidmap and
// newgidmap where the kernel does not let the caller write the map itself.
Status WriteIdMaps(pid_t pid, const std::vector<oci::IdMapping>& uids,
                   const std::vector<oci::IdMapping>& gids);

// In the child: a new time namespace with these offsets, entered.
Status MakeTimeNamespace(const oci::ContainerConfig& config);

// Brings up `lo` of the caller's network namespace.
Status BringLoopbackUp();

}  // namespace hutch::runtime
