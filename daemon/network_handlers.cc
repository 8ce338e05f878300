// Networks that sandboxes join, presets and secrets. What belongs to one sandbox is with the
// sandboxes.
#include "daemon/handlers.h"
#include "daemon/secrets.h"
#include "daemon/workspaces.h"
#include "network/presets.h"
#include "network/rule_text.h"

namespace hutch::daemon {
namespace {

using oci::Json;

// The operator's files may be slow to read.
void AnswerFromWorker(Api& api, Responder responder, std::function<Reply()> read) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.worker.Submit([&loop = api.loop, shared, read = std::move(read)] {
    loop.Post([shared, reply = read()]() mutable { shared->Send(std::move(reply)); });
  });
  if (!begun.has_value()) shared->Send(begun.error());
}

Json SecretJson(const FoundSecret& found) {
  Json json = {{"name", found.name},
               {"valid", found.secret.has_value()},
               {"hosts", Json::array()},
               {"header", Json()},
               {"error", Json()}};
  if (!found.secret.has_value()) {
    json["error"] = ErrorJson(found.secret.error())["error"];
    return json;
  }
  json["hosts"] = found.secret->hosts;
  json["header"] = found.secret->header;
  return json;
}

}  // namespace

void HandleCreateNetwork(Api& api, Request request, Responder responder) {
  std::string name;
  oci::ObjectReader reader(request.json, "");
  reader.String("name", &name, kMaxBodyBytes);
  if (reader.Member("name") == nullptr) reader.Fail("name", "is required");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.workspaces.Create(name, [&api, name, shared](const Status& created) {
    if (!created.has_value()) return shared->Send(created.error());
    const Result<Json> json = api.workspaces.ToJson(name);
    if (!json.has_value()) return shared->Send(json.error());
    shared->Send(JsonReply(201, *json));
  });
}

void HandleListNetworks(Api& api, Request, Responder responder) {
  responder.Send(JsonReply(200, {{"networks", api.workspaces.ListJson()}}));
}

void HandleGetNetwork(Api& api, Request request, Responder responder) {
  const Result<Json> json = api.workspaces.ToJson(request.parameters[0]);
  if (!json.has_value()) return responder.Send(json.error());
  responder.Send(JsonReply(200, *json));
}

void HandleDeleteNetwork(Api& api, Request request, Responder responder) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.workspaces.Remove(request.parameters[0], [shared](const Status& removed) {
    if (!removed.has_value()) return shared->Send(removed.error());
    shared->Send(Reply{.status = 204, .body = {}});
  });
}

void HandleListPresets(Api& api, Request, Responder responder) {
  AnswerFromWorker(api, std::move(responder), [path = api.config.network.presets_file]() -> Reply {
    const Result<network::Presets> presets = network::LoadPresets(path);
    if (!presets.has_value()) return ErrorReply(presets.error());
    Json list = Json::array();
    for (const auto& [name, rules] : *presets) {
      Json allow = Json::array();
      for (const network::Rule& rule : rules) allow.push_back(network::RuleJson(rule));
      list.push_back({{"name", name}, {"allow", std::move(allow)}});
    }
    return JsonReply(200, {{"presets", std::move(list)}});
  });
}

void HandleListSecrets(Api& api, Request, Responder responder) {
  AnswerFromWorker(api, std::move(responder), [dir = api.config.network.secrets_dir]() -> Reply {
    const Result<std::vector<FoundSecret>> found = ListSecrets(dir);
    if (!found.has_value()) return ErrorReply(found.error());
    Json list = Json::array();
    for (const FoundSecret& one : *found) list.push_back(SecretJson(one));
    return JsonReply(200, {{"secrets", std::move(list)}});
  });
}

}  // namespace hutch::daemon
