// Volumes: the routes below /v1/volumes.
#include <memory>

#include "daemon/audit_records.h"
#include "daemon/create_request.h"
#include "daemon/handlers.h"
#include "daemon/label_selector.h"
#include "daemon/limits.h"
#include "daemon/progress_events.h"
#include "daemon/volume_archives.h"
#include "daemon/volume_keeping.h"
#include "rootfs/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

Status StatusOf(const Result<Json>& result) {
  return result.has_value() ? OkStatus() : Status(result.error());
}

Result<std::vector<LabelSelector>> ParseSelectors(const std::vector<std::string>& texts) {
  std::vector<LabelSelector> selectors;
  if (texts.size() > kMaxSelectors)
    return Error{.code = Code::kInvalidArgument,
                 .what = "more than " + std::to_string(kMaxSelectors) + " selectors",
                 .field = "label"};
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(LabelSelector selector, ParseLabelSelector(text));
    selectors.push_back(std::move(selector));
  }
  return selectors;
}

Result<rootfs::VolumeFacts> ParseNewVolume(const Json& json) {
  rootfs::VolumeFacts facts;
  std::string owner;
  oci::ObjectReader reader(json, "");
  reader.String("name", &facts.name, 1024)
      .Uint("size_bytes", &facts.size_bytes, rootfs::kMinVolumeBytes, rootfs::kMaxVolumeBytes)
      .String("owner", &owner, 64)
      .StringMap("labels", &facts.labels);
  if (facts.name.empty()) reader.Fail("name", "is required");
  if (facts.size_bytes == 0) reader.Fail("size_bytes", "is required");
  RETURN_IF_ERROR(reader.Done(Unknown::kRefuse));
  RETURN_IF_ERROR(CheckLabels(facts.labels));
  ASSIGN_OR_RETURN(const VolumeOwner ids, ParseVolumeOwner(owner));
  facts.uid = ids.uid;
  facts.gid = ids.gid;
  facts.created_at = std::chrono::system_clock::now();
  return facts;
}

// Tells the audit log and answers; what could not even begin is told the same way.
VolumeKeeping::Done Answer(Api& api, const Request& request, AuditKind kind,
                           const std::string& name, int status,
                           const std::shared_ptr<Responder>& responder) {
  return [&api, peer = request.peer, kind, name, status, responder](const Result<Json>& result) {
    AuditVolume(api, peer, kind, name, StatusOf(result));
    if (!result.has_value()) return responder->Send(result.error());
    if (status == 204) return responder->Send(Reply{.status = 204, .body = {}});
    responder->Send(JsonReply(status, *result));
  };
}

}  // namespace

void HandleListVolumes(Api& api, Request request, Responder responder) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : request.query) texts.push_back(value);
  const auto labels = ParseSelectors(texts);
  if (!labels.has_value()) return responder.Send(labels.error());
  responder.Send(JsonReply(200, api.volumes.List(*labels)));
}

void HandleGetVolume(Api& api, Request request, Responder responder) {
  const Result<Json> volume = api.volumes.Get(request.parameters[0]);
  if (!volume.has_value()) return responder.Send(volume.error());
  responder.Send(JsonReply(200, *volume));
}

void HandleCreateVolume(Api& api, Request request, Responder responder) {
  Result<rootfs::VolumeFacts> facts = ParseNewVolume(request.json);
  if (!facts.has_value()) return responder.Send(facts.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto answer = Answer(api, request, AuditKind::kVolumeCreated, facts->name, 201, shared);
  const Status begun = api.volumes.Create(*facts, answer);
  if (!begun.has_value()) answer(begun.error());
}

void HandleChangeVolume(Api& api, Request request, Responder responder) {
  uint64_t size_bytes = 0;
  oci::ObjectReader reader(request.json, "");
  reader.Uint("size_bytes", &size_bytes, rootfs::kMinVolumeBytes, rootfs::kMaxVolumeBytes);
  if (size_bytes == 0) reader.Fail("size_bytes", "is required");
  const Status read = reader.Done(Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const std::string& name = request.parameters[0];
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto answer = Answer(api, request, AuditKind::kVolumeChanged, name, 200, shared);
  const Status begun = api.volumes.Grow(name, size_bytes, answer);
  if (!begun.has_value()) answer(begun.error());
}

void HandleDeleteVolume(Api& api, Request request, Responder responder) {
  const std::string& name = request.parameters[0];
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto answer = Answer(api, request, AuditKind::kVolumeRemoved, name, 204, shared);
  const Status begun = api.volumes.Remove(name, answer);
  if (!begun.has_value()) answer(begun.error());
}

void HandleCopyVolume(Api& api, Request request, Responder responder) {
  std::string to;
  oci::ObjectReader reader(request.json, "");
  reader.String("to", &to, 1024);
  if (!rootfs::Volumes::IsName(to)) reader.Fail("to", "must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}");
  const Status read = reader.Done(Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const std::string& name = request.parameters[0];
  const auto job = std::make_shared<JobAnswer>(request, std::move(responder));
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  job->OnHangup([cancelled] { *cancelled = true; });
  const auto done = [&api, peer = request.peer, name, to, job](const Result<Json>& result) {
    AuditVolume(api, peer, AuditKind::kVolumeExported, name, StatusOf(result), {{"to", to}});
    job->Finish(201, result);
  };
  const Status begun = api.volumes.Copy(
      name, to, [job](const rootfs::Progress& report) { job->Report(report); }, cancelled, done);
  if (!begun.has_value()) done(begun.error());
}

void HandlePruneVolumes(Api& api, Request request, Responder responder) {
  bool dry_run = false;
  std::vector<std::string> texts;
  const Status read = oci::ObjectReader(request.json, "")
                          .Bool("dry_run", &dry_run)
                          .Strings("labels", &texts, kMaxSelectors)
                          .Done(Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const auto labels = ParseSelectors(texts);
  if (!labels.has_value()) return responder.Send(labels.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto done = [&api, peer = request.peer, shared, dry_run](const Result<Json>& pruned) {
    if (!pruned.has_value()) return shared->Send(pruned.error());
    if (!dry_run)
      for (const Json& name : (*pruned)["volumes"])
        AuditVolume(api, peer, AuditKind::kVolumeRemoved, name.get<std::string>(), OkStatus());
    shared->Send(JsonReply(200, *pruned));
  };
  using Mode = VolumeKeeping::PruneMode;
  const Status begun = api.volumes.Prune(*labels, dry_run ? Mode::kDryRun : Mode::kRemove, done);
  if (!begun.has_value()) shared->Send(begun.error());
}

void HandleExportVolume(Api& api, Request request, Responder responder) {
  const std::string& name = request.parameters[0];
  const Result<Json> volume = api.volumes.Get(name);
  AuditVolume(api, request.peer, AuditKind::kVolumeExported, name, StatusOf(volume));
  api.volume_archives.Export(name, std::move(responder));
}

void HandleImportVolume(Api& api, Request request, Responder responder) {
  const std::string name = request.parameters[0];
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.volume_archives.Import(name, shared,
                             [&api, peer = request.peer, name, shared](const Status& imported) {
                               AuditVolume(api, peer, AuditKind::kVolumeImported, name, imported);
                               if (!imported.has_value()) return shared->Send(imported.error());
                               const Result<Json> volume = api.volumes.Get(name);
                               if (!volume.has_value()) return shared->Send(volume.error());
                               shared->Send(JsonReply(200, *volume));
                             });
}

}  // namespace hutch::daemon
