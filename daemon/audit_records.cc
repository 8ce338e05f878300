#include "daemon/audit_records.h"

#include <sys/wait.h>

#include "daemon/limits.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

// The beginning of what a command read or wrote.
oci::Json Content(const std::string& bytes) {
  std::string head = bytes.substr(0, kMaxAuditContentBytes);
  for (int i = 0; i < 3 && !IsUtf8(head) && !head.empty(); ++i) head.pop_back();  // cut in two
  return IsUtf8(head) ? head : HexEncode(head.substr(0, kMaxAuditContentBytes / 2));
}

}  // namespace

void AuditCreation(Api& api, const Peer& caller, const Result<SandboxEntry*>& made) {
  if (!made.has_value()) return AuditDenial(api, caller, nullptr, "create", made.error());
  const SandboxFacts& facts = (*made)->facts;
  AuditEntry entry{.kind = AuditKind::kSandboxCreated,
                   .sandbox = facts.id,
                   .name = facts.fields.name,
                   .caller = caller,
                   .detail = {{"image", facts.image_reference},
                              {"image_id", facts.image_id},
                              {"from_pool", facts.from_pool}}};
  if (!facts.fields.template_name.empty()) entry.detail["template"] = facts.fields.template_name;
  if (!facts.timings_ms.empty()) entry.detail["duration_ms"] = facts.timings_ms.front().second;
  api.audit.Record(entry);
  if (facts.fields.relax.empty()) return;
  entry.kind = AuditKind::kRelaxation;
  entry.detail = oci::Json::object();
  // By name: a whole seccomp profile would not fit.
  for (const auto& [name, value] : facts.fields.relax.items())
    entry.detail[name] = value.is_object() ? oci::Json("custom") : value;
  api.audit.Record(std::move(entry));
}

void AuditDenial(Api& api, const Peer& caller, const SandboxEntry* sandbox, const char* call,
                 const Error& error) {
  AuditEntry entry{.kind = AuditKind::kDenial,
                   .caller = caller,
                   .outcome = CodeName(error.code),
                   .detail = {{"call", call}, {"message", Content(error.ToString())}}};
  if (!error.field.empty()) entry.detail["field"] = error.field;
  if (sandbox != nullptr) {
    entry.sandbox = sandbox->facts.id;
    entry.name = sandbox->facts.fields.name;
  }
  api.audit.Record(std::move(entry));
}

AuditEntry BeginExecAudit(Api& api, const SandboxEntry& sandbox, const Request& request,
                          const ExecFields& fields) {
  AuditEntry entry{.kind = AuditKind::kExec,
                   .sandbox = sandbox.facts.id,
                   .name = sandbox.facts.fields.name,
                   .caller = request.peer,
                   .detail = {{"command", AuditCommand(fields.args)}}};
  if (!fields.user.empty()) entry.detail["user"] = fields.user;
  if (api.config.audit_content == "on" && !fields.stdin_bytes.empty())
    entry.detail["stdin"] = Content(fields.stdin_bytes);
  return entry;
}

void EndExecAudit(Api& api, AuditEntry entry, const Result<ExecResult>& result) {
  entry.time = std::chrono::system_clock::now();
  const Result<SandboxEntry*> sandbox = api.sandboxes.Find(entry.sandbox);
  api.watching.CommandEnded(sandbox.has_value() ? *sandbox : nullptr, result);
  if (!result.has_value()) {
    entry.outcome = CodeName(result.error().code);
    return api.audit.Record(std::move(entry));
  }
  const Cause cause = DecideCause(result->end.facts);
  oci::Json& detail = entry.detail;
  detail["cause"] = CauseName(cause);
  detail["exit_code"] =
      cause == Cause::kExited ? oci::Json(WEXITSTATUS(result->end.facts.wait_status)) : oci::Json();
  detail["duration_ms"] = result->end.duration_ms;
  detail["stdout_bytes"] = result->out.total_bytes;
  detail["stderr_bytes"] = result->err.total_bytes;
  detail["process_id"] = "p" + std::to_string(result->process);
  if (result->files) detail["files_changed"] = result->files->changes.size();
  if (api.config.audit_content == "on") {
    detail["stdout"] = Content(result->out.text);
    detail["stderr"] = Content(result->err.text);
  }
  api.audit.Record(std::move(entry));
}

void AuditProcess(Api& api, const Peer& caller, const SandboxEntry& sandbox,
                  const BackgroundProcess& process) {
  api.watching.ProcessStarted(sandbox, process);
  api.audit.Record({.kind = AuditKind::kProcessStarted,
                    .sandbox = sandbox.facts.id,
                    .name = sandbox.facts.fields.name,
                    .caller = caller,
                    .detail = {{"command", AuditCommand(process.facts().args)},
                               {"process_id", "p" + std::to_string(process.facts().number)},
                               {"user", process.facts().user}}});
}

void AuditImage(Api& api, const Peer& caller, AuditKind kind, const std::string& subject,
                const Status& outcome) {
  api.watching.ImageChanged(kind, subject, outcome);
  api.audit.Record({.kind = kind,
                    .caller = caller,
                    .outcome = outcome.has_value() ? "ok" : CodeName(outcome.error().code),
                    .detail = {{"image", Content(subject)}}});
}

void AuditVolume(Api& api, const Peer& caller, AuditKind kind, const std::string& name,
                 const Status& outcome, oci::Json detail) {
  detail["volume"] = Content(name);
  api.audit.Record({.kind = kind,
                    .caller = caller,
                    .outcome = outcome.has_value() ? "ok" : CodeName(outcome.error().code),
                    .detail = std::move(detail)});
}

}  // namespace hutch::daemon
