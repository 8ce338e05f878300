// What is made ahead of need learns from what was asked for: the daemon's part of the pools of
// blanks (runtime/runtime.h). On the loop's thread.
#pragma once

#include <functional>

#include "daemon/loop.h"
#include "daemon/sandbox_parts.h"
#include "network/policy.h"

namespace hutch::daemon {

class SandboxBlanks {
 public:
  explicit SandboxBlanks(const SandboxParts& parts) : parts_(parts) {}  // borrowed

  // Whether requests are under way: what is missing is made when none are.
  void SetBusyCheck(std::function<bool()> busy) { busy_ = std::move(busy); }
  void ScheduleRefill();
  void ExpectNetworksLike(network::Mode mode);
  void Link();

 private:
  const SandboxParts& parts_;
  std::function<bool()> busy_ = [] { return false; };
  int postponed_ = 0;
  bool links_expected_ = false;  // a sandbox of mode open was made
  Timer timer_;
};

}  // namespace hutch::daemon
