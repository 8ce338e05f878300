// Pausing sandboxes and going on with them.
#include <algorithm>

#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/sandboxes.h"
#include "daemon/watching.h"

namespace hutch::daemon {

using std::chrono::duration_cast;

Status ThawUnlessSealing(const SandboxEntry& entry) {
  return entry.sealing ? OkStatus() : entry.sandbox->group().Thaw();
}

void Sandboxes::Pause(SandboxEntry& entry, MoveCause cause, PauseDone done) {
  if (entry.moments.state == SandboxState::kPaused) return done(OkStatus());
  entry.pause_waiters.push_back(std::move(done));
  if (entry.pausing != nullptr) return;
  entry.expiry_timer.Cancel();
  entry.pausing = std::make_unique<FreezeWait>(
      parts_.loop, entry.sandbox->group(), [this, &entry, cause](const Status& frozen) {
        const auto frozen_by = std::move(entry.pausing);  // lives until its callback is over
        const Status paused = frozen.has_value() ? BecomePaused(entry, cause) : frozen;
        TellPauseWaiters(entry, paused);
        // After an expiry that could not pause, Expire() says when to try again.
        if (paused.has_value() || cause == MoveCause::kRequested) CheckDeadlines(entry);
      });
  entry.pausing->Start();
}

void Sandboxes::TellPauseWaiters(SandboxEntry& entry, const Status& paused) {
  for (const PauseDone& done : std::exchange(entry.pause_waiters, {})) done(paused);
}

// It is frozen. The record comes before the answer, so that a later daemon keeps it so; one that
// finds it frozen without a record thaws it.
Status Sandboxes::BecomePaused(SandboxEntry& entry, MoveCause cause) {
  if (cause == MoveCause::kRequested) TouchIfBusy(entry);
  const auto idle = Loop::Now() - entry.moments.last_activity_steady;
  SandboxFacts changed = entry.facts;
  changed.paused_idle_ms = static_cast<uint64_t>(duration_cast<Milliseconds>(idle).count());
  const WallTime now = std::chrono::system_clock::now();
  AddToHistory({SandboxState::kPaused, cause, now}, &changed.history);
  FaultPoint("pause frozen");
  const Status saved = SaveRecord(entry, changed);
  FaultPoint("pause recorded");
  if (!saved.has_value()) {
    IgnoreError(ThawUnlessSealing(entry), "a resume or its end does it");
    return saved;
  }
  entry.facts.paused_idle_ms = changed.paused_idle_ms;
  entry.commands->Pause();
  Move(entry, SandboxState::kPaused, cause, now);
  SetLifetime(entry);
  if (parts_.watching != nullptr) parts_.watching->SandboxPaused(entry);
  Log(LogLevel::kDebug, "sandbox paused",
      {{"sandbox", entry.facts.id}, {"cause", CauseName(cause)}});
  return OkStatus();
}

Status Sandboxes::Resume(SandboxEntry& entry, MoveCause cause) {
  if (entry.pausing != nullptr) {
    entry.pausing.reset();
    const Status thawed = ThawUnlessSealing(entry);
    TellPauseWaiters(entry, Error{.code = Code::kBadState,
                                  .what = "sandbox " + entry.facts.id + " was resumed meanwhile"});
    CheckDeadlines(entry);
    return thawed;
  }
  if (entry.moments.state == SandboxState::kRunning) return OkStatus();
  if (entry.facts.fields.timeouts.on_expiry == OnExpiry::kPause && LifetimeOver(entry))
    return Error{.code = Code::kBadState,
                 .what = "the lifetime of sandbox " + entry.facts.id + " is over",
                 .hint = "change timeouts.lifetime_seconds first"};
  const WallTime now = std::chrono::system_clock::now();
  const Milliseconds paused =
      std::max(duration_cast<Milliseconds>(now - entry.facts.history.back().at), Milliseconds(0));
  SandboxFacts changed = entry.facts;
  changed.paused_ms += static_cast<uint64_t>(paused.count());
  changed.paused_idle_ms.reset();
  AddToHistory({SandboxState::kRunning, cause, now}, &changed.history);
  // The record first: one that is frozen and said to run is thawed by a later daemon.
  RETURN_IF_ERROR(SaveRecord(entry, changed));
  FaultPoint("resume recorded");
  const Status thawed = ThawUnlessSealing(entry);
  FaultPoint("resume thawed");
  if (!thawed.has_value()) {
    IgnoreError(SaveRecord(entry, entry.facts), "logged; the next resume says the same");
    return thawed;
  }
  const Milliseconds idle(entry.facts.paused_idle_ms.value_or(0));
  entry.facts.paused_ms = changed.paused_ms;
  entry.facts.paused_idle_ms.reset();
  Move(entry, SandboxState::kRunning, cause, now);
  // A time without activity goes on where it was; one that was over begins anew.
  const bool used_up = idle >= std::chrono::seconds(entry.facts.fields.timeouts.idle_seconds);
  BeginIdle(entry, used_up ? now : now - idle);
  Touch(entry, Activity::kCall);
  entry.commands->Continue(entry.facts.paused_ms);
  numbers_.Refresh(entry);
  numbers_.Schedule();
  SetLifetime(entry);
  if (parts_.watching != nullptr) parts_.watching->SandboxResumed(entry);
  CheckDeadlines(entry);
  return OkStatus();
}

// One of an earlier daemon: as its record says, whatever that daemon was doing.
void Sandboxes::TakeUpPause(SandboxEntry& entry) {
  const bool paused = entry.facts.paused_idle_ms.has_value();
  entry.moments.state = paused ? SandboxState::kPaused : SandboxState::kRunning;
  const cgroups::SandboxGroup& group = entry.sandbox->group();
  const Status done = paused ? group.Freeze() : group.Thaw();
  if (!done.has_value())
    Log(paused ? LogLevel::kError : LogLevel::kDebug,
        paused ? "cannot keep a sandbox paused" : "cannot see to it that a sandbox runs",
        {{"sandbox", entry.facts.id}, {"error", done.error().ToString()}});
}

void Sandboxes::Reclaim(SandboxEntry& entry, std::function<void(Result<uint64_t>)> done) {
  Result<cgroups::Reclaimer> reclaimer = entry.sandbox->group().OpenReclaimer();
  if (!reclaimer.has_value()) return done(reclaimer.error());
  if (parts_.walker == nullptr) return done(reclaimer->Run());
  const auto shared = std::make_shared<const cgroups::Reclaimer>(std::move(*reclaimer));
  const Status begun = parts_.walker->Submit([&loop = parts_.loop, shared, done] {
    const auto outcome = std::make_shared<Result<uint64_t>>(shared->Run());
    loop.Post([outcome, done] { done(std::move(*outcome)); });
  });
  if (!begun.has_value()) done(begun.error());
}

}  // namespace hutch::daemon
