// Numbers that programs inside read, kept in agreement with limits and use. On the loop's thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/cpu_turns.h"
#include "daemon/loop.h"
#include "daemon/sandbox_entry.h"

namespace hutch::daemon {

class SandboxNumbers {
 public:
  // All borrowed.
  SandboxNumbers(Loop& loop, const LivingSandboxes& living, const CpuTurns& cpus)
      : loop_(loop), living_(living), cpus_(cpus) {}

  void SetProcessors(std::vector<std::string> processors) { processors_ = std::move(processors); }
  void Open(SandboxEntry& entry);
  void WriteFirst(SandboxEntry& entry);
  void Refresh(SandboxEntry& entry);
  void RefreshBeforeCommand(SandboxEntry& entry);
  void Schedule();

 private:
  Loop& loop_;
  const LivingSandboxes& living_;
  const CpuTurns& cpus_;
  std::vector<std::string> processors_;  // of the host, as /proc/cpuinfo tells of them
  Timer timer_;
};

}  // namespace hutch::daemon
