#include "daemon/watching.h"

#include <sys/wait.h>

#include <algorithm>

#include "daemon/audit.h"
#include "daemon/limits.h"
#include "daemon/routes.h"
#include "daemon/sandboxes.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxToldBytes = 512;  // of a message or a subject

// Cut, and text whatever it was.
std::string Told(const std::string& text) { return text.substr(0, kMaxToldBytes); }

oci::Json ErrorDetail(const Error& error) {
  return {{"error", {{"code", CodeName(error.code)}, {"message", Told(error.what)}}}};
}

oci::Json EndDetail(const ProcessEnd& end, uint32_t process) {
  const bool exited = !end.facts.sandbox_ended && WIFEXITED(end.facts.wait_status);
  return {{"process_id", "p" + std::to_string(process)},
          {"cause", CauseName(DecideCause(end.facts))},
          {"exit_code", exited ? oci::Json(WEXITSTATUS(end.facts.wait_status)) : oci::Json()},
          {"duration_ms", end.duration_ms}};
}

oci::Json SandboxDetail(const SandboxFacts& facts) {
  oci::Json detail = {{"image", Told(facts.image_reference)}};
  if (!facts.fields.owner.empty()) detail["owner"] = Told(facts.fields.owner);
  if (!facts.fields.template_name.empty()) detail["template"] = facts.fields.template_name;
  return detail;
}

}  // namespace

Watching::Watching() { metrics_.requests.resize(Routes().size() + 1); }

// Of one that waits in a pool nobody hears: its events begin when it is handed out.
void Watching::Tell(EventKind kind, const SandboxEntry& entry, const oci::Json& detail) {
  if (entry.facts.fields.pooled) return;
  events_.Append({.kind = kind,
                  .sandbox = entry.facts.id,
                  .name = entry.facts.fields.name,
                  .detail = EventDetail(detail),
                  .labels = LabelHashes(entry.facts.fields.labels)});
}

void Watching::CountKill(const SandboxEntry& entry, const oci::Json& detail) {
  ++metrics_.oom_kills;
  Tell(EventKind::kSandboxOom, entry, detail);
}

void Watching::SandboxBegun(const SandboxEntry& entry) {
  Tell(EventKind::kSandboxCreating, entry, SandboxDetail(entry.facts));
}

void Watching::SandboxRuns(const SandboxEntry& entry) {
  if (entry.facts.fields.pooled) return;
  const SandboxFacts& facts = entry.facts;
  ++metrics_.creations["running"];
  for (const auto& [step, ms] : facts.timings_ms) {
    if (step == "total")
      metrics_.create.Add(ms / 1000);
    else
      metrics_.create_phases[step].Add(ms / 1000);
  }
  oci::Json detail = SandboxDetail(facts);
  detail["from_pool"] = facts.from_pool;
  if (!facts.fields.pool.empty()) detail["pool"] = facts.fields.pool;
  if (!facts.timings_ms.empty()) detail["duration_ms"] = facts.timings_ms.front().second;
  Tell(EventKind::kSandboxRunning, entry, detail);
}

void Watching::SandboxTakenUp(const SandboxEntry& entry) {
  if (entry.facts.fields.pooled) return;
  ++metrics_.taken_up;
  oci::Json detail = SandboxDetail(entry.facts);
  detail["taken_up"] = true;
  const bool paused = entry.moments.state == SandboxState::kPaused;
  Tell(paused ? EventKind::kSandboxPaused : EventKind::kSandboxRunning, entry, detail);
}

void Watching::SandboxPaused(const SandboxEntry& entry) {
  const MoveCause cause = entry.facts.history.back().cause;
  ++metrics_.pauses[CauseName(cause)];
  Tell(EventKind::kSandboxPaused, entry, {{"cause", CauseName(cause)}});
}

void Watching::SandboxResumed(const SandboxEntry& entry) {
  Tell(EventKind::kSandboxResumed, entry, {{"cause", CauseName(entry.facts.history.back().cause)}});
}

void Watching::SandboxSealed(const SandboxEntry& entry, const oci::Json& detail) {
  Tell(EventKind::kSandboxSnapshot, entry, detail);
}

void Watching::SandboxForked(const SandboxEntry& entry, const oci::Json& detail) {
  Tell(EventKind::kSandboxForked, entry, detail);
}

void Watching::SandboxStopped(const SandboxEntry& entry) {
  oci::Json detail = {{"cause", CauseName(entry.facts.history.back().cause)}};
  if (entry.moments.stopped_bytes) detail["bytes"] = *entry.moments.stopped_bytes;
  Tell(EventKind::kSandboxStopped, entry, detail);
}

void Watching::SandboxExpires(const SandboxEntry& entry, const Deadlines::Warning& warning) {
  Tell(EventKind::kSandboxExpiring, entry,
       {{"reason", CauseName(warning.cause)}, {"seconds_left", warning.seconds_left}});
}

void Watching::SandboxEnds(const SandboxEntry& entry) {
  if (entry.facts.fields.pooled) return;
  struct Row {
    SandboxState state;
    EventKind event;
  };
  constexpr Row kRows[] = {{SandboxState::kDestroyed, EventKind::kSandboxDestroyed},
                           {SandboxState::kExpired, EventKind::kSandboxExpired},
                           {SandboxState::kFailed, EventKind::kSandboxFailed}};
  const HistoryEntry& last = entry.facts.history.back();
  if (entry.commands == nullptr && entry.facts.stops == 0)
    ++metrics_.creations["failed"];
  else
    ++metrics_.ends[CauseName(last.cause)];
  if (last.cause == MoveCause::kOutOfMemory) CountKill(entry, oci::Json::object());
  oci::Json detail = entry.error && last.state == SandboxState::kFailed ? ErrorDetail(*entry.error)
                                                                        : oci::Json::object();
  detail["cause"] = CauseName(last.cause);
  for (const Row& row : kRows)
    if (row.state == last.state) Tell(row.event, entry, detail);
}

void Watching::CommandEnded(const SandboxEntry* entry, const Result<ExecResult>& result) {
  if (!result.has_value()) {
    ++metrics_.execs["failed"];
    if (entry != nullptr) Tell(EventKind::kExecFinished, *entry, ErrorDetail(result.error()));
    return;
  }
  const ProcessEnd& end = result->end;
  ++metrics_.execs[CauseName(DecideCause(end.facts))];
  metrics_.exec.Add(end.duration_ms / 1000);
  if (entry == nullptr) return;
  const oci::Json detail = EndDetail(end, result->process);
  if (end.facts.oom_killed) CountKill(*entry, {{"process_id", detail["process_id"]}});
  Tell(EventKind::kExecFinished, *entry, detail);
}

// The protocol is the egress program's word, and that one reads what tenants send: no label is made
// of what nobody knows.
void Watching::NetworkDenied(const SandboxEntry& entry, const oci::Json& denial) {
  constexpr const char* kProtocols[] = {"dns", "http", "connect", "socks", "tls", "tcp"};
  std::string protocol = denial.value("protocol", "");
  if (std::find(std::begin(kProtocols), std::end(kProtocols), protocol) == std::end(kProtocols))
    protocol = "other";
  metrics_.denials[protocol] += denial.value("times", uint64_t{1});
  Tell(EventKind::kNetworkDenied, entry, denial);
}

void Watching::NetworkChanged(const SandboxEntry& entry, const oci::Json& policy) {
  Tell(EventKind::kNetworkChanged, entry, policy);
}

void Watching::ProcessStarted(const SandboxEntry& entry, const BackgroundProcess& process) {
  ++metrics_.processes_started;
  const ProcessFacts& facts = process.facts();
  Tell(EventKind::kProcessStarted, entry,
       {{"process_id", "p" + std::to_string(facts.number)},
        {"command", facts.args.empty() ? "" : Told(facts.args.front())}});
}

void Watching::ProcessEnded(const SandboxEntry& entry, const BackgroundProcess& process) {
  const ProcessEnd& end = *process.facts().end;
  ++metrics_.processes_ended[CauseName(DecideCause(end.facts))];
  const oci::Json detail = EndDetail(end, process.facts().number);
  if (end.facts.oom_killed) CountKill(entry, {{"process_id", detail["process_id"]}});
  Tell(EventKind::kProcessExited, entry, detail);
}

void Watching::ImageChanged(AuditKind kind, const std::string& subject, const Status& outcome) {
  struct Row {
    AuditKind kind;
    EventKind event;
    CountBy Metrics::*count;
  };
  constexpr Row kRows[] = {
      {AuditKind::kImagePulled, EventKind::kImagePulled, &Metrics::pulls},
      {AuditKind::kImageImported, EventKind::kImageImported, &Metrics::imports},
      {AuditKind::kImageDeleted, EventKind::kImageDeleted, &Metrics::image_deletions},
  };
  for (const Row& row : kRows) {
    if (row.kind != kind) continue;
    ++(metrics_.*row.count)[outcome.has_value() ? "ok" : CodeName(outcome.error().code)];
    if (outcome.has_value())
      events_.Append({.kind = row.event, .detail = EventDetail({{"image", Told(subject)}})});
  }
}

void Watching::DaemonStarted() {
  events_.Append(
      {.kind = EventKind::kDaemonStarted, .detail = EventDetail({{"version", HUTCH_VERSION}})});
}

void Watching::DaemonReloaded(const oci::Json& detail) {
  events_.Append({.kind = EventKind::kDaemonReloaded, .detail = EventDetail(detail)});
}

void Watching::DaemonStops() {
  events_.Append({.kind = EventKind::kDaemonStopping});
  events_.Stop();
}

}  // namespace hutch::daemon
