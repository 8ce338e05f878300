// Starting a stopped sandbox again: a creation like any other, with the id and the files it had.
#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_stops.h"
#include "daemon/sandbox_volumes.h"
#include "daemon/sandboxes.h"
#include "daemon/sealed_directories.h"
#include "daemon/watching.h"

namespace hutch::daemon {

using Phase = StopWork::Phase;

void SandboxStops::Start(SandboxEntry& entry, const Peer& caller, StartDone done) {
  if (entry.stop != nullptr && entry.stop->phase == Phase::kStarting)
    return entry.stop->starters.push_back(std::move(done));
  const SandboxState state = entry.moments.state;
  if (state == SandboxState::kRunning && entry.stop == nullptr) return done(&entry);
  if (state != SandboxState::kStopped || entry.ending) return done(NotUsable(entry));
  const auto work = std::make_shared<StopWork>();
  work->phase = Phase::kStarting;
  work->caller = caller;
  work->facts = entry.facts;
  work->starters.push_back(std::move(done));
  const Status begun = Begin(entry, work);
  if (begun.has_value()) return;
  entry.facts = work->facts;
  entry.reserved_ports.clear();
  for (const StartDone& starter : std::exchange(work->starters, {})) starter(begun.error());
}

// As Sandboxes::Create(), of what was answered then.
Result<runtime::CreateRequest> SandboxStops::RequestOf(SandboxEntry& entry) {
  const SandboxParts& parts = all_.parts();
  SandboxFacts& facts = entry.facts;
  ASSIGN_OR_RETURN(const rootfs::Image image, parts.store.Resolve(facts.image_id));
  runtime::CreateRequest request;
  ASSIGN_OR_RETURN(request.spec,
                   BuildSpec(facts.fields, image.config, [&](const std::string& user) {
                     return all_.ResolveUserOf(image, user);
                   }));
  for (const std::string& diff_id : image.diff_ids) {
    ASSIGN_OR_RETURN(UniqueFd layer, parts.store.OpenLayer(diff_id));
    request.layers.push_back(std::move(layer));
  }
  request.scratch_bytes = facts.fields.disk_bytes;
  RETURN_IF_ERROR(all_.AddUserLayer(image, facts, request));
  RETURN_IF_ERROR(UseSealedDirectories(image.config, request));
  ASSIGN_OR_RETURN(entry.volumes, ShareVolumes(parts.volumes, facts.fields.volumes, &request));
  return request;
}

Status SandboxStops::Begin(SandboxEntry& entry, const Work& work) {
  const SandboxParts& parts = all_.parts();
  SandboxFacts& facts = entry.facts;
  const std::string id = facts.id;
  if (!IsClosed(facts.fields.network) && parts.networks == nullptr)
    return Error{.code = Code::kUnsupported, .what = "this daemon makes no networks"};
  RETURN_IF_ERROR(all_.AdmitCounts(facts.fields, facts.caller_uid));
  ASSIGN_OR_RETURN(entry.reserved_ports, all_.ReservePorts(facts.ports));
  facts.ports.clear();
  facts.timings_ms.clear();
  facts.reported.clear();
  facts.life_from = std::chrono::system_clock::now();
  entry.begun = Loop::Now();
  ASSIGN_OR_RETURN(runtime::CreateRequest request, RequestOf(entry));
  facts.process.cpus = all_.cpu_turns_.Take(facts.fields.cpus);
  request.id = id;
  request.fill = [this, id, work](runtime::ScratchToFill scratch) {
    return Fill(id, work, std::move(scratch));
  };
  ASSIGN_OR_RETURN(entry.sandbox, parts.runtime.Begin(std::move(request)));
  entry.stop = work;
  auto node = stopped_.extract(id);
  all_.CountIn(entry);
  all_.living_[id] = std::move(node.mapped());
  all_.Move(entry, SandboxState::kCreating, MoveCause::kRequested);
  all_.BeginIdle(entry, std::chrono::system_clock::now());
  entry.created = [this](const Result<SandboxEntry*>& made) {
    if (made.has_value()) Started(**made);
  };
  entry.ready_timer.Start(loop_, kReadyDeadline, [this, &entry] {
    all_.FailCreation(
        entry, Error{.code = Code::kUnavailable, .what = "the sandbox was not ready in time"});
  });
  if (parts.watching != nullptr) parts.watching->SandboxBegun(entry);
  return OkStatus();
}

// However long it takes: the time to be ready counts anew from then.
Status SandboxStops::Fill(const std::string& id, const Work& work, runtime::ScratchToFill scratch) {
  SandboxEntry* const entry = all_.Living(id);
  if (entry == nullptr || entry->stop != work || entry->ending)
    return Error{.code = Code::kBadState, .what = "it is not started any more"};
  entry->ready_timer.Cancel();
  const auto shared = std::make_shared<runtime::ScratchToFill>(std::move(scratch));
  return worker_.Submit([this, id, work, shared] {
    const Status done = files_.PutBack(id, *shared, *work->cancelled);
    shared->fd.reset();
    loop_.Post([this, id, work, done] { Filled(id, work, done); });
  });
}

void SandboxStops::Filled(const std::string& id, const Work& work, const Status& status) {
  SandboxEntry* const entry = all_.Living(id);
  if (entry == nullptr || entry->stop != work || entry->ending) return;
  if (!status.has_value()) return all_.FailCreation(*entry, status.error());
  const Status going = all_.parts().runtime.Filled(*entry->sandbox);
  if (!going.has_value()) return all_.FailCreation(*entry, going.error());
  entry->ready_timer.Start(loop_, kReadyDeadline, [this, entry] {
    all_.FailCreation(
        *entry, Error{.code = Code::kUnavailable, .what = "the sandbox was not ready in time"});
  });
}

// It runs, and its state file says from which stop: what is on disk holds no more.
void SandboxStops::Started(SandboxEntry& entry) {
  const Work work = std::move(entry.stop);
  const SandboxParts& parts = all_.parts();
  entry.moments.stopped_bytes.reset();
  // Its processes of before can be looked at; those without an end have none that anybody saw.
  entry.commands->TakeUp(processes_directory_ + entry.facts.id);
  entry.commands->SandboxEnded();
  IgnoreError(all_.TrackFiles(entry), "commands then do not tell which files they changed");
  ForgetFiles(entry.facts.id);
  if (parts.audit != nullptr)
    parts.audit->Record({.kind = AuditKind::kSandboxStarted,
                         .sandbox = entry.facts.id,
                         .name = entry.facts.fields.name,
                         .caller = work->caller});
  for (const StartDone& done : std::exchange(work->starters, {})) done(&entry);
}

void SandboxStops::ForgetFiles(const std::string& id) {
  forgetting_.insert(id);
  const Status begun = worker_.Submit([this, id] {
    host_records_.Sync(id);  // after a power cut one of the two is there
    const Result<std::string> gone = files_.Forget(id);
    loop_.Post([this, id] { forgetting_.erase(id); });
    if (gone.has_value() && !gone->empty())
      IgnoreError(RemoveTree(*gone), "the next start removes it");
  });
  if (!begun.has_value()) forgetting_.erase(id);  // the next stop replaces them
}

}  // namespace hutch::daemon
