// Images that are here: names, history, what can go, and archives out and in.
#include <memory>

#include "daemon/audit_records.h"
#include "daemon/files.h"
#include "daemon/handlers.h"
#include "daemon/image_archives.h"
#include "daemon/image_keeping.h"
#include "rootfs/image_source.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using rootfs::ArchiveFormat;

struct FormatRow {
  std::string_view name;
  ArchiveFormat format;
};
constexpr FormatRow kFormats[] = {
    {"", ArchiveFormat::kOci}, {"oci", ArchiveFormat::kOci}, {"docker", ArchiveFormat::kDocker}};

Status StatusOf(const Result<Json>& result) {
  return result.has_value() ? OkStatus() : Status(result.error());
}

void Answer(Responder& responder, int status, const Result<Json>& result) {
  if (result.has_value()) return responder.Send(JsonReply(status, *result));
  responder.Send(result.error());
}

}  // namespace

void HandleListImages(Api& api, Request, Responder responder) {
  responder.Send(JsonReply(200, api.image_keeping.List()));
}

void HandleGetImage(Api& api, Request request, Responder responder) {
  Answer(responder, 200, api.image_keeping.Get(request.parameters[0]));
}

void HandleImageHistory(Api& api, Request request, Responder responder) {
  Answer(responder, 200, api.image_keeping.History(request.parameters[0]));
}

void HandleTagImage(Api& api, Request request, Responder responder) {
  std::string name;
  oci::ObjectReader reader(request.json, "");
  reader.String("reference", &name, 1024);
  if (name.empty()) reader.Fail("reference", "is required");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.image_keeping.Tag(
      request.parameters[0], name, [&api, shared, name, peer = request.peer](Result<Json> image) {
        AuditImage(api, peer, AuditKind::kImageImported, name, StatusOf(image));
        Answer(*shared, 201, image);
      });
  if (!begun.has_value()) shared->Send(begun.error());
}

void HandlePruneImages(Api& api, Request request, Responder responder) {
  ImageKeeping::PruneFields fields;
  const Status status = oci::ObjectReader(request.json, "")
                            .Bool("all", &fields.all)
                            .Bool("dry_run", &fields.dry_run)
                            .Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.image_keeping.Prune(fields, [&api, shared, fields,
                                                        peer = request.peer](Result<Json> pruned) {
    if (pruned.has_value() && !fields.dry_run)
      for (const Json& image : (*pruned)["images"])
        AuditImage(api, peer, AuditKind::kImageDeleted, image["id"].get<std::string>(), OkStatus());
    Answer(*shared, 200, pruned);
  });
  if (!begun.has_value()) shared->Send(begun.error());
}

void HandleSaveImage(Api& api, Request request, Responder responder) {
  const std::string format = QueryValue(request, "format");
  for (const FormatRow& row : kFormats)
    if (row.name == format)
      return api.image_archives.Save(request.parameters[0], row.format, std::move(responder));
  responder.Send(
      Error{.code = Code::kInvalidArgument, .what = "must be oci or docker", .field = "format"});
}

void HandleLoadImage(Api& api, Request request, Responder responder) {
  const std::string reference = QueryValue(request, "reference");
  // Before gigabytes come that nothing becomes of.
  const auto name =
      reference.empty() ? Result<std::string>("") : rootfs::NormalReference(reference);
  if (!name.has_value()) return responder.Send(name.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.image_archives.Load(reference, request.content_length, shared,
                          [&api, shared, reference, peer = request.peer](Result<Json> image) {
                            AuditImage(api, peer, AuditKind::kImageImported,
                                       reference.empty() ? "an archive" : reference,
                                       StatusOf(image));
                            Answer(*shared, 201, image);
                          });
}

}  // namespace hutch::daemon
