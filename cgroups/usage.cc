#include "cgroups/usage.h"

#include <algorithm>

#include "cgroups/controllers.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {
namespace {

void ReadCpu(int dir, Usage& usage) {
  const std::string stat = ReadText(dir, "cpu.stat");
  usage.cpu_user_us = FindKey(stat, "user_usec").value_or(0);
  usage.cpu_system_us = FindKey(stat, "system_usec").value_or(0);
}

void ReadMemoryV2(int dir, Usage& usage) {
  usage.memory_bytes = ReadNumber(dir, "memory.current").value_or(0);
  const std::string stat = ReadText(dir, "memory.stat");
  usage.cache_bytes = FindKey(stat, "file").value_or(0);
  usage.shared_bytes = FindKey(stat, "shmem").value_or(0);
  usage.reclaimable_bytes = FindKey(stat, "slab_reclaimable").value_or(0);
}

void ReadMemoryV1(int dir, Usage& usage) {
  usage.memory_bytes = ReadNumber(dir, "memory.usage_in_bytes").value_or(0);
  const std::string stat = ReadText(dir, "memory.stat");
  usage.cache_bytes = FindKey(stat, "total_cache").value_or(0);
  usage.shared_bytes = FindKey(stat, "total_shmem").value_or(0);
}

}  // namespace

Usage SandboxGroup::ReadUsage() const {
  Usage usage;
  if (!work_dir_.valid()) return usage;
  ReadCpu(work_dir_.get(), usage);
  if (mode_ == Mode::kV2) {
    ReadMemoryV2(work_dir_.get(), usage);
    usage.tasks = ReadNumber(work_dir_.get(), "pids.current").value_or(0);
    return usage;
  }
  for (const V1Group& v1 : v1_) {
    const auto has = [&](const char* name) {
      return std::find(v1.controllers.begin(), v1.controllers.end(), name) != v1.controllers.end();
    };
    if (has("memory")) ReadMemoryV1(v1.dir.get(), usage);
    if (!has("pids")) continue;
    const uint64_t tasks = ReadNumber(v1.dir.get(), "pids.current").value_or(0);
    usage.tasks = tasks - std::min<uint64_t>(tasks, 1);  // the agent is in it
  }
  return usage;
}

}  // namespace hutch::cgroups
