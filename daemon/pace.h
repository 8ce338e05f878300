// Bounds what moving tenants' output takes of the event loop: half of its time, in small pieces, in
// turn. So a hundred processes that flood their logs delay nobody else's request by more than a
// piece, and are held back themselves by full pipes.
#pragma once

#include <deque>
#include <functional>

#include "daemon/loop.h"

namespace hutch::daemon {

class Pace {
 public:
  explicit Pace(Loop& loop) : loop_(loop) {}
  // Runs `piece` (some 64 KiB of work) now or later, in the order of the calls. It may find its
  // owner gone: capture weakly.
  void Run(std::function<void()> piece);

 private:
  void RunDue();

  Loop& loop_;
  std::deque<std::function<void()>> waiting_;
  SteadyTime free_at_{};  // when as much time has passed as was spent
  bool running_ = false;
  Timer timer_;
};

}  // namespace hutch::daemon
