// What can be changed of a sandbox: what it may reach, and its time-outs.
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

// Whatever counts as activity: it is a renewal.
void ChangeTimeouts(Api& api, SandboxEntry& entry, const oci::Json& json, Responder& responder) {
  Timeouts timeouts = entry.facts.fields.timeouts;
  Status status = ParseTimeouts(json, &timeouts);
  if (status.has_value()) status = KeepCeilings(api.config.ceilings, &timeouts);
  if (status.has_value()) status = api.sandboxes.SetTimeouts(entry, timeouts);
  if (!status.has_value()) return responder.Send(status.error());
  responder.Send(JsonReply(200, api.sandboxes.ToJson(entry)));
}

void ChangeNetwork(Api& api, const Peer& peer, SandboxEntry& entry, const oci::Json& network,
                   Responder responder) {
  const Result<network::Policy> policy = ParseNetworkRequest(network, api.config);
  if (!policy.has_value()) {
    AuditDenial(api, peer, &entry, "PATCH network", policy.error());
    return responder.Send(policy.error());
  }
  api.sandboxes.Touch(entry, Activity::kCall);
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.sandboxes.SetNetwork(
      entry, *policy,
      [&api, shared, policy = *policy, peer, id = entry.facts.id](const Status& status) {
        const Result<SandboxEntry*> changed = api.sandboxes.FindLiving(id);
        if (!changed.has_value()) return shared->Send(changed.error());
        AuditChange(api, peer, **changed, policy, status);
        if (!status.has_value()) return shared->Send(status.error());
        api.watching.NetworkChanged(**changed, network::PolicyJson(policy));
        shared->Send(JsonReply(200, api.sandboxes.ToJson(**changed)));
      });
}

}  // namespace

void HandleChangeSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  if ((*entry)->pausing != nullptr) return responder.Send(NotUsable(**entry));
  oci::ObjectReader reader(request.json, "");
  const oci::Json* network = reader.Member("network");
  const oci::Json* timeouts = reader.Member("timeouts");
  const oci::Json* labels = reader.Member("labels");
  if ((network != nullptr) + (timeouts != nullptr) + (labels != nullptr) != 1)
    reader.Fail("network", "one of network, timeouts and labels is required, one by one call");
  const Status read = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  if (timeouts != nullptr) return ChangeTimeouts(api, **entry, *timeouts, responder);
  if (labels != nullptr)
    return ChangeLabels(api, **entry, *labels, request.peer, std::move(responder));
  ChangeNetwork(api, request.peer, **entry, *network, std::move(responder));
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
