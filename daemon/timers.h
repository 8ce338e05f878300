// A queue of deadlines with callbacks, without a clock of its own: the event loop asks for the next
// deadline and runs what is due. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace hutch::daemon {

using SteadyTime = std::chrono::steady_clock::time_point;

class Timers {
 public:
  using Id = std::pair<SteadyTime, uint64_t>;

  Id Add(SteadyTime deadline, std::function<void()> callback);
  void Cancel(const Id& id);  // unknown or past ids are fine
  std::optional<SteadyTime> NextDeadline() const;
  // Runs what is due at `now`, in order of deadlines. What callbacks add is run by a later call,
  // even when already due.
  void RunDue(SteadyTime now);
  size_t size() const { return queue_.size(); }

 private:
  std::map<Id, std::function<void()>> queue_;
  uint64_t last_ = 0;
};

}  // namespace hutch::daemon
