#include <memory>

#include "daemon/handlers.h"
#include "daemon/template_start.h"

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

void HandleCreateSandbox(Api& api, Request request, Responder responder) {
  const auto asked = std::make_shared<const Request>(std::move(request));
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto start = [&api, asked, shared](const Result<CreatePlan>& plan) {
    if (!plan.has_value()) return shared->Send(plan.error());
    std::make_shared<SandboxStart>(api, *asked, std::move(*shared), *plan)->Run(plan->fields);
  };
  if (!asked->json.is_object() || !asked->json.contains("template"))
    return start(PlanCreate(asked->json, api.config));
  // A template may be in the operator's directory, which may be slow to read.
  const Status begun = api.worker.Submit([&api, asked, start] {
    auto plan = std::make_shared<Result<CreatePlan>>(PlanCreate(asked->json, api.config));
    api.loop.Post([start, plan] { start(*plan); });
  });
  if (!begun.has_value()) shared->Send(begun.error());
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
