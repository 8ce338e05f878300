#include <memory>

#include "daemon/audit_records.h"
#include "daemon/handlers.h"
#include "daemon/progress_events.h"

namespace hutch::daemon {
namespace {

Status StatusOf(const Result<oci::Json>& result) {
  return result.has_value() ? OkStatus() : Status(result.error());
}

template <class Begin>
void RunJob(Api& api, const Request& request, const std::string& subject, Responder responder,
            const Begin& begin) {
  const auto answer = std::make_shared<JobAnswer>(request, std::move(responder));
  const Status begun =
      begin([answer](const rootfs::Progress& report) { answer->Report(report); },
            [&api, answer, subject, peer = request.peer](Result<oci::Json> image) {
              AuditImage(api, peer, AuditKind::kImageImported, subject, StatusOf(image));
              answer->Finish(201, image);
            });
  if (begun.has_value()) return;
  AuditImage(api, request.peer, AuditKind::kImageImported, subject, begun);
  answer->Finish(201, begun.error());
}

}  // namespace

void HandleListCatalog(Api& api, Request, Responder responder) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.images.ListCatalog(
      api.worker, [shared](const oci::Json& catalog) { shared->Send(JsonReply(200, catalog)); });
  if (!begun.has_value()) shared->Send(begun.error());
}

void HandleImportImage(Api& api, Request request, Responder responder) {
  std::string path, reference;
  oci::ObjectReader reader(request.json, "");
  reader.String("path", &path, 4096).String("reference", &reference, 1024);
  if (path.empty())
    reader.Fail("path", "is required");
  else if (path[0] != '/' || path.find('\0') != std::string::npos)
    reader.Fail("path", "must be an absolute path on the host");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  RunJob(
      api, request, reference.empty() ? path : reference, std::move(responder),
      [&](auto progress, auto done) { return api.images.Import(path, reference, progress, done); });
}

void HandleBuildImage(Api& api, Request request, Responder responder) {
  std::string name;
  oci::ObjectReader reader(request.json, "");
  reader.String("name", &name, 256);
  if (name.empty()) reader.Fail("name", "is required");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  RunJob(api, request, name, std::move(responder),
         [&](auto progress, auto done) { return api.images.Build(name, progress, done); });
}

void HandleDeleteImage(Api& api, Request request, Responder responder) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun =
      api.images.Remove(request.parameters[0], [&api, shared, subject = request.parameters[0],
                                                peer = request.peer](Result<oci::Json> removed) {
        AuditImage(api, peer, AuditKind::kImageDeleted, subject, StatusOf(removed));
        if (removed.has_value())
          shared->Send(JsonReply(200, *removed));
        else
          shared->Send(removed.error());
      });
  if (begun.has_value()) return;
  AuditImage(api, request.peer, AuditKind::kImageDeleted, request.parameters[0], begun);
  shared->Send(begun.error());
}

}  // namespace hutch::daemon
