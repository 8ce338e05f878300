#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

bool Wanted(const oci::LinuxResources& r) { return r.memory_limit_bytes.has_value(); }

Status Check(const oci::LinuxResources& r) {
  if (*r.memory_limit_bytes >= kMinMemoryBytes) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "memory limit below " + std::to_string(kMinMemoryBytes) +
                       " bytes: nothing could start",
               .field = "limits.memory_bytes"};
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  RETURN_IF_ERROR(Check(r));
  RETURN_IF_ERROR(WriteLimit(dir, shown, "memory.max", std::to_string(*r.memory_limit_bytes)));
  // A kernel without swap accounting has no such file, and no swap to bound.
  if (!HasFile(dir, "memory.swap.max")) return OkStatus();
  return WriteLimit(dir, shown, "memory.swap.max", std::to_string(r.memory_swap_bytes.value_or(0)));
}

Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  RETURN_IF_ERROR(Check(r));
  RETURN_IF_ERROR(
      WriteLimit(dir, shown, "memory.limit_in_bytes", std::to_string(*r.memory_limit_bytes)));
  if (!HasFile(dir, "memory.memsw.limit_in_bytes")) return OkStatus();
  return WriteLimit(dir, shown, "memory.memsw.limit_in_bytes",
                    std::to_string(*r.memory_limit_bytes + r.memory_swap_bytes.value_or(0)));
}

// The hierarchical file: `.local` shows nothing when the victim sits in a child group.
void StatsV2(int dir, Stats& s) {
  s.memory_current_bytes = ReadNumber(dir, "memory.current");
  s.memory_peak_bytes = ReadNumber(dir, "memory.peak");
  s.memory_events.oom_kill = ReadKey(dir, "memory.events", "oom_kill").value_or(0);
  s.memory_events.oom = ReadKey(dir, "memory.events", "oom").value_or(0);
  s.memory_events.limit_hits = ReadKey(dir, "memory.events", "max").value_or(0);
}

void StatsV1(int dir, Stats& s) {
  s.memory_current_bytes = ReadNumber(dir, "memory.usage_in_bytes");
  s.memory_peak_bytes = ReadNumber(dir, "memory.max_usage_in_bytes");
  s.memory_events.oom_kill = ReadKey(dir, "memory.oom_control", "oom_kill").value_or(0);
  s.memory_events.oom = s.memory_events.oom_kill;
  s.memory_events.limit_hits = ReadNumber(dir, "memory.failcnt").value_or(0);
}

}  // namespace

constinit const Controller kMemoryController = {"memory",
                                                "memory",
                                                true,
                                                "memory.max memory.swap.max",
                                                "memory.limit_in_bytes memory.memsw.limit_in_bytes",
                                                Wanted,
                                                ApplyV2,
                                                ApplyV1,
                                                StatsV2,
                                                StatsV1};

}  // namespace hutch::cgroups
