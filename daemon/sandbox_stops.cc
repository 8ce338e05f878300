#include "daemon/sandbox_stops.h"

#include <algorithm>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/process_end.h"
#include "daemon/sandboxes.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

using Phase = StopWork::Phase;

constexpr int kRemoveAttempts = 400;  // of 5 ms each, of what a record on disk supersedes

Error BeingStopped(const SandboxEntry& entry) {
  return Error{.code = Code::kBadState, .what = "sandbox " + entry.facts.id + " is being stopped"};
}

void Tell(StopWork& work, const Status& status) {
  for (const StopDone& done : std::exchange(work.waiters, {})) done(status);
}

}  // namespace

bool IsStopping(const SandboxEntry& entry) {
  return entry.stop != nullptr && entry.stop->phase != Phase::kStarting;
}

SandboxStops::SandboxStops(Sandboxes& all, const SandboxParts& parts)
    : all_(all),
      loop_(parts.loop),
      files_(parts.config.state_dir + "/stopped"),
      host_records_(parts.config.state_dir + "/sandboxes", parts.loop),
      processes_directory_(parts.config.state_dir + "/processes/"),
      worker_(kStopThreads) {}
SandboxStops::~SandboxStops() = default;

SandboxEntry* SandboxStops::Find(const std::string& id) const {
  const auto it = stopped_.find(id);
  return it == stopped_.end() ? nullptr : it->second.get();
}

SandboxEntry* SandboxStops::FindAny(const std::string& id) const {
  SandboxEntry* const living = all_.Living(id);
  return living != nullptr ? living : Find(id);
}

// --- stopping

void SandboxStops::Stop(SandboxEntry& entry, MoveCause cause, std::chrono::seconds grace,
                        const Peer& caller, StopDone done) {
  const SandboxState state = entry.moments.state;
  if (state == SandboxState::kStopped && !entry.ending) return done(OkStatus());
  if (IsStopping(entry)) return entry.stop->waiters.push_back(std::move(done));
  if ((state != SandboxState::kRunning && state != SandboxState::kPaused) || entry.ending)
    return done(NotUsable(entry));
  if (stopped_.size() >= kStoppedSandboxes)
    return done(Error{.code = Code::kLimit,
                      .what = std::to_string(kStoppedSandboxes) + " sandboxes are stopped already",
                      .hint = "delete some of them"});
  if (!entry.sandbox->scratch().fd.valid())
    return done(Error{
        .code = Code::kUnsupported,
        .what = "hutchd was restarted and cannot get at the files of sandbox " + entry.facts.id});
  entry.stop = std::make_shared<StopWork>();
  entry.stop->cause = cause;
  entry.stop->caller = caller;
  entry.stop->waiters.push_back(std::move(done));
  entry.expiry_timer.Cancel();
  if (entry.pausing != nullptr) {
    entry.pausing.reset();
    IgnoreError(entry.sandbox->group().Thaw(), "what stays frozen is killed");
    all_.TellPauseWaiters(entry, BeingStopped(entry));
  }
  // What is frozen would not hear of it.
  if (state == SandboxState::kPaused) grace = std::chrono::seconds(0);
  entry.stop->kill_at = Loop::Now() + grace;
  entry.stop->give_up_at = entry.stop->kill_at + kStopPatience;
  const int signal = StopSignalOf(entry);
  if (grace > std::chrono::seconds(0))
    for (const uint32_t process : entry.sandbox->Processes())
      IgnoreError(entry.sandbox->SignalTree(process, signal), "it is killed when it stays");
  Look(entry);
}

// The image's, where it names one that there is.
int SandboxStops::StopSignalOf(const SandboxEntry& entry) const {
  const Result<rootfs::Image> image = all_.parts().store.Resolve(entry.facts.image_id);
  if (!image.has_value() || image->config.stop_signal.empty()) return SIGTERM;
  const Result<int> signal = ParseSignal(image->config.stop_signal);
  return signal.has_value() ? *signal : SIGTERM;
}

// Whether some are there still. A group is killed only with something in it: an empty one may be
// kept for the next command.
Result<bool> SandboxStops::EndProcesses(SandboxEntry& entry) {
  const bool kills = Loop::Now() >= entry.stop->kill_at;
  if (kills) entry.commands->KillAll();
  const cgroups::SandboxGroup& group = entry.sandbox->group();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, group.ListProcesses());
  bool some = false;
  for (const std::string& name : names) {
    const Result<cgroups::ProcessGroup> process = group.OpenProcess(name);
    if (!process.has_value()) continue;  // gone meanwhile
    const Result<bool> populated = process->Populated();
    if (!populated.has_value() || !*populated) continue;
    some = true;
    if (kills) RETURN_IF_ERROR(process->Kill());
  }
  return some || entry.commands->count() > 0;
}

void SandboxStops::Look(SandboxEntry& entry) {
  const Result<bool> some = EndProcesses(entry);
  if (!some.has_value()) return GiveUp(entry, some.error());
  if (!*some && !forgetting_.contains(entry.facts.id)) return Copy(entry);
  if (Loop::Now() >= entry.stop->give_up_at)
    return GiveUp(entry, Error{.code = Code::kUnavailable,
                               .what = "something in sandbox " + entry.facts.id +
                                       " does not end though it was killed"});
  entry.stop->timer.Start(loop_, kStopLook, [this, &entry] { Look(entry); });
}

void SandboxStops::Copy(SandboxEntry& entry) {
  const Work work = entry.stop;
  work->phase = Phase::kCopying;
  const WallTime now = std::chrono::system_clock::now();
  work->facts = entry.facts;
  SandboxFacts& facts = work->facts;
  ++facts.stops;
  if (facts.paused_idle_ms)
    facts.paused_ms += static_cast<uint64_t>(std::max<int64_t>(
        0, std::chrono::duration_cast<Milliseconds>(now - facts.history.back().at).count()));
  facts.paused_idle_ms.reset();
  AddToHistory({SandboxState::kStopped, work->cause, now}, &facts.history);
  StoppedRecord record;
  record.id = facts.id;
  record.saved = SaveFacts(facts);
  const runtime::ScratchView& view = entry.sandbox->scratch();
  Result<UniqueFd> fd = Duplicate(view.fd.get());
  if (!fd.has_value()) return GiveUp(entry, fd.error());
  const auto scratch = std::make_shared<runtime::ScratchToFill>();
  scratch->fd = std::move(*fd);
  scratch->roots = view.roots;
  scratch->host_id_start = entry.sandbox->host_id_start();
  const Status begun =
      worker_.Submit([this, work, scratch, record = std::move(record), id = facts.id] {
        const auto done =
            std::make_shared<Result<StoppedRecord>>(files_.Put(record, *scratch, *work->cancelled));
        scratch->fd.reset();
        loop_.Post([this, id, work, done] { Copied(id, work, *done); });
      });
  if (!begun.has_value()) GiveUp(entry, begun.error());
}

void SandboxStops::Copied(const std::string& id, const Work& work,
                          const Result<StoppedRecord>& record) {
  SandboxEntry* const entry = all_.Living(id);
  if (entry == nullptr || entry->stop != work) return;
  if (!record.has_value()) return GiveUp(*entry, record.error());
  work->phase = Phase::kFreeing;
  entry->moments.stopped_bytes = record->bytes;
  Free(*entry);
}

// It goes on, or ends as something asked meanwhile.
void SandboxStops::GiveUp(SandboxEntry& entry, Error error) {
  const Work work = std::move(entry.stop);
  work->timer.Cancel();
  if (work->end) {
    Tell(*work,
         Error{.code = Code::kBadState, .what = "sandbox " + entry.facts.id + " ended meanwhile"});
    return all_.End(entry, *work->end);
  }
  error.what =
      "sandbox " + entry.facts.id + " is not stopped, but its processes were ended: " + error.what;
  Log(LogLevel::kError, "a sandbox cannot be stopped",
      {{"sandbox", entry.facts.id}, {"error", error.ToString()}});
  Tell(*work, error);
  if (work->cause == MoveCause::kRequested) return all_.StartTimers(entry);
  entry.expiry_timer.Start(loop_, kPauseRetry, [this, &entry] { all_.CheckDeadlines(entry); });
}

void SandboxStops::Expire(SandboxEntry& entry, MoveCause cause) {
  Stop(entry, cause, std::chrono::seconds(kStopSeconds), Peer(), [](const Status&) {});
  // Refused at once: GiveUp() did not come.
  if (entry.stop == nullptr && !entry.ending && !entry.expiry_timer.running())
    entry.expiry_timer.Start(loop_, kPauseRetry, [this, &entry] { all_.CheckDeadlines(entry); });
}

bool SandboxStops::HoldsEnd(SandboxEntry& entry, MoveCause cause) {
  if (entry.stop == nullptr) return false;
  switch (entry.stop->phase) {
    case Phase::kEnding: {
      const Work work = std::move(entry.stop);
      work->timer.Cancel();
      Tell(*work, Error{.code = Code::kBadState,
                        .what = "sandbox " + entry.facts.id + " ended meanwhile"});
      return false;
    }
    case Phase::kCopying:  // its agent may die of it: the files are there still
      entry.stop->end = cause;
      if (cause == MoveCause::kDeleted || cause == MoveCause::kAbandoned)
        *entry.stop->cancelled = true;
      return true;
    case Phase::kFreeing:
      return true;
    case Phase::kStarting:
      *entry.stop->cancelled = true;
      Free(entry);
      return true;
  }
  return false;
}

// As Sandboxes::End(), for one that has not ended.
void SandboxStops::Free(SandboxEntry& entry) {
  const SandboxParts& parts = all_.parts();
  entry.ending = true;
  entry.ready_timer.Cancel();
  entry.expiry_timer.Cancel();
  entry.removal_begun = Loop::Now();
  if (parts.forwards != nullptr) parts.forwards->Close(entry.facts.id);
  entry.reserved_ports.clear();
  const Status killed = entry.sandbox->Kill();
  if (!killed.has_value())
    Log(LogLevel::kError, "cannot kill a sandbox",
        {{"sandbox", entry.facts.id}, {"error", killed.error().ToString()}});
  const bool has_init = entry.sandbox->init().valid();
  entry.removal_timer.Start(loop_, has_init ? Milliseconds(1000) : Milliseconds(0),
                            [this, &entry] { all_.TryRemove(entry); });
  if (parts.networks != nullptr) parts.networks->Forget(entry.facts.id);
  if (entry.init_ended) all_.TryRemove(entry);
}

void SandboxStops::Freed(SandboxEntry& entry) {
  entry.removal_timer.Cancel();
  auto node = all_.living_.extract(entry.facts.id);
  all_.CountOut(entry);
  const Work work = std::move(entry.stop);
  // Their own callbacks may be on the stack.
  std::shared_ptr<runtime::Sandbox> sandbox = std::move(entry.sandbox);
  std::shared_ptr<Commands> commands = std::move(entry.commands);
  entry.live_proc.reset();
  entry.volumes.clear();
  entry.cpu_window = CpuWindow();
  loop_.Post([sandbox = std::move(sandbox), commands = std::move(commands)]() mutable {
    commands.reset();  // first: they borrow the sandbox
    sandbox.reset();
  });
  entry.ending = entry.init_ended = entry.quarantined = entry.agent_ready = false;
  entry.network_ready = true;
  entry.network_ms.reset();
  entry.removal_pause = Milliseconds(0);
  entry.agent_watch.Reset();
  entry.init_watch.Reset();
  entry.moments.pid = 0;
  entry.moments.host_id_start = 0;
  entry.moments.processes = 0;
  host_records_.Forget(entry.facts.id);
  Keep(std::move(node.mapped()));
  BecomeStopped(entry, work);
}

// Among the stopped ones, with its name and its session.
void SandboxStops::Keep(std::unique_ptr<SandboxEntry> entry) {
  const SandboxFacts& facts = entry->facts;
  if (!facts.fields.name.empty()) all_.ids_by_name_[facts.fields.name] = facts.id;
  if (!facts.fields.session_key.empty())
    all_.ids_by_session_[{facts.caller_uid, facts.fields.session_key}] = facts.id;
  stopped_[facts.id] = std::move(entry);
}

void SandboxStops::BecomeStopped(SandboxEntry& entry, const Work& work) {
  const bool was_started = work->phase == Phase::kStarting;
  const std::optional<Error> error = std::exchange(entry.error, std::nullopt);
  if (was_started) {
    entry.facts.ports = work->facts.ports;
    all_.Move(entry, SandboxState::kStopped, MoveCause::kNotMade);
  } else {
    const WallTime at = work->facts.history.back().at;
    entry.facts.stops = work->facts.stops;
    entry.facts.paused_ms = work->facts.paused_ms;
    entry.facts.paused_idle_ms.reset();
    all_.Move(entry, SandboxState::kStopped, work->cause, at);
  }
  const SandboxParts& parts = all_.parts();
  if (parts.watching != nullptr) parts.watching->SandboxStopped(entry);
  if (parts.audit != nullptr && !was_started)
    parts.audit->Record({.kind = AuditKind::kSandboxStopped,
                         .sandbox = entry.facts.id,
                         .name = entry.facts.fields.name,
                         .caller = work->caller,
                         .detail = {{"cause", CauseName(work->cause)}}});
  Log(LogLevel::kDebug, "sandbox stopped", {{"sandbox", entry.facts.id}});
  const auto deleters = std::exchange(entry.removal_waiters, {});
  entry.created = nullptr;
  const auto starters = std::exchange(work->starters, {});
  for (const StopDone& deleter : deleters) Discard(entry, deleter);
  Tell(*work, OkStatus());
  for (const StartDone& done : starters)
    done(error.value_or(
        Error{.code = Code::kBadState, .what = "it was deleted while it was being started"}));
}

// --- deleting

void SandboxStops::Discard(SandboxEntry& entry, StopDone done) {
  entry.removal_waiters.push_back(std::move(done));
  if (entry.ending) return;
  entry.ending = true;
  const Status begun = worker_.Submit([this, id = entry.facts.id] {
    const auto gone = std::make_shared<Result<std::string>>(files_.Forget(id));
    loop_.Post([this, id, gone] {
      Discarded(id, gone->has_value() ? OkStatus() : Status(gone->error()));
    });
    if (!gone->has_value()) return;
    for (const std::string& path : {**gone, processes_directory_ + id})
      if (!path.empty()) IgnoreError(RemoveTree(path), "the next start removes it");
  });
  if (!begun.has_value()) Discarded(entry.facts.id, begun);
}

void SandboxStops::Discarded(const std::string& id, const Status& status) {
  SandboxEntry* const entry = Find(id);
  if (entry == nullptr) return;
  const auto waiters = std::exchange(entry->removal_waiters, {});
  if (!status.has_value()) {
    entry->ending = false;
    for (const StopDone& done : waiters) done(status);
    return;
  }
  auto node = stopped_.extract(id);
  if (!entry->facts.fields.name.empty()) all_.ids_by_name_.erase(entry->facts.fields.name);
  all_.FreeSession(*entry);
  entry->moments.stopped_bytes.reset();
  all_.Move(*entry, SandboxState::kDestroyed, MoveCause::kDeleted);
  const SandboxParts& parts = all_.parts();
  if (parts.audit != nullptr)
    parts.audit->Record({.kind = AuditKind::kSandboxEnded,
                         .sandbox = id,
                         .name = entry->facts.fields.name,
                         .caller = entry->ended_by,
                         .detail = {{"cause", CauseName(MoveCause::kDeleted)}}});
  if (parts.watching != nullptr) parts.watching->SandboxEnds(*entry);
  all_.Bury(std::move(node.mapped()));
  for (const StopDone& done : waiters) done(OkStatus());
}

void SandboxStops::Remove(std::vector<std::string> paths) {
  IgnoreError(worker_.Submit([paths = std::move(paths)] {
    for (const std::string& path : paths)
      IgnoreError(RemoveTree(path), "the next start tries again");
  }),
              "the next start removes them");
}

// --- after a restart

void SandboxStops::Recover() {
  Remove(files_.SetAside());
  for (const std::string& id : files_.List()) {
    const Result<StoppedRecord> record = files_.Load(id);
    Result<SandboxFacts> facts = record.has_value()
                                     ? LoadFacts(id, record->saved, all_.parts().config)
                                     : Result<SandboxFacts>(record.error());
    if (!facts.has_value()) {
      LeaveAlone(id, facts.error());
      continue;
    }
    auto entry = std::make_unique<SandboxEntry>();
    entry->facts = std::move(*facts);
    entry->moments.state = SandboxState::kStopped;
    entry->moments.stopped_bytes = record->bytes;
    entry->moments.last_activity =
        entry->facts.history.empty() ? entry->facts.created_at : entry->facts.history.back().at;
    all_.RememberAnswer(*entry);
    Keep(std::move(entry));
  }
}

void SandboxStops::LeaveAlone(const std::string& id, const Error& error) {
  Log(LogLevel::kError, "a sandbox is left alone: what is known of it cannot be read",
      {{"sandbox", id}, {"error", error.ToString()}});
  left_alone_.insert(id);
}

bool SandboxStops::TakesUp(runtime::Recovered& recovered) {
  const std::string id = recovered.sandbox->id();
  const Result<SandboxFacts> facts = LoadFacts(id, recovered.saved, all_.parts().config);
  if (!facts.has_value() && facts.error().field == "version") {
    LeaveAlone(id, facts.error());
    recovered.sandbox.reset();  // which does not end it
    return true;
  }
  const auto it = stopped_.find(id);
  if (it == stopped_.end()) return false;
  if (facts.has_value() && facts->stops >= it->second->facts.stops) {  // started from it
    stopped_.erase(it);
    ForgetFiles(id);
    return false;
  }
  Status removed = recovered.sandbox->Kill();
  for (int i = 0; i < kRemoveAttempts; ++i) {
    removed = all_.parts().runtime.Remove(*recovered.sandbox);
    if (removed.has_value() || removed.error().code != Code::kBadState) break;
    std::this_thread::sleep_for(Milliseconds(5));
  }
  Log(removed.has_value() ? LogLevel::kInfo : LogLevel::kError,
      "a sandbox was stopped, and what was left of it is removed",
      {{"sandbox", id}, {"error", removed.has_value() ? "" : removed.error().ToString()}});
  return true;
}

void SandboxStops::RecoverHost() {
  for (const auto& [id, error] : all_.parts().runtime.TakeLeftAlone()) LeaveAlone(id, error);
  const std::chrono::seconds retention(all_.parts().config.retention_seconds);
  const WallTime now = std::chrono::system_clock::now();
  for (const HostRecord& record : host_records_.Load()) {
    if (all_.Living(record.id) != nullptr || left_alone_.contains(record.id)) continue;
    Result<SandboxFacts> facts = LoadFacts(record.id, record.saved, all_.parts().config);
    if (!facts.has_value() && facts.error().field == "version") continue;
    if (!facts.has_value() || facts->history.empty() || Find(record.id) != nullptr) {
      host_records_.Forget(record.id);
      continue;
    }
    const MoveCause cause = record.of_this_boot ? MoveCause::kAgentDied : MoveCause::kHostRestarted;
    auto entry = std::make_unique<SandboxEntry>();
    entry->facts = std::move(*facts);
    if (!HasEnded(entry->facts.history.back().state)) {
      AddToHistory({SandboxState::kFailed, cause, now}, &entry->facts.history);
      host_records_.Write(record.id, SaveFacts(entry->facts));
      Log(LogLevel::kWarning, "a sandbox ended while no hutchd was there",
          {{"sandbox", record.id}, {"cause", CauseName(cause)}});
    }
    const HistoryEntry& end = entry->facts.history.back();
    if (end.at + retention <= now) {
      host_records_.Forget(record.id);
      continue;
    }
    entry->moments.state = end.state;
    entry->moments.last_activity = end.at;
    entry->error = Error{.code = Code::kUnavailable,
                         .what = end.cause == MoveCause::kHostRestarted
                                     ? "the host was started again"
                                     : "it ended while no hutchd was there"};
    all_.Bury(std::move(entry));
  }
}

bool SandboxStops::Keeps(const std::string& id) const {
  return stopped_.contains(id) || left_alone_.contains(id);
}

}  // namespace hutch::daemon
