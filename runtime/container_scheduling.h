// When, where and with which memory a container's process runs: scheduler, I/O priority, CPUs, and
// the NUMA memory policy.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/container_config.h"

namespace hutch::runtime {

struct SchedulerAttributes {  // struct sched_attr, which glibc 2.36 lacks
  uint32_t size = sizeof(SchedulerAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;  // nanoseconds
};
struct PlannedMemoryPolicy {
  int mode = 0;  // with the flags, as set_mempolicy(2) takes it
  std::vector<unsigned long> nodes;
};
struct Scheduling {
  std::optional<SchedulerAttributes> scheduler;
  std::optional<int> io_priority;  // as ioprio_set(2) takes it
  std::optional<PlannedMemoryPolicy> memory;
};

// Pure. kInvalidArgument and kUnsupported with the JSON path for names, and for values that the
// kernel would not take.
Result<Scheduling> PlanScheduling(const oci::ContainerProcess& process,
                                  const oci::ContainerLinux& linux_part);

// Scheduler and I/O priority of another process.
Status SetScheduling(const Scheduling& plan, pid_t pid);
// Of the calling process, and of what it executes. Nodes are counted in its group's. kUnsupported
// where the kernel has no such policies.
Status SetMemoryPolicy(const Scheduling& plan);

// Where a process may run, within its group's CPUs. `field`: where the list was given.
Status RunOnCpus(pid_t pid, const std::vector<uint32_t>& cpus, const char* field);
// On all of its group's, wherever its parent was confined to.
Status RunOnAllCpus(pid_t pid);

// What linux.memoryPolicy may name.
std::vector<std::string> MemoryPolicyModes();
std::vector<std::string> MemoryPolicyFlags();

}  // namespace hutch::runtime
