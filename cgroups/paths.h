// Making, listing and removing groups by path. Of this folder only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::cgroups {

inline constexpr mode_t kGroupMode = 0755;

bool IsGroupName(std::string_view name);  // one path component that does not begin with a dot
Error MakeError(int sys, const std::string& path);  // of a mkdir: kExists, kLimit (cgroup.max.*)
Status MakeGroup(const std::string& path);
// rmdir(2). "Already gone" is success; kBadState while something lives in it or below.
Status RemoveGroup(const std::string& path);
// Names of the groups in a group, sorted; kNotFound.
Result<std::vector<std::string>> ChildGroups(const std::string& path);
// Visits a group and all below it, those above after those below. By descriptors: what runs inside
// may nest groups deeper than a path can say, and than descriptors can be open. Groups that vanish
// meanwhile are passed over. Allocates.
struct GroupVisit {
  std::function<Status(int dir_fd)> enter = {};
  std::function<Status(int parent_fd, const std::string& name)> leave = {};  // not for the top one
};
Status VisitGroups(const std::string& path, const GroupVisit& visit);
// The groups below, then the group: "already gone" is success; kBadState while something lives in
// one of them.
Status RemoveGroups(const std::string& path);
// Enables, for the groups in a v2 group, every controller that it has. What cannot be (processes
// live in it, a group above keeps it) is missed only by a limit, which then says so.
void HandDownControllers(const std::string& group);

}  // namespace hutch::cgroups
