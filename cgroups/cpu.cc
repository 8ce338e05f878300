#include <algorithm>

#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

constexpr uint64_t kMaxWeight = 10000;
constexpr uint64_t kMinShares = 2;
constexpr uint64_t kMinPeriodUs = 1000, kMaxPeriodUs = 1000000;  // the kernel's own bounds
constexpr uint64_t kMaxQuotaUs = 1ull << 43;                     // the kernel's is a little higher

bool Wanted(const oci::LinuxResources& r) { return r.cpu_quota_us || r.cpu_weight; }

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = "limits.cpus"};
}

Status Check(const oci::LinuxResources& r) {
  if (r.cpu_quota_us && (*r.cpu_quota_us < kMinCpuQuotaUs || *r.cpu_quota_us > kMaxQuotaUs))
    return Invalid("cpu quota " + std::to_string(*r.cpu_quota_us) + " us is below " +
                   std::to_string(kMinCpuQuotaUs) + " us in each period, or far too much");
  if (r.cpu_quota_us && (r.cpu_period_us < kMinPeriodUs || r.cpu_period_us > kMaxPeriodUs))
    return Invalid("cpu period " + std::to_string(r.cpu_period_us) +
                   " us is outside 1000 to 1000000");
  if (r.cpu_weight && (*r.cpu_weight < 1 || *r.cpu_weight > kMaxWeight))
    return Invalid("cpu weight " + std::to_string(*r.cpu_weight) + " is outside 1 to 10000");
  return OkStatus();
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  if (r.cpu_quota_us)
    RETURN_IF_ERROR(
        WriteLimit(dir, shown, "cpu.max",
                   std::to_string(*r.cpu_quota_us) + " " + std::to_string(r.cpu_period_us)));
  if (r.cpu_weight)
    RETURN_IF_ERROR(WriteLimit(dir, shown, "cpu.weight", std::to_string(*r.cpu_weight)));
  return OkStatus();
}

// cpu.shares counts from 2 with 1024 as the middle, cpu.weight from 1 with 100.
Status ApplyV1(int dir, const std::string& shown, const oci::LinuxResources& r) {
  if (r.cpu_quota_us) {
    RETURN_IF_ERROR(WriteLimit(dir, shown, "cpu.cfs_period_us", std::to_string(r.cpu_period_us)));
    RETURN_IF_ERROR(WriteLimit(dir, shown, "cpu.cfs_quota_us", std::to_string(*r.cpu_quota_us)));
  }
  if (!r.cpu_weight) return OkStatus();
  return WriteLimit(dir, shown, "cpu.shares",
                    std::to_string(std::max(*r.cpu_weight * 1024 / 100, kMinShares)));
}

// Every v2 group but the root has cpu.stat with the times, controller or not: a hybrid host, too.
void StatsV2(int dir, Stats& s) {
  const std::string stat = ReadText(dir, "cpu.stat");
  s.cpu_usage_us = FindKey(stat, "usage_usec");
  s.cpu_user_us = FindKey(stat, "user_usec");
  s.cpu_system_us = FindKey(stat, "system_usec");
  s.throttled_us = FindKey(stat, "throttled_usec");
}

void StatsV1(int dir, Stats& s) {
  if (const auto ns = ReadKey(dir, "cpu.stat", "throttled_time")) s.throttled_us = *ns / 1000;
}

}  // namespace

constinit const Controller kCpuController = {"cpu",
                                             "cpu",
                                             true,
                                             "cpu.max cpu.weight",
                                             "cpu.cfs_period_us cpu.cfs_quota_us cpu.shares",
                                             Wanted,
                                             Check,
                                             ApplyV2,
                                             ApplyV1,
                                             StatsV2,
                                             StatsV1};

}  // namespace hutch::cgroups
