#include <algorithm>

#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

bool Wanted(const oci::LinuxResources& r) { return r.memory_limit_bytes.has_value(); }

Status Check(const oci::LinuxResources& r) {
  if (*r.memory_limit_bytes >= kMinMemoryBytes) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "memory limit " + std::to_string(*r.memory_limit_bytes) + " is below " +
                       std::to_string(kMinMemoryBytes) + " bytes: nothing could start",
               .field = "limits.memory_bytes"};
}

// What stays when the page cache and the reclaimable slabs are gone; there is no swap to go to.
uint64_t UnreclaimableBytes(int dir) {
  const std::string stat = ReadText(dir, "memory.stat");
  uint64_t sum = 0;
  for (const char* key : {"anon", "shmem", "kernel_stack", "pagetables", "slab_unreclaimable"})
    sum += FindKey(stat, key).value_or(0);
  return sum;
}

// The kernel obeys a limit below what is in use by killing at once; v1 refuses it with EBUSY.
Status RefuseBelowUse(int dir, const std::string& shown, uint64_t limit) {
  if (ReadNumber(dir, "memory.current").value_or(0) <= limit) return OkStatus();
  const uint64_t in_use = UnreclaimableBytes(dir);
  if (in_use <= limit) return OkStatus();
  return Error{.code = Code::kBadState,
               .what = "limit " + shown + "/memory.max: " + std::to_string(limit) +
                       " is below the " + std::to_string(in_use) + " bytes in use",
               .field = "limits.memory_bytes"};
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  RETURN_IF_ERROR(RefuseBelowUse(dir, shown, *r.memory_limit_bytes));
  RETURN_IF_ERROR(WriteLimit(dir, shown, "memory.max", std::to_string(*r.memory_limit_bytes)));
  // A kernel without swap accounting has no such file, and no swap to bound.
  if (!HasFile(dir, "memory.swap.max")) return OkStatus();
  return WriteLimit(dir, shown, "memory.swap.max", std::to_string(r.memory_swap_bytes.value_or(0)));
}

// memsw bounds memory and swap together and may never be below memory's own limit: a raise starts
// with memsw, everything else with memory.
Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  constexpr char kLimit[] = "memory.limit_in_bytes", kBoth[] = "memory.memsw.limit_in_bytes";
  const std::string limit = std::to_string(*r.memory_limit_bytes);
  const uint64_t swap =
      std::min(r.memory_swap_bytes.value_or(0), INT64_MAX - *r.memory_limit_bytes);
  const std::string both = std::to_string(*r.memory_limit_bytes + swap);
  const bool has_memsw = HasFile(dir, kBoth);
  Status written = WriteLimit(dir, shown, kLimit, limit);
  if (!written && written.error().sys == EINVAL && has_memsw) {
    RETURN_IF_ERROR(WriteLimit(dir, shown, kBoth, both));
    written = WriteLimit(dir, shown, kLimit, limit);
  }
  if (!written) {
    Error error = std::move(written).error();
    if (error.sys == EBUSY) error.code = Code::kBadState, error.field = "limits.memory_bytes";
    return error;
  }
  return has_memsw ? WriteLimit(dir, shown, kBoth, both) : OkStatus();
}

// The hierarchical file: `.local` shows nothing when the victim sits in a child group.
void StatsV2(int dir, Stats& s) {
  s.memory_current_bytes = ReadNumber(dir, "memory.current");
  s.memory_peak_bytes = ReadNumber(dir, "memory.peak");
  const std::string events = ReadText(dir, "memory.events");
  s.memory_events.oom_kill = FindKey(events, "oom_kill").value_or(0);
  s.memory_events.oom = FindKey(events, "oom").value_or(0);
  s.memory_events.limit_hits = FindKey(events, "max").value_or(0);
}

void StatsV1(int dir, Stats& s) {
  s.memory_current_bytes = ReadNumber(dir, "memory.usage_in_bytes");
  s.memory_peak_bytes = ReadNumber(dir, "memory.max_usage_in_bytes");
  s.memory_events.oom_kill = ReadKey(dir, "memory.oom_control", "oom_kill").value_or(0);
  s.memory_events.oom = s.memory_events.oom_kill;
  // Without swap both limits are the same and memsw is asked first: its counter has the hits.
  s.memory_events.limit_hits = ReadNumber(dir, "memory.failcnt").value_or(0) +
                               ReadNumber(dir, "memory.memsw.failcnt").value_or(0);
}

}  // namespace

constinit const Controller kMemoryController = {"memory",
                                                "memory",
                                                true,
                                                "memory.max memory.swap.max",
                                                "memory.limit_in_bytes memory.memsw.limit_in_bytes",
                                                Wanted,
                                                Check,
                                                ApplyV2,
                                                ApplyV1,
                                                StatsV2,
                                                StatsV1};

}  // namespace hutch::cgroups
