#include "daemon/cpu_turns.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "runtime/agent_protocol.h"

namespace hutch::daemon {

std::vector<uint32_t> UsableCpus() {
  constexpr size_t kCpus = runtime::kCpuMaskWords * 64;
  static_assert(kCpus == CPU_SETSIZE);
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<uint32_t> cpus;
  // On a host with more CPUs than the mask holds this fails, and everything is left alone.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < kCpus; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

uint32_t CpuTurns::Shown(double cpus) const {
  const auto wanted = static_cast<uint32_t>(std::max(1.0, std::ceil(cpus)));
  return usable_.empty() ? wanted : std::min(wanted, static_cast<uint32_t>(usable_.size()));
}

std::vector<uint32_t> CpuTurns::Take(double cpus) {
  std::vector<uint32_t> taken;
  const uint32_t count = Shown(cpus);
  if (count >= usable_.size()) return taken;
  for (uint32_t i = 0; i < count; ++i) taken.push_back(usable_[next_++ % usable_.size()]);
  std::sort(taken.begin(), taken.end());
  return taken;
}

}  // namespace hutch::daemon
