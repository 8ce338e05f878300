#include "daemon/freeze_wait.h"

#include <unistd.h>

#include <algorithm>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kMaxPause{100};

}  // namespace

void FreezeWait::Start() {
  begun_ = Loop::Now();
  Result<UniqueFd> events = group_.OpenFreezeEvents();
  if (!events.has_value()) return Finish(events.error());
  events_ = std::move(*events);
  const Status asked = group_.Freeze();
  if (!asked.has_value()) return Finish(asked);
  watch_ = loop_.Add(events_.get(), [this](Ready) { Look(); });
  Look();
}

// The kernel may hold a notification back for some 10 ms: a timer that gets slower looks as well.
void FreezeWait::Look() {
  char read[256];  // what re-arms the notification (kernfs)
  if (::pread(events_.get(), read, sizeof read, 0) < 0)
    return Finish(SysError(errno, "read cgroup.events"));
  const Result<bool> frozen = group_.Frozen();
  if (!frozen.has_value()) return Finish(frozen.error());
  if (*frozen) return Finish(OkStatus());
  if (Loop::Now() - begun_ >= kFreezeDeadline)
    return Finish(Error{.code = Code::kUnavailable,
                        .what = "its processes did not freeze in " +
                                std::to_string(kFreezeDeadline.count() / 1000) +
                                " seconds: one of them waits in the kernel"});
  watch_.Arm(Ready::kPriority);
  timer_.Start(loop_, pause_, [this] { Look(); });
  pause_ = std::min(pause_ * 2, kMaxPause);
}

void FreezeWait::Finish(Status status) {
  watch_.Reset();
  if (!status.has_value()) IgnoreError(group_.Thaw(), "it was not frozen to begin with");
  timer_.Start(loop_, Milliseconds(0), [this, status = std::move(status)] {
    const Done done = std::move(done_);
    done(status);  // destroys this
  });
}

}  // namespace hutch::daemon
