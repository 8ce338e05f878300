#include <algorithm>

#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

constexpr uint64_t kMaxWeight = 10000;
constexpr uint64_t kMinShares = 2;

bool Wanted(const oci::LinuxResources& r) { return r.cpu_quota_us || r.cpu_weight; }

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = "limits.cpus"};
}

Status Check(const oci::LinuxResources& r) {
  if (r.cpu_quota_us && *r.cpu_quota_us < kMinCpuQuotaUs)
    return Invalid("cpu quota below " + std::to_string(kMinCpuQuotaUs) + " us in each period");
  if (r.cpu_weight && (*r.cpu_weight < 1 || *r.cpu_weight > kMaxWeight))
    return Invalid("cpu weight outside 1 to 10000");
  return OkStatus();
}

Status ApplyV2(int dir, const std::string& shown, const oci::LinuxResources& r) {
  RETURN_IF_ERROR(Check(r));
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
  RETURN_IF_ERROR(Check(r));
  if (r.cpu_quota_us) {
    RETURN_IF_ERROR(WriteLimit(dir, shown, "cpu.cfs_period_us", std::to_string(r.cpu_period_us)));
    RETURN_IF_ERROR(WriteLimit(dir, shown, "cpu.cfs_quota_us", std::to_string(*r.cpu_quota_us)));
  }
  if (!r.cpu_weight) return OkStatus();
  return WriteLimit(dir, shown, "cpu.shares",
                    std::to_string(std::max(*r.cpu_weight * 1024 / 100, kMinShares)));
}

void StatsV2(int dir, Stats& s) {
  s.cpu_usage_us = ReadKey(dir, "cpu.stat", "usage_usec");
  s.cpu_user_us = ReadKey(dir, "cpu.stat", "user_usec");
  s.cpu_system_us = ReadKey(dir, "cpu.stat", "system_usec");
  s.throttled_us = ReadKey(dir, "cpu.stat", "throttled_usec");
}

void StatsV1(int dir, Stats& s) {
  if (const auto ns = ReadKey(dir, "cpu.stat", "throttled_time")) s.throttled_us = *ns / 1000;
}

}  // namespace

constinit const Controller kCpuController = {"cpu",
                                             "cpu",
                                             true,
                                             "cpu.max cpu.weight",
                                             "cpu.cfs_quota_us cpu.cfs_period_us cpu.shares",
                                             Wanted,
                                             ApplyV2,
                                             ApplyV1,
                                             StatsV2,
                                             StatsV1};

}  // namespace hutch::cgroups
