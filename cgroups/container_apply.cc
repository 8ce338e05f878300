// Writing a container's limits, and its rules for devices.
#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/container_group.h"
#include "cgroups/container_layout.h"
#include "cgroups/container_limits.h"
#include "cgroups/controllers.h"
#include "cgroups/device_filter.h"
#include "cgroups/paths.h"
#include "cgroups/systemd_scope.h"

namespace hutch::cgroups {
namespace {

// The kernel refuses a value that does not go with the other one's old value: then the second goes
// first.
constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
    {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
    {"cpu.rt_period_us", "cpu.rt_runtime_us"},
    {"cpu.cfs_period_us", "cpu.cfs_quota_us"},
    {"cpu.cfs_quota_us", "cpu.cfs_burst_us"},
    {"cpu.max", "cpu.max.burst"},
};

bool ArePair(const LimitWrite& first, const LimitWrite& second) {
  return std::any_of(std::begin(kPairs), std::end(kPairs), [&](const auto& pair) {
    return pair.first == first.file && pair.second == second.file;
  });
}

Status WriteOne(int dir_fd, const std::string& shown, const LimitWrite& write) {
  std::string value = write.value;
  if (value.starts_with(kKeepFirstWord)) {
    const std::string old = ReadText(dir_fd, write.file.c_str());
    value.replace(0, kKeepFirstWord.size(), old.substr(0, old.find(' ')));
  }
  Status written = WriteLimit(dir_fd, shown, write.file.c_str(), value);
  if (written) return written;
  Error error = std::move(written).error();
  error.field = write.field;
  // v1 refuses a limit that is below what is in use and cannot be reclaimed.
  if (error.sys == EBUSY && write.controller == "memory") {
    error.code = Code::kBadState;
    error.what += ", with " +
                  std::to_string(ReadNumber(dir_fd, "memory.usage_in_bytes").value_or(0)) +
                  " bytes in use";
  }
  return error;
}

Error BelowUse(const char* what, int64_t limit, uint64_t in_use, const char* field) {
  return {.code = Code::kBadState,
          .what = "rejecting " + std::string(what) + " limit " + std::to_string(limit) +
                  ": checkBeforeUpdate is set, and " + std::to_string(in_use) + " bytes are in use",
          .field = std::string("linux.resources.memory.") + field};
}

Status CheckUse(int dir_fd, const oci::MemoryResources& memory) {
  const uint64_t in_use = ReadNumber(dir_fd, "memory.current").value_or(0);
  const uint64_t swapped = ReadNumber(dir_fd, "memory.swap.current").value_or(0);
  const int64_t limit = memory.limit.value_or(0), both = memory.swap.value_or(0);
  if (both > 0 && static_cast<uint64_t>(both) < in_use + swapped)
    return BelowUse("memory+swap", both, in_use + swapped, "swap");
  if (limit > 0 && static_cast<uint64_t>(limit) < in_use)
    return BelowUse("memory", limit, in_use, "limit");
  return OkStatus();
}

bool WantsV2Controllers(const oci::ContainerResources& resources) {
  return !resources.hugepage_limits.empty() || !resources.unified.empty() ||
         !resources.rdma.empty();
}

}  // namespace

// On hybrid hosts the v2 tree mostly has no controllers, and what it has is handed down only when a
// limit needs it: groups that hand something down hold no processes, which others may count on.
void ContainerGroup::HandDownToV2() const {
  const auto found = FindHierarchies();
  if (!found || !place_.v2_path.starts_with(found->v2_root)) return;
  std::string group = found->v2_root;
  for (const std::string& part : Split(place_.v2_path.substr(group.size()), '/')) {
    if (part.empty()) continue;
    HandDownControllers(group);
    group += "/" + part;
  }
}

Status ContainerGroup::Apply(const oci::ContainerResources& resources, DeviceRules devices) const {
  if (!place_.v1.empty() && WantsV2Controllers(resources)) HandDownToV2();
  const auto version_of = [&](std::string_view name) { return HomeOf(name).version; };
  ASSIGN_OR_RETURN(const std::vector<LimitWrite> writes, PlanLimits(resources, version_of));
  if (resources.memory && resources.memory->check_before_update.value_or(false) &&
      HomeOf("memory").version == 2)
    RETURN_IF_ERROR(CheckUse(HomeOf("memory").dir_fd, *resources.memory));
  if (!place_.unit.empty() && place_.v1.empty())
    RETURN_IF_ERROR(
        SetUnitProperties(place_.unit, place_.user_manager, PropertiesOfLimits(writes)));
  const auto home_of = [&](const LimitWrite& write) {
    return write.controller == "cgroup" ? Home{v2_dir_.get(), place_.v2_path, 2}
                                        : HomeOf(write.controller);
  };
  for (size_t i = 0; i < writes.size(); ++i) {
    const Home home = home_of(writes[i]);
    const bool there = HasFile(home.dir_fd, writes[i].file.c_str());
    if (!there && writes[i].if_absent != IfAbsent::kRefuse) continue;
    Status written = WriteOne(home.dir_fd, home.path, writes[i]);
    if (!written && written.error().sys == EINVAL && i + 1 < writes.size() &&
        ArePair(writes[i], writes[i + 1])) {
      RETURN_IF_ERROR(WriteOne(home.dir_fd, home.path, writes[i + 1]));
      written = WriteOne(home.dir_fd, home.path, writes[i]);
    }
    RETURN_IF_ERROR(written);
    if (writes[i].if_absent == IfAbsent::kNextFile) ++i;
  }
  return devices == DeviceRules::kApply ? ApplyDevices(resources) : OkStatus();
}

Status ContainerGroup::ApplyDevices(const oci::ContainerResources& resources) const {
  if (!exists()) return OkStatus();  // an ordinary user's: the kernel lets it make no devices
  const std::vector<DeviceRule> rules = WithDefaultDevices(DeviceRulesOf(resources));
  const Home v1 = HomeOf("devices");
  const auto writes = v1.version == 1 ? PlanV1Devices(rules) : std::nullopt;
  Status applied = OkStatus();
  if (writes)
    for (const auto& [file, value] : *writes) {
      if (applied) applied = WriteLimit(v1.dir_fd, v1.path, file, value);
    }
  else
    applied = AttachDeviceFilter(v2_dir_.get(), CompileDeviceFilter(rules));
  if (!applied && request_.user == GroupUser::kOrdinary &&
      (applied.error().sys == EPERM || applied.error().sys == EACCES))
    return OkStatus();
  return applied;
}

}  // namespace hutch::cgroups
