#include "cgroups/controllers.h"

namespace hutch::cgroups {
namespace {

constexpr uint64_t kAgentTasks = 1;  // PID 1 is single-threaded; what it clones is the tenant's
constexpr uint64_t kMaxPids = 4194304 - kAgentTasks;  // PID_MAX_LIMIT: the kernel refuses more

bool Wanted(const oci::LinuxResources& r) { return r.pids_limit.has_value(); }

Status Check(const oci::LinuxResources& r) {
  if (*r.pids_limit >= 1 && *r.pids_limit <= kMaxPids) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "pids limit " + std::to_string(*r.pids_limit) + " is outside 1 to " +
                       std::to_string(kMaxPids),
               .field = "limits.pids"};
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  return WriteLimit(dir, shown, "pids.max", std::to_string(*r.pids_limit));
}

// The v1 group holds the agent, too: it is added so that the tenant gets what was asked for.
Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  return WriteLimit(dir, shown, "pids.max", std::to_string(*r.pids_limit + kAgentTasks));
}

void ReadStats(int dir, Stats& s) {
  s.pids_current = ReadNumber(dir, "pids.current");
  s.pids_peak = ReadNumber(dir, "pids.peak");
  s.pids_limit_hits = ReadKey(dir, "pids.events", "max").value_or(0);
}

}  // namespace

constinit const Controller kPidsController = {"pids",     "pids",    true,     "pids.max",
                                              "pids.max", Wanted,    Check,    ApplyV2,
                                              ApplyV1,    ReadStats, ReadStats};

}  // namespace hutch::cgroups
