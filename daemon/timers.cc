#include "daemon/timers.h"

namespace hutch::daemon {

Timers::Id Timers::Add(SteadyTime deadline, std::function<void()> callback) {
  const Id id{deadline, ++last_};
  queue_.emplace(id, std::move(callback));
  return id;
}

void Timers::Cancel(const Id& id) { queue_.erase(id); }

std::optional<SteadyTime> Timers::NextDeadline() const {
  if (queue_.empty()) return std::nullopt;
  return queue_.begin()->first.first;
}

void Timers::RunDue(SteadyTime now) {
  const uint64_t newest = last_;
  auto it = queue_.begin();
  while (it != queue_.end() && it->first.first <= now) {
    if (it->first.second > newest) {
      ++it;
      continue;
    }
    const std::function<void()> callback = std::move(it->second);
    queue_.erase(it);
    callback();
    it = queue_.begin();  // the callback may have changed anything
  }
}

}  // namespace hutch::daemon
