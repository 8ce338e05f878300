// Pools of sandboxes made ahead.
#include "daemon/handlers.h"
#include "daemon/sandbox_pools.h"

namespace hutch::daemon {
namespace {

Error NoPools() {
  return Error{.code = Code::kUnsupported, .what = "this daemon makes no sandboxes ahead"};
}

}  // namespace

void HandleListPools(Api& api, Request, Responder responder) {
  responder.Send(JsonReply(
      200, {{"pools", api.pools == nullptr ? oci::Json::array() : api.pools->ListJson()}}));
}

void HandleGetPool(Api& api, Request request, Responder responder) {
  if (api.pools == nullptr) return responder.Send(NoPools());
  const Result<oci::Json> json = api.pools->ToJson(request.parameters[0]);
  if (!json.has_value()) return responder.Send(json.error());
  responder.Send(JsonReply(200, *json));
}

void HandlePutPool(Api& api, Request request, Responder responder) {
  if (api.pools == nullptr) return responder.Send(NoPools());
  const std::string name = request.parameters[0];
  Result<PoolSpec> spec = ParsePoolSpec(request.json, "", name);
  if (!spec.has_value()) return responder.Send(spec.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.pools->Put(*std::move(spec), [&api, name, shared](const Status& kept) {
    if (!kept.has_value()) return shared->Send(kept.error());
    const Result<oci::Json> json = api.pools->ToJson(name);
    if (!json.has_value()) return shared->Send(json.error());
    shared->Send(JsonReply(200, *json));
  });
}

void HandleDeletePool(Api& api, Request request, Responder responder) {
  if (api.pools == nullptr) return responder.Send(NoPools());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.pools->Remove(request.parameters[0], [shared](const Status& removed) {
    if (!removed.has_value()) return shared->Send(removed.error());
    shared->Send(Reply{.status = 204, .body = {}});
  });
}

}  // namespace hutch::daemon
