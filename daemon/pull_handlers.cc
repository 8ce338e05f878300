#include <memory>

#include "daemon/audit_records.h"
#include "daemon/handlers.h"
#include "daemon/wanted_image.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxCredentialBytes = 16384;  // tokens are long

// Joins or begins the pull; the audit log gets it. Returns what leaves it; empty when it could not
// be begun, which `done` was told.
std::function<void()> PullFor(Api& api, const Peer& caller, const rootfs::PullRequest& request,
                              Progress progress,
                              const std::function<void(const Result<rootfs::Image>&)>& done) {
  const auto audit = [&api, caller, subject = request.reference.ToString()](const Status& outcome) {
    AuditImage(api, caller, AuditKind::kImagePulled, subject, outcome);
  };
  const Result<Pulls::Ticket> ticket = api.images.pulls().Join(
      request,
      {.progress = std::move(progress), .done = [audit, done](const Result<rootfs::Image>& image) {
         audit(image.has_value() ? OkStatus() : Status(image.error()));
         done(image);
       }});
  if (!ticket.has_value()) {
    audit(ticket.error());
    done(ticket.error());
    return {};
  }
  return [&api, audit, ticket = *ticket] {
    api.images.pulls().Leave(ticket);
    audit(Error{.code = Code::kUnavailable, .what = "the client hung up"});
  };
}

// What a create says of a pull that failed.
Error ForCreate(Error error, const std::string& image) {
  error.what = "image \"" + image + "\" could not be pulled: " + error.what;
  error.field = "image";
  return error;
}

}  // namespace

void HandlePullImage(Api& api, Request request, Responder responder) {
  std::string text;
  rootfs::PullRequest pull;
  oci::ObjectReader reader(request.json, "");
  reader.String("reference", &text, 1024)
      .Bool("plain_http", &pull.plain_http)
      .String("username", &pull.username, kMaxCredentialBytes)
      .String("password", &pull.password, kMaxCredentialBytes);
  if (text.empty()) reader.Fail("reference", "is required");
  if (pull.username.empty() != pull.password.empty())
    reader.Fail("password", "goes together with username");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  Result<rootfs::Reference> reference = api.images.Pullable(text);
  if (!reference.has_value()) {
    AuditImage(api, request.peer, AuditKind::kImagePulled, text, reference.error());
    return responder.Send(reference.error());
  }
  pull.reference = *std::move(reference);
  const auto answer = std::make_shared<JobAnswer>(request, std::move(responder));
  std::function<void()> leave = PullFor(
      api, request.peer, pull, [answer](const rootfs::Progress& report) { answer->Report(report); },
      [answer](const Result<rootfs::Image>& image) {
        answer->Finish(201,
                       image.has_value() ? Result<oci::Json>(ImageJson(*image)) : image.error());
      });
  if (leave) answer->OnHangup(std::move(leave));
}

std::function<void()> WithImage(Api& api, const Peer& caller, const SandboxFields& fields,
                                Progress progress,
                                std::function<void(Result<std::string> name)> then) {
  const std::string& image = fields.image;
  const bool always = fields.pull == "always";
  const auto now = [&then](Result<std::string> name) -> std::function<void()> {
    then(std::move(name));
    return {};
  };
  if (fields.pull == "never" || (!always && api.images.Has(image))) return now(image);
  Result<rootfs::Reference> reference = api.images.Pullable(image);
  if (!reference.has_value()) {
    const bool names_none = reference.error().code == Code::kInvalidArgument;
    if (!always && names_none) return now(image);
    return now(ForCreate(std::move(reference).error(), image));
  }
  rootfs::PullRequest pull;
  pull.reference = *std::move(reference);
  return PullFor(
      api, caller, pull, std::move(progress),
      [image, name = pull.reference.ToString(),
       then = std::move(then)](const Result<rootfs::Image>& pulled) {
        then(pulled.has_value() ? Result<std::string>(name) : ForCreate(pulled.error(), image));
      });
}

}  // namespace hutch::daemon
