// v2 limits as properties of a systemd unit (systemd.resource-control(5),
// org.freedesktop.systemd1).
#include <algorithm>

#include "base/text.h"
#include "cgroups/container_limits.h"

namespace hutch::cgroups {
namespace {

constexpr uint64_t kDefaultPeriodUs = 100000;
constexpr uint64_t kUsPerSecond = 1000000;
constexpr uint64_t kQuotaStepUs = 10000;  // systemd rounds to 10 ms per second: up, as we do
constexpr uint64_t kMaxBits = 8192;

struct NumberProperty {
  std::string_view file;
  const char* name;
};
// Files that hold a number or "max", which on D-Bus is the largest number.
constexpr NumberProperty kNumbers[] = {
    {"memory.max", "MemoryMax"},          {"memory.high", "MemoryHigh"},
    {"memory.low", "MemoryLow"},          {"memory.min", "MemoryMin"},
    {"memory.swap.max", "MemorySwapMax"}, {"pids.max", "TasksMax"},
    {"cpu.weight", "CPUWeight"},          {"io.weight", "IOWeight"},
};

void AddQuota(std::string_view value, std::vector<UnitProperty>* properties) {
  const std::vector<std::string> words = Split(value, ' ');
  const auto period = words.size() > 1 ? ParseUint(words[1]) : Result<uint64_t>(kDefaultPeriodUs);
  if (!period || *period == 0) return;
  if (words.size() > 1) properties->push_back({"CPUQuotaPeriodUSec", "t", *period});
  const auto quota = ParseUint(words[0], UINT64_MAX / kUsPerSecond);
  uint64_t per_second = UINT64_MAX;
  if (quota) {
    per_second = *quota * kUsPerSecond / *period;
    per_second = (per_second + kQuotaStepUs - 1) / kQuotaStepUs * kQuotaStepUs;
  }
  if (quota || words[0] == "max") properties->push_back({"CPUQuotaPerSecUSec", "t", per_second});
}

// "0-2,5" as a little-endian mask.
std::vector<uint8_t> MaskOfList(std::string_view list) {
  std::vector<uint8_t> mask;
  for (const std::string& range : Split(list, ',')) {
    const size_t dash = range.find('-');
    const auto first = ParseUint(Trim(range.substr(0, dash)), kMaxBits);
    const auto last = dash == std::string::npos
                          ? first
                          : ParseUint(Trim(std::string_view(range).substr(dash + 1)), kMaxBits);
    if (!first || !last) continue;
    for (uint64_t bit = *first; bit <= *last; ++bit) {
      mask.resize(std::max<size_t>(mask.size(), bit / 8 + 1));
      mask[bit / 8] = static_cast<uint8_t>(mask[bit / 8] | (1u << (bit % 8)));
    }
  }
  return mask;
}

}  // namespace

std::vector<UnitProperty> PropertiesOfLimits(const std::vector<LimitWrite>& writes) {
  std::vector<UnitProperty> properties;
  for (const LimitWrite& write : writes) {
    for (const NumberProperty& known : kNumbers) {
      if (known.file != write.file) continue;
      const auto number = ParseUint(write.value);
      if (number || write.value == "max")
        properties.push_back({known.name, "t", number ? *number : UINT64_MAX});
    }
    if (write.file == "cpu.max") AddQuota(write.value, &properties);
    if (write.file == "cpuset.cpus")
      properties.push_back({"AllowedCPUs", "ay", MaskOfList(write.value)});
    if (write.file == "cpuset.mems")
      properties.push_back({"AllowedMemoryNodes", "ay", MaskOfList(write.value)});
  }
  return properties;
}

}  // namespace hutch::cgroups
