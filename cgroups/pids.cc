#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

bool Wanted(const oci::LinuxResources& r) { return r.pids_limit.has_value(); }

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  return WriteLimit(dir, shown, "pids.max", std::to_string(*r.pids_limit));
}

// The group holds the agent, too: its share is added so that the tenant gets what was asked for.
Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  return WriteLimit(dir, shown, "pids.max", std::to_string(*r.pids_limit + kAgentPids));
}

void ReadStats(int dir, Stats& s) {
  s.pids_current = ReadNumber(dir, "pids.current");
  s.pids_peak = ReadNumber(dir, "pids.peak");
  s.pids_limit_hits = ReadKey(dir, "pids.events", "max").value_or(0);
}

}  // namespace

constinit const Controller kPidsController = {"pids", "pids",  true,    "pids.max", "pids.max",
                                              Wanted, ApplyV2, ApplyV1, ReadStats,  ReadStats};

}  // namespace hutch::cgroups
