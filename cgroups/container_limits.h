// linux.resources as what is written to cgroup files: pure, so that tests compare it by value. The
// values of the specification are v1's; on v2 they are converted by the formulas that every runtime
// has. Of this folder only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cgroups/device_filter.h"
#include "cgroups/systemd_scope.h"
#include "oci/container_config.h"

namespace hutch::cgroups {

enum class IfAbsent {
  kRefuse,
  kSkip,      // nothing to bound without it: swap on a kernel that counts none
  kNextFile,  // the next write stands for the same limit
};

struct LimitWrite {
  std::string controller;  // whose group holds the file: v1's name of it on v1 ("blkio")
  std::string file;
  std::string value;
  std::string field;  // JSON path
  IfAbsent if_absent = IfAbsent::kRefuse;
};

// 1 or 2: where a controller's limits are set on this host; 0: nowhere.
using VersionOf = std::function<int(std::string_view controller)>;

// In the order to write. kInvalidArgument for values that contradict each other, kUnsupported for
// what this version of a controller cannot do, both with the field.
Result<std::vector<LimitWrite>> PlanLimits(const oci::ContainerResources& resources,
                                           const VersionOf& version_of);

// cpu.shares (2..262144, 1024 by default) as cpu.weight (1..10000, 100 by default).
uint64_t WeightOfShares(uint64_t shares);
// blkio.weight (10..1000) as io.weight (1..10000).
uint64_t IoWeightOf(uint64_t weight);

// Placeholder for what the file says already: the quota when only the period is given.
inline constexpr std::string_view kKeepFirstWord = "<keep>";

std::vector<DeviceRule> DeviceRulesOf(const oci::ContainerResources& resources);

// The same limits as properties of a scope, so that systemd does not take them back when it
// reloads. Of v2's files; what systemd has no property for is left out.
std::vector<UnitProperty> PropertiesOfLimits(const std::vector<LimitWrite>& writes);

}  // namespace hutch::cgroups
