// What a sandbox may reach: changed and looked at.
#include <memory>

#include "daemon/audit_records.h"
#include "daemon/handlers.h"
#include "daemon/network_request.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

void AuditChange(Api& api, const Peer& caller, const SandboxEntry& entry,
                 const network::Policy& policy, const Status& status) {
  AuditEntry record{.kind = AuditKind::kNetworkChanged,
                    .sandbox = entry.facts.id,
                    .name = entry.facts.fields.name,
                    .caller = caller,
                    .detail = network::PolicyJson(policy)};
  if (!status.has_value()) record.outcome = CodeName(status.error().code);
  api.audit.Record(std::move(record));
}

}  // namespace

void HandleChangeSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  oci::ObjectReader reader(request.json, "");
  const oci::Json* network = reader.Member("network");
  if (network == nullptr) reader.Fail("network", "is required: it is what can be changed");
  const Status read = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const Result<network::Policy> policy = ParseNetworkRequest(*network, api.config);
  if (!policy.has_value()) {
    AuditDenial(api, request.peer, *entry, "PATCH network", policy.error());
    return responder.Send(policy.error());
  }
  api.sandboxes.Touch(**entry);
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.sandboxes.SetNetwork(**entry, *policy,
                           [&api, shared, policy = *policy, peer = request.peer,
                            id = (*entry)->facts.id](const Status& status) {
                             const Result<SandboxEntry*> changed = api.sandboxes.FindRunning(id);
                             if (!changed.has_value()) return shared->Send(changed.error());
                             AuditChange(api, peer, **changed, policy, status);
                             if (!status.has_value()) return shared->Send(status.error());
                             api.watching.NetworkChanged(**changed, network::PolicyJson(policy));
                             shared->Send(JsonReply(200, api.sandboxes.ToJson(**changed)));
                           });
}

void HandleSandboxNetwork(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.networks.Describe(
      (*entry)->facts.id, (*entry)->facts.fields.network,
      [shared](oci::Json json) { shared->Send(JsonReply(200, std::move(json))); });
}

}  // namespace hutch::daemon
