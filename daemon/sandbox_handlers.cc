#include <memory>

#include "base/log.h"
#include "daemon/audit_records.h"
#include "daemon/handlers.h"
#include "daemon/wanted_image.h"

namespace hutch::daemon {
namespace {

struct Filter {
  std::optional<SandboxState> state;
  std::vector<std::pair<std::string, std::string>> labels;
};

Result<Filter> ParseFilter(const Request& request) {
  Filter filter;
  for (const auto& [name, value] : request.query) {
    if (name == "state") {
      filter.state = ParseState(value);
      if (!filter.state)
        return Error{.code = Code::kInvalidArgument,
                     .what = "must be creating, running or stopped",
                     .field = "state"};
      continue;
    }
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0)
      return Error{.code = Code::kInvalidArgument, .what = "must be KEY=VALUE", .field = "label"};
    filter.labels.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  }
  return filter;
}

bool Fits(const Filter& filter, const SandboxEntry& entry) {
  if (filter.state && *filter.state != entry.moments.state) return false;
  for (const auto& [key, value] : filter.labels) {
    const auto it = entry.facts.fields.labels.find(key);
    if (it == entry.facts.fields.labels.end() || it->second != value) return false;
  }
  return true;
}

}  // namespace

namespace {

void CreateSandbox(Api& api, const Peer& caller, SandboxFields fields,
                   const std::shared_ptr<JobAnswer>& answer) {
  Result<std::string> id = api.sandboxes.Create(
      std::move(fields), caller, [&api, answer, caller](Result<SandboxEntry*> entry) {
        AuditCreation(api, caller, entry);
        answer->Finish(201, entry.has_value() ? Result<oci::Json>(api.sandboxes.ToJson(**entry))
                                              : entry.error());
      });
  if (!id.has_value()) {
    AuditDenial(api, caller, nullptr, "create", id.error());
    return answer->Finish(201, id.error());
  }
  // Whoever asked never learns its id: it would live on unknown.
  answer->OnHangup([&api, id = *id] { api.sandboxes.Abandon(id); });
}

}  // namespace

void HandleCreateSandbox(Api& api, Request request, Responder responder) {
  Result<SandboxFields> fields = ParseSandboxFields(request.json, api.config);
  if (!fields.has_value()) return responder.Send(fields.error());
  const auto answer = std::make_shared<JobAnswer>(request, std::move(responder));
  WithImage(api, request.peer, *fields, answer,
            [&api, answer, caller = request.peer, fields = *fields](Result<std::string> image) {
              if (!image.has_value()) {
                AuditDenial(api, caller, nullptr, "create", image.error());
                return answer->Finish(201, image.error());
              }
              SandboxFields wanted = fields;
              wanted.image = *std::move(image);
              CreateSandbox(api, caller, std::move(wanted), answer);
            });
}

void HandleListSandboxes(Api& api, Request request, Responder responder) {
  const Result<Filter> filter = ParseFilter(request);
  if (!filter.has_value()) return responder.Send(filter.error());
  oci::Json list = oci::Json::array();
  for (const SandboxEntry* entry : api.sandboxes.List())
    if (Fits(*filter, *entry)) list.push_back(api.sandboxes.ToJson(*entry));
  responder.Send(JsonReply(200, {{"sandboxes", std::move(list)}}));
}

void HandleGetSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  responder.Send(JsonReply(200, api.sandboxes.ToJson(**entry)));
}

void HandleDeleteSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  if ((*entry)->sandbox == nullptr)
    return responder.Send(Error{.code = Code::kNotFound,
                                .what = "sandbox " + (*entry)->facts.id + " is removed already"});
  const auto shared = std::make_shared<Responder>(std::move(responder));
  if (!(*entry)->ending) (*entry)->ended_by = request.peer;
  api.sandboxes.Destroy(**entry, StopCause::kDeleted, [shared](const Status& removed) {
    if (removed.has_value())
      shared->Send(Reply{.status = 204, .body = {}});
    else
      shared->Send(removed.error());
  });
}

void HandleHeartbeat(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  api.sandboxes.Touch(**entry);
  responder.Send(Reply{.status = 204, .body = {}});
}

}  // namespace hutch::daemon
