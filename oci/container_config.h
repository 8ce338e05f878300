// config.json of the OCI runtime specification 1.3, for Linux: the names of the specification, no
// behaviour.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "oci/json.h"
#include "oci/runtime_spec.h"

namespace hutch::oci {

struct DeviceRule {
  bool allow = false;
  std::string type;
  std::optional<int64_t> major, minor;
  std::string access;
};
struct MemoryResources {
  std::optional<int64_t> limit, reservation, swap, kernel, kernel_tcp;
  std::optional<uint64_t> swappiness;
  std::optional<bool> disable_oom_killer, use_hierarchy, check_before_update;
};
struct CpuResources {
  std::optional<uint64_t> shares, period, burst, realtime_period;
  std::optional<int64_t> quota, realtime_runtime, idle;
  std::string cpus, mems;
};
struct WeightDevice {
  int64_t major = 0, minor = 0;
  std::optional<uint16_t> weight, leaf_weight;
};
struct ThrottleDevice {
  int64_t major = 0, minor = 0;
  uint64_t rate = 0;
};
struct BlockIoResources {
  std::optional<uint16_t> weight, leaf_weight;
  std::vector<WeightDevice> weight_devices;
  std::vector<ThrottleDevice> throttle_read_bps, throttle_write_bps, throttle_read_iops,
      throttle_write_iops;
};
struct HugepageLimit {
  std::string page_size;
  uint64_t limit = 0;
};
struct RdmaLimit {
  std::optional<uint32_t> hca_handles, hca_objects;
};
struct NetworkResources {
  std::optional<uint32_t> class_id;
  std::vector<std::pair<std::string, uint32_t>> priorities;
};
struct ContainerResources {
  std::vector<DeviceRule> devices;
  std::optional<MemoryResources> memory;
  std::optional<CpuResources> cpu;
  std::optional<int64_t> pids_limit;
  std::optional<BlockIoResources> block_io;
  std::vector<HugepageLimit> hugepage_limits;
  std::map<std::string, RdmaLimit> rdma;
  std::optional<NetworkResources> network;
  std::map<std::string, std::string> unified;
};

struct ContainerUser {
  uint32_t uid = 0, gid = 0;
  std::optional<uint32_t> umask;
  std::vector<uint32_t> additional_gids;
};
struct ConsoleSize {
  uint32_t height = 0, width = 0;
};
struct Scheduler {
  std::string policy;
  int nice = 0, priority = 0;
  std::vector<std::string> flags;
  uint64_t runtime = 0, deadline = 0, period = 0;
};
struct IoPriority {
  std::string io_class;
  std::optional<int> priority;
};
struct CpuAffinity {  // of processes of exec; empty: not given
  std::vector<uint32_t> initial, final;
};
struct ContainerProcess {
  bool terminal = false;
  ConsoleSize console_size;
  ContainerUser user;
  std::vector<std::string> args, env;
  std::string cwd;
  std::vector<Rlimit> rlimits;
  Capabilities capabilities;
  bool no_new_privileges = false;
  std::optional<int> oom_score_adj;
  std::optional<Scheduler> scheduler;
  std::optional<IoPriority> io_priority;
  CpuAffinity exec_cpu_affinity;
  std::string apparmor_profile, selinux_label;
};
struct ContainerRoot {
  std::string path;
  bool readonly = false;
};
struct Namespace {
  std::string type, path;
};
struct ContainerMount {
  std::string destination, type, source;
  std::vector<std::string> options;
  std::vector<IdMapping> uid_mappings, gid_mappings;
};
struct Hook {
  std::string path;
  std::vector<std::string> args, env;
  std::optional<uint32_t> timeout_seconds;
};
struct Hooks {
  std::vector<Hook> prestart, create_runtime, create_container, start_container, poststart,
      poststop;
};
struct Device {
  std::string path, type;
  int64_t major = 0, minor = 0;
  std::optional<uint32_t> file_mode, uid, gid;
};
struct TimeOffset {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;
};
struct NetDevice {
  std::string host_name;  // the key of linux.netDevices
  std::string name;       // in the container; empty: the same
};
struct MemoryPolicy {
  std::string mode;  // "MPOL_BIND"
  std::vector<uint32_t> nodes;
  std::vector<std::string> flags;
};
struct ContainerLinux {
  std::vector<Namespace> namespaces;
  std::vector<IdMapping> uid_mappings, gid_mappings;
  std::map<std::string, TimeOffset> time_offsets;
  std::vector<Device> devices;
  std::string cgroups_path;
  ContainerResources resources;
  std::string rootfs_propagation;
  std::optional<LinuxSeccomp> seccomp;
  std::map<std::string, std::string> sysctl;
  std::vector<std::string> masked_paths, readonly_paths;
  std::string mount_label;
  std::optional<uint64_t> personality;
  std::vector<NetDevice> net_devices;
  std::optional<MemoryPolicy> memory_policy;
};
struct ContainerConfig {
  std::string oci_version, hostname, domainname;
  ContainerRoot root;
  std::optional<ContainerProcess> process;
  std::vector<ContainerMount> mounts;
  Hooks hooks;
  std::map<std::string, std::string> annotations;
  ContainerLinux linux_;
};

// The whole document; `process` alone (exec --process); linux.resources alone (update); an array of
// mounts alone (mounts add). Unknown
// members are ignored. kInvalidArgument and kUnsupported with the JSON path in text and `field`.
Result<ContainerConfig> ParseContainerConfig(const Json& json);
Result<ContainerProcess> ParseContainerProcess(const Json& json,
                                               const std::string& path = "process");
Result<ContainerResources> ParseContainerResources(const Json& json,
                                                   const std::string& path = "linux.resources");

Result<std::vector<ContainerMount>> ParseContainerMounts(const Json& json,
                                                         const std::string& path = "mounts");

}  // namespace hutch::oci
