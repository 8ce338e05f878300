#include "daemon/pace.h"

#include <algorithm>

namespace hutch::daemon {

void Pace::Run(std::function<void()> piece) {
  waiting_.push_back(std::move(piece));
  if (!running_ && !timer_.running()) RunDue();
}

void Pace::RunDue() {
  running_ = true;
  SteadyTime now = Loop::Now();
  while (!waiting_.empty() && free_at_ <= now) {
    const std::function<void()> piece = std::move(waiting_.front());
    waiting_.pop_front();
    piece();
    const SteadyTime after = Loop::Now();
    // What was spent is owed once more: others' time.
    free_at_ = std::max(free_at_, now) + 2 * (after - now);
    now = after;
  }
  running_ = false;
  if (!waiting_.empty()) timer_.StartAt(loop_, free_at_, [this] { RunDue(); });
}

}  // namespace hutch::daemon
