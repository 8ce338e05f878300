#include <algorithm>
#include <memory>

#include "daemon/files.h"
#include "daemon/handlers.h"
#include "daemon/keyed_create.h"
#include "daemon/label_selector.h"
#include "daemon/limits.h"
#include "daemon/sandbox_pools.h"
#include "daemon/sandbox_stops.h"
#include "daemon/template_start.h"

namespace hutch::daemon {
namespace {

struct Filter {
  std::optional<SandboxState> state;
  std::optional<std::string> session_key;
  std::vector<LabelSelector> labels;
  bool pooled = false;  // those that wait in pools, and no others
};

Result<Filter> ParseFilter(const Request& request) {
  Filter filter;
  for (const auto& [name, value] : request.query) {
    if (name == "state") {
      filter.state = ParseState(value);
      if (!filter.state)
        return Error{.code = Code::kInvalidArgument,
                     .what = "must be one of " + StateList(),
                     .field = "state"};
      continue;
    }
    if (name == "session_key") {
      filter.session_key = value;
      continue;
    }
    if (name == "pooled") {
      ASSIGN_OR_RETURN(filter.pooled, QueryFlag(request, "pooled"));
      continue;
    }
    if (filter.labels.size() == kMaxSelectors)
      return Error{.code = Code::kInvalidArgument,
                   .what = "more than " + std::to_string(kMaxSelectors) + " selectors",
                   .field = "label"};
    ASSIGN_OR_RETURN(LabelSelector selector, ParseLabelSelector(value));
    filter.labels.push_back(std::move(selector));
  }
  return filter;
}

bool Fits(const Filter& filter, const SandboxEntry& entry) {
  if (filter.state && *filter.state != entry.moments.state) return false;
  if (filter.session_key && *filter.session_key != entry.facts.fields.session_key) return false;
  return std::all_of(filter.labels.begin(), filter.labels.end(), [&](const auto& selector) {
    return selector.Fits(entry.facts.fields.labels);
  });
}

}  // namespace

void HandleCreateSandbox(Api& api, Request request, Responder responder) {
  const Result<CreateKeys> keys = ReadCreateKeys(request);
  if (!keys.has_value()) return responder.Send(keys.error());
  std::shared_ptr<CreateClaim> claim;
  if (!keys->empty() && AnswerByKeys(api, request, *keys, responder, &claim) == Keyed::kAnswered)
    return;
  const auto asked = std::make_shared<const Request>(std::move(request));
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto start = [&api, asked, shared, claim](const Result<CreatePlan>& plan) {
    if (!plan.has_value()) {
      if (claim != nullptr)
        claim->Finish(CodeHttpStatus(plan.error().code), ErrorJson(plan.error()));
      return shared->Send(plan.error());
    }
    SandboxFields fields = plan->fields;
    const auto made = std::make_shared<SandboxStart>(api, *asked, std::move(*shared), *plan);
    if (claim != nullptr) {
      fields.idempotency_key = claim->keys().idempotency;
      fields.digests = claim->keys().digests;
      made->Hold(claim);
    }
    made->Run(std::move(fields));
  };
  if (!asked->json.is_object() || !asked->json.contains("template"))
    return start(PlanCreate(asked->json, api.config));
  // A template may be in the operator's directory, which may be slow to read. With a copy of the
  // configuration, which a reload changes.
  const Status begun = api.worker.Submit([&api, asked, start, config = api.config] {
    auto plan = std::make_shared<Result<CreatePlan>>(PlanCreate(asked->json, config));
    api.loop.Post([start, plan] { start(*plan); });
  });
  if (!begun.has_value()) shared->Send(begun.error());
}

void HandleListSandboxes(Api& api, Request request, Responder responder) {
  const Result<Filter> filter = ParseFilter(request);
  if (!filter.has_value()) return responder.Send(filter.error());
  oci::Json list = oci::Json::array();
  std::vector<const SandboxEntry*> entries;
  if (!filter->pooled)
    entries = api.sandboxes.List();
  else if (api.pools != nullptr)
    entries = api.pools->Pooled();
  for (const SandboxEntry* entry : entries)
    if (Fits(*filter, *entry)) list.push_back(api.sandboxes.ToJson(*entry));
  responder.Send(JsonReply(200, {{"sandboxes", std::move(list)}}));
}

void HandleDeleteSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  if ((*entry)->moments.state == SandboxState::kStopped) {
    (*entry)->ended_by = request.peer;
    const auto waits = std::make_shared<Responder>(std::move(responder));
    return api.sandboxes.stops->Discard(**entry, [waits](const Status& removed) {
      if (!removed.has_value()) return waits->Send(removed.error());
      waits->Send(Reply{.status = 204, .body = {}});
    });
  }
  if ((*entry)->sandbox == nullptr)
    return responder.Send(Error{.code = Code::kNotFound,
                                .what = "sandbox " + (*entry)->facts.id + " is removed already"});
  const auto shared = std::make_shared<Responder>(std::move(responder));
  if (!(*entry)->ending) (*entry)->ended_by = request.peer;
  api.sandboxes.Destroy(**entry, MoveCause::kDeleted, [shared](const Status& removed) {
    if (removed.has_value())
      shared->Send(Reply{.status = 204, .body = {}});
    else
      shared->Send(removed.error());
  });
}

}  // namespace hutch::daemon
