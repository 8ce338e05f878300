// Images of what sandboxes wrote, more sandboxes of it, and what it is.
#include <memory>

#include "daemon/audit_records.h"
#include "daemon/exec_request.h"
#include "daemon/handlers.h"
#include "daemon/limits.h"
#include "daemon/sandbox_snapshots.h"
#include "daemon/watching.h"
#include "rootfs/image_source.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr uint64_t kDefaultDiffChanges = 1000;

Json SkippedJson(const rootfs::SkippedFiles& skipped) {
  Json examples = Json::array();
  for (const auto& [path, reason] : skipped.examples) {
    const bool text = IsUtf8(path);
    Json one = {{"path", text ? path : Base64Encode(path)}, {"reason", reason}};
    if (!text) one["path_encoding"] = "base64";
    examples.push_back(std::move(one));
  }
  return {{"count", skipped.count}, {"examples", std::move(examples)}};
}

void AddSealed(const SandboxSnapshots::Sealed& sealed, Json* json) {
  (*json)["image"] = ImageJson(sealed.image);
  (*json)["skipped"] = SkippedJson(sealed.skipped);
  (*json)["layer_bytes"] = sealed.written_bytes;
  (*json)["frozen_ms"] = sealed.frozen_ms;
}

AuditEntry BeginAudit(AuditKind kind, const SandboxEntry& entry, const Peer& caller) {
  return {
      .kind = kind, .sandbox = entry.facts.id, .name = entry.facts.fields.name, .caller = caller};
}

// A name that each of them could have.
Status CheckForkName(const std::string& name, const Config& config) {
  if (name.empty()) return OkStatus();
  const std::string longest = name + "-" + std::to_string(kMaxForks);
  auto fields = ParseSandboxFields({{"image", "any"}, {"name", longest}}, config);
  if (fields.has_value() || fields.error().field != "name") return OkStatus();
  return fields.error();
}

Result<SandboxSnapshots::ForkFields> ParseFork(const Json& json, const Config& config) {
  uint64_t count = 1;
  SandboxSnapshots::ForkFields fields;
  oci::ObjectReader reader(json, "");
  reader.Uint("count", &count).String("name", &fields.name, kMaxNameBytes);
  if (count == 0 || count > kMaxForks)
    reader.Fail("count", "must be 1 to " + std::to_string(kMaxForks));
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  RETURN_IF_ERROR(CheckForkName(fields.name, config));
  fields.count = static_cast<size_t>(count);
  return fields;
}

Json ForkedJson(Api& api, const SandboxSnapshots::Forked& forked) {
  Json json;
  AddSealed(forked.sealed, &json);
  json["sandboxes"] = Json::array();
  for (const std::string& id : forked.ids) {
    const Result<SandboxEntry*> entry = api.sandboxes.Find(id);
    if (entry.has_value()) json["sandboxes"].push_back(api.sandboxes.ToJson(**entry));
  }
  return json;
}

Result<SandboxSnapshots::DiffFields> ParseDiff(const Request& request) {
  SandboxSnapshots::DiffFields fields{.path = "/", .limit = kDefaultDiffChanges};
  for (const auto& [name, value] : request.query) {
    if (name == "limit") {
      const Result<uint64_t> limit = ParseUint(value, kMaxDiffChanges);
      if (!limit.has_value() || *limit == 0)
        return Error{.code = Code::kInvalidArgument,
                     .what = "must be 1 to " + std::to_string(kMaxDiffChanges),
                     .field = "limit"};
      fields.limit = static_cast<size_t>(*limit);
      continue;
    }
    if (value.empty() || value.front() != '/' || value.size() > kMaxPathBytes)
      return Error{
          .code = Code::kInvalidArgument, .what = "must be an absolute path", .field = "path"};
    fields.path = value;
    while (fields.path.size() > 1 && fields.path.back() == '/') fields.path.pop_back();
  }
  return fields;
}

}  // namespace

void HandleSnapshot(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  std::string reference;
  oci::ObjectReader reader(request.json, "");
  reader.String("reference", &reference, 1024);
  if (reference.empty()) reader.Fail("reference", "is required");
  const Status read = reader.Done(Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const auto name = rootfs::NormalReference(reference);
  if (!name.has_value()) return responder.Send(name.error());
  api.sandboxes.Touch(**entry, Activity::kCall);
  const auto answer = std::make_shared<JobAnswer>(request, std::move(responder));
  const auto audit =
      std::make_shared<AuditEntry>(BeginAudit(AuditKind::kSandboxSnapshot, **entry, request.peer));
  audit->detail = {{"reference", *name}};
  api.snapshots.Seal(
      **entry, *name, [answer](const rootfs::Progress& report) { answer->Report(report); },
      [&api, answer, audit,
       id = (*entry)->facts.id](const Result<SandboxSnapshots::Sealed>& sealed) {
        if (!sealed.has_value()) {
          audit->outcome = CodeName(sealed.error().code);
          api.audit.Record(std::move(*audit));
          return answer->Finish(201, sealed.error());
        }
        audit->detail["image"] = sealed->image.id;
        const Json detail = audit->detail;
        api.audit.Record(std::move(*audit));
        const Result<SandboxEntry*> source = api.sandboxes.Find(id);
        if (source.has_value()) api.watching.SandboxSealed(**source, detail);
        Json json;
        AddSealed(*sealed, &json);
        answer->Finish(201, json);
      });
}

void HandleFork(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto fields = ParseFork(request.json, api.config);
  if (!fields.has_value()) return responder.Send(fields.error());
  api.sandboxes.Touch(**entry, Activity::kCall);
  const auto answer = std::make_shared<JobAnswer>(request, std::move(responder));
  const auto audit =
      std::make_shared<AuditEntry>(BeginAudit(AuditKind::kSandboxForked, **entry, request.peer));
  audit->detail = {{"count", fields->count}};
  const auto done = [&api, answer, audit,
                     id = (*entry)->facts.id](const Result<SandboxSnapshots::Forked>& forked) {
    if (!forked.has_value()) {
      audit->outcome = CodeName(forked.error().code);
      api.audit.Record(std::move(*audit));
      return answer->Finish(201, forked.error());
    }
    audit->detail["sandboxes"] = forked->ids;
    const Json detail = audit->detail;
    const Peer caller = audit->caller;
    api.audit.Record(std::move(*audit));
    for (const std::string& made : forked->ids)
      AuditCreation(api, caller, api.sandboxes.Find(made));
    const Result<SandboxEntry*> source = api.sandboxes.Find(id);
    if (source.has_value()) api.watching.SandboxForked(**source, detail);
    answer->Finish(201, ForkedJson(api, *forked));
  };
  const auto fork = api.snapshots.Begin(
      **entry, *fields, request.peer,
      [answer](const rootfs::Progress& report) { answer->Report(report); }, done);
  answer->OnHangup([&api, fork] { api.snapshots.Abandon(fork); });
}

void HandleDiff(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto fields = ParseDiff(request);
  if (!fields.has_value()) return responder.Send(fields.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.snapshots.Diff(
      **entry, *fields, api.worker, [shared](const Result<rootfs::ChangeSet>& changes) {
        if (!changes.has_value()) return shared->Send(changes.error());
        shared->Send(
            JsonReply(200, {{"changes", FilesJson(*changes)}, {"truncated", !changes->complete}}));
      });
}

}  // namespace hutch::daemon
