// Which CPUs a sandbox's processes start on, so that programs which count CPUs find as many as
// their quota is worth. A hint, not a bound: a process may widen it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hutch::daemon {

// Those that hutchd itself may use (sched_getaffinity(2)), in order.
std::vector<uint32_t> UsableCpus();

class CpuTurns {
 public:
  explicit CpuTurns(std::vector<uint32_t> usable) : usable_(std::move(usable)) {}

  // How many a quota of `cpus` shows: rounded up, no more than there are.
  uint32_t Shown(double cpus) const;
  // The next Shown() of them in turn, in order; empty when that is all of them.
  std::vector<uint32_t> Take(double cpus);

 private:
  std::vector<uint32_t> usable_;
  size_t next_ = 0;
};

}  // namespace hutch::daemon
