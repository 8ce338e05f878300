#include "cgroups/container_limits.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cgroups/hugepages.h"

namespace hutch::cgroups {
namespace {

constexpr char kMemory[] = "memory", kCpu[] = "cpu", kCpuset[] = "cpuset", kPids[] = "pids";

Error Invalid(std::string field, std::string what) {
  return {.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

Error Unsupported(std::string field, std::string what) {
  return {.code = Code::kUnsupported, .what = std::move(what), .field = std::move(field)};
}

// Collects the writes; the first error ends it.
class Planner {
 public:
  Planner(const oci::ContainerResources& resources, const VersionOf& version_of)
      : r_(resources), version_of_(version_of) {}

  Status PlanAll();
  std::vector<LimitWrite> Take() { return std::move(writes_); }

 private:
  void Add(std::string controller, std::string file, std::string value, const char* field,
           IfAbsent if_absent = IfAbsent::kRefuse) {
    writes_.push_back({std::move(controller), std::move(file), std::move(value),
                       std::string("linux.resources.") + field, if_absent});
  }
  Result<int> Need(const char* controller, const char* field) const;

  Status PlanMemory();
  Status PlanMemoryV2(const oci::MemoryResources& memory);
  Status PlanMemoryV1(const oci::MemoryResources& memory);
  Status PlanCpu();
  void PlanCpuV2(const oci::CpuResources& cpu);
  void PlanCpuV1(const oci::CpuResources& cpu);
  Status PlanCpuset();
  Status PlanPids();
  Status PlanBlockIo();
  Status PlanBlockIoV2(const oci::BlockIoResources& io);
  void PlanBlockIoV1(const oci::BlockIoResources& io);
  Status PlanHugetlb();
  Status PlanRdma();
  Status PlanNetwork();
  Status PlanUnified();

  const oci::ContainerResources& r_;
  const VersionOf& version_of_;
  std::vector<LimitWrite> writes_;
};

Result<int> Planner::Need(const char* controller, const char* field) const {
  const int version = version_of_(controller);
  if (version != 0) return version;
  return Unsupported(std::string("linux.resources.") + field,
                     std::string("a limit of the ") + controller +
                         " controller was asked for, and the container's cgroup has none");
}

// -1 is "no limit".
std::string OrMax(int64_t value) { return value < 0 ? "max" : std::to_string(value); }

Status Planner::PlanMemory() {
  if (!r_.memory) return OkStatus();
  const oci::MemoryResources& m = *r_.memory;
  const bool any = m.limit || m.reservation || m.swap || m.kernel || m.kernel_tcp || m.swappiness ||
                   m.disable_oom_killer.value_or(false);
  if (!any) return OkStatus();
  ASSIGN_OR_RETURN(const int version, Need(kMemory, "memory"));
  for (const auto& [value, field] : {std::pair(m.limit, "linux.resources.memory.limit"),
                                     std::pair(m.reservation, "linux.resources.memory.reservation"),
                                     std::pair(m.swap, "linux.resources.memory.swap")})
    if (value.value_or(0) < -1)
      return Invalid(field, "a limit is a number of bytes, or -1 for none");
  if (m.kernel.value_or(0) > 0)
    return Unsupported("linux.resources.memory.kernel",
                       "no kernel that hutch runs on limits kernel memory alone");
  if (m.swap.value_or(-1) > 0 && m.limit.value_or(0) > 0 && *m.swap < *m.limit)
    return Invalid("linux.resources.memory.swap", "memory+swap (" + std::to_string(*m.swap) +
                                                      ") is less than memory (" +
                                                      std::to_string(*m.limit) + ")");
  return version == 2 ? PlanMemoryV2(m) : PlanMemoryV1(m);
}

Status Planner::PlanMemoryV2(const oci::MemoryResources& m) {
  if (m.kernel_tcp.value_or(0) > 0)
    return Unsupported("linux.resources.memory.kernelTCP", "cgroup v2 has no such limit");
  if (m.swappiness)
    return Unsupported("linux.resources.memory.swappiness", "cgroup v2 has no such setting");
  if (m.disable_oom_killer.value_or(false))
    return Unsupported("linux.resources.memory.disableOOMKiller",
                       "cgroup v2 cannot disable the out-of-memory killer");
  // The specification's swap is memory and swap together, v2's is swap alone.
  const int64_t limit = m.limit.value_or(0), swap = m.swap.value_or(0);
  if (swap > 0 && limit <= 0)
    return Invalid("linux.resources.memory.swap",
                   limit < 0 ? "a limit of swap without one of memory"
                             : "a limit of memory+swap needs one of memory");
  if (swap < 0 || (limit < 0 && swap == 0))
    Add(kMemory, "memory.swap.max", "max", "memory.swap", IfAbsent::kSkip);
  if (swap > 0)
    Add(kMemory, "memory.swap.max", std::to_string(swap - limit), "memory.swap", IfAbsent::kSkip);
  if (limit != 0) Add(kMemory, "memory.max", OrMax(limit), "memory.limit");
  if (m.reservation.value_or(0) != 0)
    Add(kMemory, "memory.low", OrMax(*m.reservation), "memory.reservation");
  return OkStatus();
}

Status Planner::PlanMemoryV1(const oci::MemoryResources& m) {
  const int64_t limit = m.limit.value_or(0);
  // As docker and runc have it: no limit of memory takes that of both away, too.
  const int64_t both = m.swap.value_or(limit == -1 ? -1 : 0);
  if (limit != 0) Add(kMemory, "memory.limit_in_bytes", std::to_string(limit), "memory.limit");
  if (both != 0)
    Add(kMemory, "memory.memsw.limit_in_bytes", std::to_string(both), "memory.swap",
        both < 0 || both == limit ? IfAbsent::kSkip : IfAbsent::kRefuse);
  if (m.reservation.value_or(0) != 0)
    Add(kMemory, "memory.soft_limit_in_bytes", std::to_string(*m.reservation),
        "memory.reservation");
  if (m.kernel_tcp.value_or(0) != 0)
    Add(kMemory, "memory.kmem.tcp.limit_in_bytes", std::to_string(*m.kernel_tcp),
        "memory.kernelTCP");
  if (m.swappiness) {
    if (*m.swappiness > 100)
      return Invalid("linux.resources.memory.swappiness", "swappiness is 0 to 100");
    Add(kMemory, "memory.swappiness", std::to_string(*m.swappiness), "memory.swappiness");
  }
  if (m.disable_oom_killer.value_or(false))
    Add(kMemory, "memory.oom_control", "1", "memory.disableOOMKiller");
  return OkStatus();
}

Status Planner::PlanCpu() {
  if (!r_.cpu) return OkStatus();
  const oci::CpuResources& c = *r_.cpu;
  const bool realtime = c.realtime_runtime.value_or(0) != 0 || c.realtime_period.value_or(0) != 0;
  const bool any = c.shares.value_or(0) != 0 || c.quota.value_or(0) != 0 ||
                   c.period.value_or(0) != 0 || c.burst || c.idle || realtime;
  if (!any) return OkStatus();
  ASSIGN_OR_RETURN(const int version, Need(kCpu, "cpu"));
  if (realtime && version == 2)
    return Unsupported("linux.resources.cpu.realtimeRuntime",
                       "cgroup v2 cannot limit realtime scheduling");
  if (version == 2)
    PlanCpuV2(c);
  else
    PlanCpuV1(c);
  return OkStatus();
}

void Planner::PlanCpuV2(const oci::CpuResources& c) {
  // An idle group has no weight: the kernel refuses to set one.
  if (c.idle) Add(kCpu, "cpu.idle", std::to_string(*c.idle), "cpu.idle");
  if (c.shares.value_or(0) != 0 && c.idle.value_or(0) != 1)
    Add(kCpu, "cpu.weight", std::to_string(WeightOfShares(*c.shares)), "cpu.shares");
  const int64_t quota = c.quota.value_or(0);
  const uint64_t period = c.period.value_or(0);
  if (quota != 0 || period != 0) {
    const std::string first = quota == 0  ? std::string(kKeepFirstWord)
                              : quota < 0 ? "max"
                                          : std::to_string(quota);
    Add(kCpu, "cpu.max", first + (period == 0 ? "" : " " + std::to_string(period)),
        quota != 0 ? "cpu.quota" : "cpu.period");
  }
  if (c.burst) Add(kCpu, "cpu.max.burst", std::to_string(*c.burst), "cpu.burst");
}

void Planner::PlanCpuV1(const oci::CpuResources& c) {
  if (c.idle) Add(kCpu, "cpu.idle", std::to_string(*c.idle), "cpu.idle");
  if (c.shares.value_or(0) != 0 && c.idle.value_or(0) != 1)
    Add(kCpu, "cpu.shares", std::to_string(*c.shares), "cpu.shares");
  if (c.realtime_period.value_or(0) != 0)
    Add(kCpu, "cpu.rt_period_us", std::to_string(*c.realtime_period), "cpu.realtimePeriod");
  if (c.realtime_runtime.value_or(0) != 0)
    Add(kCpu, "cpu.rt_runtime_us", std::to_string(*c.realtime_runtime), "cpu.realtimeRuntime");
  if (c.period.value_or(0) != 0)
    Add(kCpu, "cpu.cfs_period_us", std::to_string(*c.period), "cpu.period");
  if (c.quota.value_or(0) != 0)
    Add(kCpu, "cpu.cfs_quota_us", std::to_string(std::max<int64_t>(*c.quota, -1)), "cpu.quota");
  if (c.burst) Add(kCpu, "cpu.cfs_burst_us", std::to_string(*c.burst), "cpu.burst");
}

Status Planner::PlanCpuset() {
  if (!r_.cpu || (r_.cpu->cpus.empty() && r_.cpu->mems.empty())) return OkStatus();
  RETURN_IF_ERROR(Need(kCpuset, "cpu.cpus"));
  if (!r_.cpu->cpus.empty()) Add(kCpuset, "cpuset.cpus", r_.cpu->cpus, "cpu.cpus");
  if (!r_.cpu->mems.empty()) Add(kCpuset, "cpuset.mems", r_.cpu->mems, "cpu.mems");
  return OkStatus();
}

Status Planner::PlanPids() {
  if (!r_.pids_limit) return OkStatus();
  // "No limit" is what a host without the controller has.
  if (*r_.pids_limit <= 0 && version_of_(kPids) == 0) return OkStatus();
  RETURN_IF_ERROR(Need(kPids, "pids.limit"));
  Add(kPids, "pids.max", *r_.pids_limit > 0 ? std::to_string(*r_.pids_limit) : "max", "pids.limit");
  return OkStatus();
}

std::string Device(int64_t major, int64_t minor) {
  return std::to_string(major) + ":" + std::to_string(minor);
}

// The controller is named io on v2 and blkio on v1.
Status Planner::PlanBlockIo() {
  if (!r_.block_io) return OkStatus();
  const oci::BlockIoResources& io = *r_.block_io;
  const bool any = io.weight.value_or(0) != 0 || io.leaf_weight.value_or(0) != 0 ||
                   !io.weight_devices.empty() || !io.throttle_read_bps.empty() ||
                   !io.throttle_write_bps.empty() || !io.throttle_read_iops.empty() ||
                   !io.throttle_write_iops.empty();
  if (!any) return OkStatus();
  if (io.leaf_weight.value_or(0) != 0)
    return Unsupported("linux.resources.blockIO.leafWeight",
                       "no kernel that hutch runs on has leaf weights");
  if (version_of_("blkio") == 1) {
    PlanBlockIoV1(io);
    return OkStatus();
  }
  RETURN_IF_ERROR(Need("io", "blockIO"));
  return PlanBlockIoV2(io);
}

Status Planner::PlanBlockIoV2(const oci::BlockIoResources& io) {
  // BFQ's file has v1's range.
  if (io.weight.value_or(0) != 0) {
    Add("io", "io.bfq.weight", std::to_string(*io.weight), "blockIO.weight", IfAbsent::kNextFile);
    Add("io", "io.weight", std::to_string(IoWeightOf(*io.weight)), "blockIO.weight");
  }
  for (const auto& device : io.weight_devices) {
    if (device.weight.value_or(0) == 0) continue;
    const std::string name = Device(device.major, device.minor) + " ";
    Add("io", "io.bfq.weight", name + std::to_string(*device.weight), "blockIO.weightDevice",
        IfAbsent::kNextFile);
    Add("io", "io.weight", name + std::to_string(IoWeightOf(*device.weight)),
        "blockIO.weightDevice");
  }
  const auto throttle = [&](const std::vector<oci::ThrottleDevice>& devices, const char* key,
                            const char* field) {
    for (const auto& device : devices)
      Add("io", "io.max",
          Device(device.major, device.minor) + " " + key + "=" +
              (device.rate == 0 ? "max" : std::to_string(device.rate)),
          field);
  };
  throttle(io.throttle_read_bps, "rbps", "blockIO.throttleReadBpsDevice");
  throttle(io.throttle_write_bps, "wbps", "blockIO.throttleWriteBpsDevice");
  throttle(io.throttle_read_iops, "riops", "blockIO.throttleReadIOPSDevice");
  throttle(io.throttle_write_iops, "wiops", "blockIO.throttleWriteIOPSDevice");
  return OkStatus();
}

void Planner::PlanBlockIoV1(const oci::BlockIoResources& io) {
  if (io.weight.value_or(0) != 0) {
    Add("blkio", "blkio.weight", std::to_string(*io.weight), "blockIO.weight", IfAbsent::kNextFile);
    Add("blkio", "blkio.bfq.weight", std::to_string(*io.weight), "blockIO.weight");
  }
  for (const auto& device : io.weight_devices) {
    if (device.weight.value_or(0) == 0) continue;
    const std::string value =
        Device(device.major, device.minor) + " " + std::to_string(*device.weight);
    Add("blkio", "blkio.weight_device", value, "blockIO.weightDevice", IfAbsent::kNextFile);
    Add("blkio", "blkio.bfq.weight_device", value, "blockIO.weightDevice");
  }
  const auto throttle = [&](const std::vector<oci::ThrottleDevice>& devices, const char* file,
                            const char* field) {
    for (const auto& device : devices)
      Add("blkio", std::string("blkio.throttle.") + file,
          Device(device.major, device.minor) + " " + std::to_string(device.rate), field);
  };
  throttle(io.throttle_read_bps, "read_bps_device", "blockIO.throttleReadBpsDevice");
  throttle(io.throttle_write_bps, "write_bps_device", "blockIO.throttleWriteBpsDevice");
  throttle(io.throttle_read_iops, "read_iops_device", "blockIO.throttleReadIOPSDevice");
  throttle(io.throttle_write_iops, "write_iops_device", "blockIO.throttleWriteIOPSDevice");
}

Status Planner::PlanHugetlb() {
  for (const auto& limit : r_.hugepage_limits) {
    ASSIGN_OR_RETURN(const int version, Need("hugetlb", "hugepageLimits"));
    const std::string value = std::to_string(limit.limit);
    const std::string prefix = "hugetlb." + limit.page_size;
    if (version == 2) {
      Add("hugetlb", prefix + ".max", value, "hugepageLimits");
      // What is only reserved counts, too: else a mapping is killed instead of refused.
      Add("hugetlb", prefix + ".rsvd.max", value, "hugepageLimits", IfAbsent::kSkip);
      continue;
    }
    Add("hugetlb", prefix + ".limit_in_bytes", value, "hugepageLimits");
    Add("hugetlb", prefix + ".rsvd.limit_in_bytes", value, "hugepageLimits", IfAbsent::kSkip);
  }
  return OkStatus();
}

Status Planner::PlanRdma() {
  for (const auto& [device, limit] : r_.rdma) {
    RETURN_IF_ERROR(Need("rdma", "rdma"));
    std::string value = device;
    if (limit.hca_handles) value += " hca_handle=" + std::to_string(*limit.hca_handles);
    if (limit.hca_objects) value += " hca_object=" + std::to_string(*limit.hca_objects);
    Add("rdma", "rdma.max", value, "rdma");
  }
  return OkStatus();
}

Status Planner::PlanNetwork() {
  if (!r_.network) return OkStatus();
  if (r_.network->class_id.value_or(0) != 0) {
    RETURN_IF_ERROR(Need("net_cls", "network.classID"));
    Add("net_cls", "net_cls.classid", std::to_string(*r_.network->class_id), "network.classID");
  }
  for (const auto& [name, priority] : r_.network->priorities) {
    RETURN_IF_ERROR(Need("net_prio", "network.priorities"));
    Add("net_prio", "net_prio.ifpriomap", name + " " + std::to_string(priority),
        "network.priorities");
  }
  return OkStatus();
}

// Verbatim, line by line; the name of a file begins with that of its controller.
Status Planner::PlanUnified() {
  for (const auto& [file, value] : r_.unified) {
    const std::string field = "linux.resources.unified." + file;
    if (file.empty() || file.find('/') != std::string::npos || file.find('.') == std::string::npos)
      return Invalid(field, "the specified key has not the form CONTROLLER.VALUE `" + file + "`");
    const std::string controller = file.substr(0, file.find('.'));
    const bool of_every_group = controller == "cgroup";
    if (!of_every_group && version_of_(controller) != 2)
      return Unsupported(field,
                         "the requested cgroup controller `" + controller + "` is not available");
    // The kernel takes one device of io.max at a time, and the like.
    const bool lines = value.find('\n') != std::string::npos;
    for (const std::string& line : lines ? Split(value, '\n') : std::vector<std::string>{value})
      if (!lines || !line.empty())
        writes_.push_back({controller, file, line, field, IfAbsent::kRefuse});
  }
  return OkStatus();
}

Status Planner::PlanAll() {
  RETURN_IF_ERROR(PlanMemory());
  RETURN_IF_ERROR(PlanPids());
  RETURN_IF_ERROR(PlanCpu());
  RETURN_IF_ERROR(PlanCpuset());
  RETURN_IF_ERROR(PlanBlockIo());
  RETURN_IF_ERROR(PlanHugetlb());
  RETURN_IF_ERROR(PlanRdma());
  RETURN_IF_ERROR(PlanNetwork());
  return PlanUnified();  // last: it wins
}

}  // namespace

Result<std::vector<LimitWrite>> PlanLimits(const oci::ContainerResources& resources,
                                           const VersionOf& version_of) {
  Planner planner(resources, version_of);
  RETURN_IF_ERROR(planner.PlanAll());
  return planner.Take();
}

// The two scales have different defaults, 1024 and 100, at different places of their ranges: the
// exponent is the parabola through (2, 1), (1024, 100) and (262144, 10000).
uint64_t WeightOfShares(uint64_t shares) {
  constexpr uint64_t kLeast = 2, kMost = 262144;
  if (shares <= kLeast) return 1;
  if (shares >= kMost) return 10000;
  const double log = std::log2(static_cast<double>(shares));
  const double exponent = (log * log + 125 * log) / 612.0 - 7.0 / 34.0;
  return static_cast<uint64_t>(std::ceil(std::pow(10, exponent) - 1e-9));
}

std::vector<DeviceRule> DeviceRulesOf(const oci::ContainerResources& resources) {
  std::vector<DeviceRule> rules;
  // -1 is "every", too: what other runtimes write for it.
  const auto number = [](const std::optional<int64_t>& n) {
    return n && *n >= 0 ? std::optional(static_cast<uint32_t>(*n)) : std::nullopt;
  };
  for (const auto& rule : resources.devices) {
    uint32_t access = 0;
    for (const char letter : rule.access)
      access |= letter == 'r' ? kDeviceRead : letter == 'w' ? kDeviceWrite : kDeviceMknod;
    rules.push_back({.allow = rule.allow,
                     .type = rule.type == "b" || rule.type == "c" ? rule.type[0] : 'a',
                     .major = number(rule.major),
                     .minor = number(rule.minor),
                     .access = access == 0 ? uint32_t{kDeviceAll} : access});
  }
  return rules;
}

uint64_t IoWeightOf(uint64_t weight) {
  const uint64_t bounded = std::clamp<uint64_t>(weight, 10, 1000);
  return 1 + (bounded - 10) * 9999 / 990;
}

}  // namespace hutch::cgroups
