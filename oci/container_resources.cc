#include "oci/config_reader.h"
#include "oci/container_config.h"

namespace hutch::oci {
namespace {

Result<DeviceRule> ParseRule(const Json& json, const std::string& path) {
  DeviceRule rule;
  ConfigReader reader(json, path);
  reader.Bool("allow", &rule.allow).String("type", &rule.type).String("access", &rule.access);
  reader.Integer("major", &rule.major).Integer("minor", &rule.minor);
  RETURN_IF_ERROR(reader.End());
  return rule;
}

Status ParseMemory(const Json& json, const std::string& path, ContainerResources* out) {
  MemoryResources memory;
  ConfigReader reader(json, path);
  reader.Integer("limit", &memory.limit).Integer("reservation", &memory.reservation);
  reader.Integer("swap", &memory.swap).Integer("kernel", &memory.kernel);
  reader.Integer("kernelTCP", &memory.kernel_tcp).Integer("swappiness", &memory.swappiness);
  reader.OptionalBool("disableOOMKiller", &memory.disable_oom_killer)
      .OptionalBool("useHierarchy", &memory.use_hierarchy)
      .OptionalBool("checkBeforeUpdate", &memory.check_before_update);
  out->memory = memory;
  return reader.End();
}

Status ParseCpu(const Json& json, const std::string& path, ContainerResources* out) {
  CpuResources cpu;
  ConfigReader reader(json, path);
  reader.Integer("shares", &cpu.shares).Integer("quota", &cpu.quota).Integer("period", &cpu.period);
  reader.Integer("burst", &cpu.burst).Integer("realtimeRuntime", &cpu.realtime_runtime);
  reader.Integer("realtimePeriod", &cpu.realtime_period).Integer("idle", &cpu.idle);
  reader.String("cpus", &cpu.cpus).String("mems", &cpu.mems);
  out->cpu = cpu;
  return reader.End();
}

Result<WeightDevice> ParseWeight(const Json& json, const std::string& path) {
  WeightDevice device;
  ConfigReader reader(json, path);
  reader.Integer("major", &device.major).Integer("minor", &device.minor);
  reader.Integer("weight", &device.weight).Integer("leafWeight", &device.leaf_weight);
  RETURN_IF_ERROR(reader.End());
  return device;
}

Result<ThrottleDevice> ParseThrottle(const Json& json, const std::string& path) {
  ThrottleDevice device;
  ConfigReader reader(json, path);
  reader.Integer("major", &device.major).Integer("minor", &device.minor);
  reader.Integer("rate", &device.rate);
  RETURN_IF_ERROR(reader.End());
  return device;
}

Status ParseBlockIo(const Json& json, const std::string& path, ContainerResources* out) {
  BlockIoResources io;
  ConfigReader reader(json, path);
  reader.Integer("weight", &io.weight).Integer("leafWeight", &io.leaf_weight);
  RETURN_IF_ERROR(ParseArray(reader, "weightDevice", &io.weight_devices, ParseWeight));
  RETURN_IF_ERROR(
      ParseArray(reader, "throttleReadBpsDevice", &io.throttle_read_bps, ParseThrottle));
  RETURN_IF_ERROR(
      ParseArray(reader, "throttleWriteBpsDevice", &io.throttle_write_bps, ParseThrottle));
  RETURN_IF_ERROR(
      ParseArray(reader, "throttleReadIOPSDevice", &io.throttle_read_iops, ParseThrottle));
  RETURN_IF_ERROR(
      ParseArray(reader, "throttleWriteIOPSDevice", &io.throttle_write_iops, ParseThrottle));
  out->block_io = std::move(io);
  return reader.End();
}

Result<HugepageLimit> ParseHugepage(const Json& json, const std::string& path) {
  HugepageLimit limit;
  ConfigReader reader(json, path);
  reader.String("pageSize", &limit.page_size);
  reader.Integer("limit", &limit.limit);
  RETURN_IF_ERROR(reader.End());
  return limit;
}

Status ParseRdma(const Json& json, const std::string& path, ContainerResources* out) {
  if (!json.is_object())
    return Error{
        .code = Code::kInvalidArgument, .what = path + " must be an object", .field = path};
  for (const auto& [device, value] : json.items()) {
    RdmaLimit limit;
    ConfigReader reader(value, path + "." + device);
    reader.Integer("hcaHandles", &limit.hca_handles).Integer("hcaObjects", &limit.hca_objects);
    RETURN_IF_ERROR(reader.End());
    out->rdma[device] = limit;
  }
  return OkStatus();
}

Result<std::pair<std::string, uint32_t>> ParsePriority(const Json& json, const std::string& path) {
  std::pair<std::string, uint32_t> priority;
  ConfigReader reader(json, path);
  reader.String("name", &priority.first);
  reader.Integer("priority", &priority.second);
  RETURN_IF_ERROR(reader.End());
  return priority;
}

Status ParseNetwork(const Json& json, const std::string& path, ContainerResources* out) {
  NetworkResources network;
  ConfigReader reader(json, path);
  reader.Integer("classID", &network.class_id);
  RETURN_IF_ERROR(ParseArray(reader, "priorities", &network.priorities, ParsePriority));
  out->network = std::move(network);
  return reader.End();
}

Status ParsePids(const Json& json, const std::string& path, ContainerResources* out) {
  ConfigReader reader(json, path);
  reader.Integer("limit", &out->pids_limit);
  return reader.End();
}

struct Part {
  const char* name;
  Status (*parse)(const Json&, const std::string&, ContainerResources*);
};
constexpr Part kParts[] = {{"memory", ParseMemory}, {"cpu", ParseCpu},
                           {"pids", ParsePids},     {"blockIO", ParseBlockIo},
                           {"rdma", ParseRdma},     {"network", ParseNetwork}};

}  // namespace

Result<ContainerResources> ParseContainerResources(const Json& json, const std::string& path) {
  ContainerResources resources;
  ConfigReader reader(json, path);
  RETURN_IF_ERROR(ParseArray(reader, "devices", &resources.devices, ParseRule));
  RETURN_IF_ERROR(ParseArray(reader, "hugepageLimits", &resources.hugepage_limits, ParseHugepage));
  reader.StringMap("unified", &resources.unified);
  RETURN_IF_ERROR(reader.End());
  for (const Part& part : kParts)
    if (const Json* member = reader.Member(part.name))
      RETURN_IF_ERROR(part.parse(*member, reader.PathOf(part.name), &resources));
  return resources;
}

}  // namespace hutch::oci
