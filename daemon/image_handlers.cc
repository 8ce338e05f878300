#include <memory>

#include "daemon/audit_records.h"
#include "daemon/handlers.h"

namespace hutch::daemon {
namespace {

// Answers an import or a build: one reply, or events when the client asked for them.
class JobAnswer {
 public:
  JobAnswer(Responder responder, bool events) : responder_(std::move(responder)), events_(events) {
    if (events_) responder_.StartEvents();
  }

  void Progress(const rootfs::Progress& report) {
    if (!events_) return;
    const oci::Json json = {{"stage", report.stage},
                            {"subject", report.subject},
                            {"done", report.done},
                            {"total", report.total}};
    responder_.Event("progress", oci::PrintJson(json));
  }

  void Finish(const Result<oci::Json>& image) {
    if (!events_)
      return image.has_value() ? responder_.Send(JsonReply(201, *image))
                               : responder_.Send(image.error());
    if (image.has_value())
      responder_.Event("result", oci::PrintJson(*image));
    else
      responder_.Event("error", oci::PrintJson(ErrorJson(image.error())));
    responder_.End();
  }

 private:
  Responder responder_;
  bool events_;
};

Status StatusOf(const Result<oci::Json>& result) {
  return result.has_value() ? OkStatus() : Status(result.error());
}

template <class Begin>
void RunJob(Api& api, const Request& request, const std::string& subject, Responder responder,
            const Begin& begin) {
  const auto answer = std::make_shared<JobAnswer>(std::move(responder),
                                                  request.wants_events || request.wants_ndjson);
  const Status begun =
      begin([answer](const rootfs::Progress& report) { answer->Progress(report); },
            [&api, answer, subject, peer = request.peer](Result<oci::Json> image) {
              AuditImage(api, peer, AuditKind::kImageImported, subject, StatusOf(image));
              answer->Finish(image);
            });
  if (begun.has_value()) return;
  AuditImage(api, request.peer, AuditKind::kImageImported, subject, begun);
  answer->Finish(begun.error());
}

}  // namespace

void HandleListImages(Api& api, Request, Responder responder) {
  responder.Send(JsonReply(200, api.images.List()));
}

void HandleGetImage(Api& api, Request request, Responder responder) {
  const Result<oci::Json> image = api.images.Get(request.parameters[0]);
  if (!image.has_value()) return responder.Send(image.error());
  responder.Send(JsonReply(200, *image));
}

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
