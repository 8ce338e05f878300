// How long sandboxes live: moves from state to state, activity, time-outs.
#include <algorithm>

#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/sandbox_stops.h"
#include "daemon/sandboxes.h"
#include "daemon/watching.h"

namespace hutch::daemon {

using std::chrono::seconds;

// --- states

void Sandboxes::Move(SandboxEntry& entry, SandboxState to, MoveCause cause, WallTime at) {
  CHECK(MayMove(entry.moments.state, to, cause));
  entry.moments.state = to;
  AddToHistory({to, cause, at}, &entry.facts.history);
  // A look may end itself, and others.
  const auto watchers = entry.move_watchers;
  for (const auto& [number, moved] : watchers)
    if (entry.move_watchers.contains(number)) moved();
}

uint64_t Sandboxes::OnMove(SandboxEntry& entry, std::function<void()> moved) {
  entry.move_watchers.emplace(++last_move_watcher_, std::move(moved));
  return last_move_watcher_;
}

void Sandboxes::ForgetMove(const std::string& id, uint64_t watcher) {
  const Result<SandboxEntry*> entry = Find(id);
  if (entry.has_value()) (*entry)->move_watchers.erase(watcher);
}

Error NotUsable(const SandboxEntry& entry) {
  Error error{.code = Code::kBadState,
              .what = "sandbox " + entry.facts.id + " is " + StateName(entry.moments.state)};
  if (HasEnded(entry.moments.state))
    error.what.append(": ").append(CauseName(entry.facts.history.back().cause));
  if (entry.moments.state == SandboxState::kPaused) error.hint = "resume it first";
  if (entry.moments.state == SandboxState::kStopped)
    error.hint = "start it first: hutch start " + entry.facts.id;
  if (entry.pausing != nullptr) error.what = "sandbox " + entry.facts.id + " is being paused";
  if (IsStopping(entry)) error.what = "sandbox " + entry.facts.id + " is being stopped";
  return error;
}

Result<SandboxEntry*> Sandboxes::FindRunning(const std::string& id_or_name) {
  ASSIGN_OR_RETURN(SandboxEntry * entry, Find(id_or_name));
  if (entry->moments.state == SandboxState::kRunning && entry->pausing == nullptr &&
      entry->stop == nullptr)
    return entry;
  return NotUsable(*entry);
}

Result<SandboxEntry*> Sandboxes::FindLiving(const std::string& id_or_name) {
  ASSIGN_OR_RETURN(SandboxEntry * entry, Find(id_or_name));
  const SandboxState state = entry->moments.state;
  const bool living = state == SandboxState::kRunning || state == SandboxState::kPaused;
  if (living && entry->stop == nullptr) return entry;
  return NotUsable(*entry);
}

// --- time-outs

void Sandboxes::Touch(SandboxEntry& entry, Activity what) {
  if (!entry.facts.fields.timeouts.Counts(what)) return;
  BeginIdle(entry, std::chrono::system_clock::now());
}

// The time without activity counts from then.
void Sandboxes::BeginIdle(SandboxEntry& entry, WallTime from) {
  const WallTime now = std::chrono::system_clock::now();
  from = std::min(from, now);
  entry.moments.last_activity = from;
  entry.moments.last_activity_steady =
      Loop::Now() - std::chrono::duration_cast<SteadyTime::duration>(now - from);
  NoteActivity(entry);
}

// So that a later daemon knows, whenever this one is killed: before the call is answered.
void Sandboxes::NoteActivity(const SandboxEntry& entry) {
  if (entry.moments.state != SandboxState::kRunning || entry.ending) return;
  const Status noted = parts_.runtime.NoteActivity(*entry.sandbox, entry.moments.last_activity);
  if (!noted.has_value())
    Log(LogLevel::kError, "cannot note that a sandbox is used",
        {{"sandbox", entry.facts.id}, {"error", noted.error().ToString()}});
}

// What goes on without calls is asked for when it matters.
void Sandboxes::TouchIfBusy(SandboxEntry& entry) {
  const Timeouts& timeouts = entry.facts.fields.timeouts;
  const bool ports = PortsInUse(entry) && timeouts.Counts(Activity::kPort);
  const bool called = timeouts.Counts(Activity::kCall) && entry.commands->awaited() > 0;
  const bool runs = timeouts.Counts(Activity::kProcess) && entry.commands->running() > 0;
  if (ports || called || runs) BeginIdle(entry, std::chrono::system_clock::now());
}

// The lifetime is one of wall-clock time, which may be set.
void Sandboxes::SetLifetime(SandboxEntry& entry) {
  const Timeouts& timeouts = entry.facts.fields.timeouts;
  const seconds lifetime(timeouts.lifetime_seconds);
  std::optional<SteadyTime> at;
  if (lifetime > seconds(0))
    at = Loop::Now() + std::chrono::duration_cast<SteadyTime::duration>(
                           LifeBegins(entry.facts) + lifetime - std::chrono::system_clock::now());
  const bool paused = entry.moments.state == SandboxState::kPaused;
  if (paused && timeouts.on_expiry == OnExpiry::kPause) at.reset();  // it is what it would become
  entry.deadlines.Set(MoveCause::kLifetime, at, lifetime);
}

bool LifetimeOver(const SandboxEntry& entry) {
  const seconds lifetime(entry.facts.fields.timeouts.lifetime_seconds);
  return lifetime > seconds(0) &&
         LifeBegins(entry.facts) + lifetime <= std::chrono::system_clock::now();
}

void Sandboxes::StartTimers(SandboxEntry& entry) {
  SetLifetime(entry);
  CheckDeadlines(entry);
}

// Activity does not move the timer: when it fires, the last activity is looked at. So a renewal
// that was answered before is never too late, and none can come between the look and the end.
void Sandboxes::CheckDeadlines(SandboxEntry& entry) {
  if (entry.ending || entry.commands == nullptr || entry.pausing != nullptr) return;
  if (entry.stop != nullptr) return;
  const seconds idle(entry.facts.fields.timeouts.idle_seconds);
  std::optional<SteadyTime> idle_at;
  if (entry.moments.state == SandboxState::kRunning && idle > seconds(0)) {
    TouchIfBusy(entry);
    idle_at = std::max(entry.moments.last_activity_steady + idle, entry.not_idle_before);
  }
  entry.deadlines.Set(MoveCause::kIdleTimeout, idle_at, idle);
  const Deadlines::Look look =
      entry.deadlines.LookAt(Loop::Now(), seconds(parts_.config.expiry_warning_seconds));
  if (look.expired == MoveCause::kLifetime && !LifetimeOver(entry)) return StartTimers(entry);
  if (look.expired) return Expire(entry, *look.expired);
  if (parts_.watching != nullptr)
    for (const Deadlines::Warning& warning : look.warnings)
      parts_.watching->SandboxExpires(entry, warning);
  if (look.next)
    entry.expiry_timer.StartAt(parts_.loop, *look.next, [this, &entry] { CheckDeadlines(entry); });
  else
    entry.expiry_timer.Cancel();
}

void Sandboxes::Expire(SandboxEntry& entry, MoveCause cause) {
  if (entry.facts.fields.timeouts.on_expiry == OnExpiry::kDestroy) return End(entry, cause);
  if (entry.facts.fields.timeouts.on_expiry == OnExpiry::kStop) return stops->Expire(entry, cause);
  Pause(entry, cause, [this, id = entry.facts.id](const Status& paused) {
    if (paused.has_value()) return;
    Log(LogLevel::kError, "a sandbox whose time is over cannot be paused",
        {{"sandbox", id}, {"error", paused.error().ToString()}});
    SandboxEntry* const living = Living(id);
    if (living == nullptr || living->moments.state != SandboxState::kRunning) return;
    living->expiry_timer.Start(parts_.loop, kPauseRetry,
                               [this, living] { CheckDeadlines(*living); });
  });
}

// The time without activity goes on through the restart; but whoever renews it could not while
// there was no daemon, and gets a moment.
void Sandboxes::TakeUpActivity(SandboxEntry& entry, WallTime last_activity) {
  entry.not_idle_before = Loop::Now() + kTakeUpGrace;
  if (entry.facts.paused_idle_ms)
    last_activity = entry.facts.history.back().at - Milliseconds(*entry.facts.paused_idle_ms);
  BeginIdle(entry, last_activity == WallTime() ? std::chrono::system_clock::now() : last_activity);
}

Status Sandboxes::SetTimeouts(SandboxEntry& entry, const Timeouts& timeouts) {
  const Timeouts before = entry.facts.fields.timeouts;
  entry.facts.fields.timeouts = timeouts;
  Status status = OkStatus();
  if (LifetimeOver(entry))
    status = Error{.code = Code::kInvalidArgument,
                   .what = "sandbox " + entry.facts.id + " is older than that already",
                   .field = "timeouts.lifetime_seconds"};
  if (status.has_value()) status = Save(entry);
  if (!status.has_value()) {
    entry.facts.fields.timeouts = before;
    return status;
  }
  BeginIdle(entry, std::chrono::system_clock::now());
  StartTimers(entry);
  return OkStatus();
}

}  // namespace hutch::daemon
