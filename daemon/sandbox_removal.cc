// The end of sandboxes, and what a restarted daemon makes of those it finds.
#include <algorithm>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_stops.h"
#include "daemon/sandbox_volumes.h"
#include "daemon/sandboxes.h"
#include "daemon/watching.h"

namespace hutch::daemon {

void Sandboxes::MakeCommands(SandboxEntry& entry) {
  entry.commands = std::make_unique<Commands>(parts_.loop, *entry.sandbox, parts_.mode, &pace_);
  entry.commands->SetPausedTime(entry.facts.paused_ms);
  entry.commands->OnBackgroundEnd([this, &entry](const BackgroundProcess& process) {
    if (parts_.watching != nullptr) parts_.watching->ProcessEnded(entry, process);
    if (parts_.audit == nullptr) return;
    oci::Json detail = {{"process_id", "p" + std::to_string(process.facts().number)}};
    AddEnd(*process.facts().end, &detail);
    parts_.audit->Record({.kind = AuditKind::kProcessExited,
                          .sandbox = entry.facts.id,
                          .name = entry.facts.fields.name,
                          .detail = std::move(detail)});
  });
}

void Sandboxes::Destroy(SandboxEntry& entry, MoveCause cause, Removed removed) {
  if (entry.quarantined) {
    entry.removal_begun = Loop::Now();  // asked for again: the whole patience again
    entry.quarantined = false;
  }
  entry.removal_waiters.push_back(std::move(removed));
  if (!entry.ending) return End(entry, cause);
  if (entry.init_ended) TryRemove(entry);
}

// What the kernel counted since a command last looked tells whether memory was the reason.
MoveCause Sandboxes::CauseOfDeath(const SandboxEntry& entry) const {
  const uint64_t seen = entry.commands ? entry.commands->counters().oom_kills : 0;
  return ReadCounters(*entry.sandbox).oom_kills > seen ? MoveCause::kOutOfMemory
                                                       : MoveCause::kAgentDied;
}

void Sandboxes::End(SandboxEntry& entry, MoveCause cause) {
  if (entry.ending || stops->HoldsEnd(entry, cause)) return;
  entry.ending = true;
  stops->host_records().Forget(entry.facts.id);
  FreeSession(entry);
  const std::optional<SandboxState> end = EndOf(entry.moments.state, cause);
  CHECK(end.has_value());
  entry.ready_timer.Cancel();
  entry.expiry_timer.Cancel();
  entry.pausing.reset();
  Move(entry, *end, cause);
  TellPauseWaiters(entry, NotUsable(entry));
  entry.removal_begun = Loop::Now();
  if (parts_.forwards != nullptr) parts_.forwards->Close(entry.facts.id);
  entry.reserved_ports.clear();
  FaultPoint("sandbox ending");
  const Status killed = entry.sandbox->Kill();
  FaultPoint("sandbox killed");
  if (!killed.has_value())
    Log(LogLevel::kError, "cannot kill a sandbox",
        {{"sandbox", entry.facts.id}, {"error", killed.error().ToString()}});
  if (parts_.audit != nullptr && entry.commands != nullptr && !entry.facts.fields.pooled)
    parts_.audit->Record({.kind = AuditKind::kSandboxEnded,
                          .sandbox = entry.facts.id,
                          .name = entry.facts.fields.name,
                          .caller = entry.ended_by,
                          .detail = {{"cause", CauseName(cause)}}});
  if (parts_.watching != nullptr) parts_.watching->SandboxEnds(entry);
  const bool expected = *end == SandboxState::kDestroyed || entry.commands == nullptr;
  Log(expected ? LogLevel::kDebug : LogLevel::kInfo, "sandbox ends",
      {{"sandbox", entry.facts.id}, {"cause", CauseName(cause)}});
  // Normally the end of its first process is what goes on from here. Never spawned, there is none;
  // and a lost notice must not hold it.
  const bool has_init = entry.sandbox->init().valid();
  entry.removal_timer.Start(parts_.loop, has_init ? Milliseconds(1000) : Milliseconds(0),
                            [this, &entry] { TryRemove(entry); });
  if (parts_.networks != nullptr) parts_.networks->Forget(entry.facts.id);
  if (entry.init_ended) TryRemove(entry);
}

void Sandboxes::InitEnded(SandboxEntry& entry) {
  if (!entry.init_ended) {
    entry.init_ended = true;
    entry.init_watch.Reset();
    // What the agent said before it died still counts: the answer of a command may be among it.
    if (!entry.ending && entry.agent_watch.active())
      for (const runtime::AgentEvent& event : entry.sandbox->ReadAgent())
        if (event.kind != runtime::AgentEvent::Kind::kClosed) OnAgentEvent(entry, event);
    entry.agent_watch.Reset();
    if (!entry.ending && entry.moments.state == SandboxState::kCreating)
      return FailCreation(
          entry, Error{.code = Code::kUnavailable, .what = "the agent ended before it was ready"});
    if (!entry.ending) return End(entry, CauseOfDeath(entry));
  }
  // A second time (runtime/ says so once it is reaped): what was busy a moment ago may be free now.
  if (entry.ending) TryRemove(entry);
}

void Sandboxes::TryRemove(SandboxEntry& entry) {
  if (entry.sandbox == nullptr) return;  // removed meanwhile
  if (entry.sandbox->init().valid() && !entry.init_ended && !entry.sandbox->init().HasEnded())
    return RetryRemoval(entry,
                        Error{.code = Code::kBadState, .what = "its first process has not ended"});
  if (stops->IsForgetting(entry.facts.id))
    return RetryRemoval(entry,
                        Error{.code = Code::kBadState, .what = "its files of before go still"});
  entry.init_watch.Reset();
  entry.agent_watch.Reset();
  if (entry.commands) entry.commands->SandboxEnded();
  Status removed = parts_.runtime.Remove(*entry.sandbox);
  if (removed.has_value()) return FinishRemoval(entry);
  RetryRemoval(entry, std::move(removed).error());
}

void Sandboxes::RetryRemoval(SandboxEntry& entry, Error error) {
  const bool late = Loop::Now() - entry.removal_begun > kRemoveDeadline;
  if (late && !entry.quarantined) {
    Log(LogLevel::kError, "a sandbox cannot be removed",
        {{"sandbox", entry.facts.id}, {"error", error.ToString()}});
    entry.quarantined = true;
    const auto waiters = std::exchange(entry.removal_waiters, {});
    for (const auto& waiter : waiters) waiter(error);
    const Created created = std::exchange(entry.created, nullptr);
    if (created) created(entry.error.value_or(error));
    entry.error = std::move(error);
  }
  entry.removal_pause = std::clamp(entry.removal_pause * 2, kRemoveRetryFirst, kRemoveRetryMax);
  entry.removal_timer.Start(parts_.loop, entry.quarantined ? kQuarantineRetry : entry.removal_pause,
                            [this, &entry] { TryRemove(entry); });
}

void Sandboxes::FinishRemoval(SandboxEntry& entry) {
  FaultPoint("sandbox removed");
  if (entry.stop != nullptr) return stops->Freed(entry);
  entry.removal_timer.Cancel();
  auto node = living_.extract(entry.facts.id);
  CHECK(!node.empty());
  CountOut(entry);
  const auto waiters = std::exchange(entry.removal_waiters, {});
  const Created created = std::exchange(entry.created, nullptr);
  Bury(std::move(node.mapped()));
  for (const auto& waiter : waiters) waiter(OkStatus());
  FaultPoint("sandbox removed and told");
  if (created)
    created(entry.error.value_or(
        Error{.code = Code::kBadState, .what = "it was deleted while it was being made"}));
}

// Their own callbacks may be on the stack: parts are destroyed once those are done.
void Sandboxes::Bury(std::unique_ptr<SandboxEntry> entry) {
  entry->moments.pid = 0;
  entry->live_proc.reset();
  entry->volumes.clear();
  std::shared_ptr<runtime::Sandbox> sandbox = std::move(entry->sandbox);
  std::shared_ptr<Commands> commands = std::move(entry->commands);
  const bool ran = commands != nullptr;
  const std::string directory = ProcessDirectory(entry->facts.id);
  std::shared_ptr<SandboxEntry> unknown;  // that waited in a pool: nobody will ask for it
  if (entry->facts.fields.pooled)
    unknown = std::move(entry);
  else
    tombstones_.push_back(std::move(entry));
  parts_.loop.Post([ran, sandbox = std::move(sandbox), commands = std::move(commands),
                    unknown = std::move(unknown), directory]() mutable {
    commands.reset();  // first: they borrow the sandbox
    sandbox.reset();
    if (ran) IgnoreError(RemoveTree(directory), "the next start sweeps it");
  });
  if (tombstones_.size() > kMaxTombstones) tombstones_.erase(tombstones_.begin());
  ScheduleBurialSweep();
}

// In the order of their removal, which is not that of their ends: a few stay longer than they must.
void Sandboxes::ScheduleBurialSweep() {
  if (tombstone_timer_.running() || tombstones_.empty()) return;
  const std::chrono::seconds retention(parts_.config.retention_seconds);
  const auto left =
      tombstones_.front()->facts.history.back().at + retention - std::chrono::system_clock::now();
  const Milliseconds pause = std::max(std::chrono::ceil<Milliseconds>(left), Milliseconds(0));
  tombstone_timer_.Start(parts_.loop, pause, [this, retention] {
    const WallTime oldest = std::chrono::system_clock::now() - retention;
    std::erase_if(tombstones_,
                  [&](const auto& entry) { return entry->facts.history.back().at <= oldest; });
    ScheduleBurialSweep();
  });
}

// --- after a restart

Status Sandboxes::RestoreNetworks() {
  if (parts_.networks == nullptr) return OkStatus();
  std::vector<const SandboxEntry*> restored;
  std::set<std::string> living, open;
  for (const auto& [id, entry] : living_) {
    if (entry->ending || IsClosed(entry->facts.fields.network)) continue;
    restored.push_back(entry.get());
    living.insert(id);
    if (entry->facts.fields.network.mode == network::Mode::kOpen) open.insert(id);
  }
  for (const std::string& id : stops->left_alone()) {
    living.insert(id);
    open.insert(id);
  }
  RETURN_IF_ERROR(parts_.networks->Recover(living, open));
  for (const SandboxEntry* entry : restored)
    parts_.networks->Restore({entry->facts.id, entry->facts.fields.name, entry->sandbox->init()},
                             entry->facts.fields.network);
  return OkStatus();
}

Status Sandboxes::Recover() {
  std::vector<std::string> removed;
  ASSIGN_OR_RETURN(std::vector<runtime::Recovered> recovered, parts_.runtime.Recover(&removed));
  for (const std::string& line : removed)
    Log(LogLevel::kInfo, "removed what was left", {{"what", line}});
  stops->Recover();
  for (runtime::Recovered& one : recovered)
    if (!stops->TakesUp(one)) TakeUp(std::move(one));
  stops->RecoverHost();
  RETURN_IF_ERROR(RestoreNetworks());
  SweepProcessDirectories();
  // What is left alone may stand on one.
  if (stops->left_alone().empty()) RETURN_IF_ERROR(user_layers_.Sweep(UserLayersInUse()));
  return OkStatus();
}

// Of sandboxes that ended while no daemon was there.
void Sandboxes::SweepProcessDirectories() {
  const std::string parent = parts_.config.state_dir + "/processes";
  const Result<std::vector<std::string>> ids = ListDirectory(parent);
  if (!ids.has_value()) return;  // there never was a process
  for (const std::string& id : *ids)
    if (Living(id) == nullptr && !stops->Keeps(id))
      IgnoreError(RemoveTree(parent + "/" + id), "tried again at the next start");
}

void Sandboxes::TakeUp(runtime::Recovered recovered) {
  const std::string id = recovered.sandbox->id();
  auto entry = std::make_unique<SandboxEntry>();
  entry->begun = Loop::Now();
  entry->sandbox = std::move(recovered.sandbox);
  Result<SandboxFacts> facts = LoadFacts(id, recovered.saved, parts_.config);
  const bool usable = facts.has_value();
  if (usable) entry->facts = std::move(*facts);
  entry->facts.id = id;
  if (entry->facts.history.empty())  // of a daemon that kept none
    AddToHistory({SandboxState::kRunning, MoveCause::kReady, entry->facts.created_at},
                 &entry->facts.history);
  SandboxEntry& placed = *entry;
  CountIn(placed);
  living_[id] = std::move(entry);
  Track(placed);
  if (!usable) {
    Log(LogLevel::kError, "a running sandbox is removed: its state cannot be read",
        {{"sandbox", id}, {"error", facts.error().ToString()}});
    placed.error = facts.error();
    return End(placed, MoveCause::kUnreadable);
  }
  using Lifecycle = LifecycleFacts::State;
  LifecycleFacts& lifecycle = placed.facts.lifecycle;
  if (lifecycle.state == Lifecycle::kRunning && lifecycle.awaited) {
    Log(LogLevel::kInfo, "a sandbox is removed whose creation nobody waits for", {{"sandbox", id}});
    placed.moments.state = SandboxState::kRunning;
    return End(placed, MoveCause::kAbandoned);
  }
  if (lifecycle.state == Lifecycle::kRunning) lifecycle.state = Lifecycle::kInterrupted;
  TakeUpPause(placed);
  placed.volumes = TakeUpVolumes(parts_.volumes, placed.facts);
  MakeCommands(placed);
  if (placed.moments.state == SandboxState::kPaused) placed.commands->Pause();
  placed.commands->TakeUp(ProcessDirectory(id));
  IgnoreError(OpenPorts(placed), "logged; a sandbox is not given up for its ports");
  numbers_.Open(placed);
  const SandboxFields& fields = placed.facts.fields;
  if (!fields.full_proc && fields.proc == "honest" && !placed.live_proc->active())
    Log(LogLevel::kWarning, "the numbers in a sandbox's /proc stand still", {{"sandbox", id}});
  numbers_.Refresh(placed);
  numbers_.Schedule();
  IgnoreError(TrackFiles(placed), "commands then do not tell which files they changed");
  TakeUpActivity(placed, recovered.last_activity);
  StartTimers(placed);
  RememberAnswer(placed);
  if (parts_.watching != nullptr) parts_.watching->SandboxTakenUp(placed);
  Log(LogLevel::kInfo, "sandbox taken up", {{"sandbox", id}});
}

}  // namespace hutch::daemon
