#include "daemon/leftover.h"

#include <unistd.h>

#include "daemon/limits.h"

namespace hutch::daemon {

Leftover::Leftover(Loop& loop, runtime::Sandbox& sandbox, uint32_t process,
                   std::vector<UniqueFd> pipes, std::function<void()> gone)
    : loop_(loop), sandbox_(sandbox), process_(process), gone_(std::move(gone)) {
  for (UniqueFd& fd : pipes) WatchPipe(std::move(fd));
  WatchGroup();
  timer_.Start(loop_, Milliseconds(1), [this] { TryForget(); });
}

void Leftover::WatchPipe(UniqueFd fd) {
  Drain& drain = drains_.emplace_back();
  drain.fd = std::move(fd);
  drain.watch = loop_.Add(drain.fd.get(), [&drain](Ready) {
    char buffer[16 * 1024];
    for (size_t total = 0; total < kReadPerTurnBytes;) {
      const ssize_t count = ::read(drain.fd.get(), buffer, sizeof buffer);
      if (count == 0) return drain.watch.Reset();
      if (count < 0) break;
      total += static_cast<size_t>(count);
    }
    drain.watch.Arm(Ready::kReadable);
  });
  drain.watch.Arm(Ready::kReadable);
}

// The kernel may hold a notification back for some milliseconds, or merge it with one before: the
// timer is the backstop.
void Leftover::WatchGroup() {
  const cgroups::ProcessGroup* group = sandbox_.ProcessCgroup(process_);
  if (group == nullptr) return;
  Result<UniqueFd> events = group->OpenEvents();
  if (!events.has_value()) return;
  events_fd_ = std::move(*events);
  events_watch_ = loop_.Add(events_fd_.get(), [this](Ready) { TryForget(); });
  events_watch_.Arm(Ready::kPriority);
}

void Leftover::TryForget() {
  char acknowledged[256];  // reading is what re-arms the notification (kernfs)
  if (events_fd_.valid() && ::pread(events_fd_.get(), acknowledged, sizeof acknowledged, 0) < 0)
    events_watch_.Reset();
  if (sandbox_.ForgetProcess(process_).has_value()) {
    events_watch_.Reset();
    timer_.Cancel();
    drains_.clear();
    return loop_.Post(std::move(gone_));
  }
  events_watch_.Arm(Ready::kPriority);
  timer_.Start(loop_, kForgetRetry, [this] { TryForget(); });
}

}  // namespace hutch::daemon
