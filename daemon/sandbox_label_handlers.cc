// PATCH /v1/sandboxes/{id} with labels: what stands for a sandbox to those who look for it.
#include "daemon/audit_records.h"
#include "daemon/handlers.h"

namespace hutch::daemon {
namespace {

// A value sets, null removes, what is not named stays.
Result<StringMap> MergeLabels(StringMap labels, const oci::Json& changes) {
  if (!changes.is_object())
    return Error{.code = Code::kInvalidArgument,
                 .what = "must be an object of strings and nulls",
                 .field = "labels"};
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      labels.erase(key);
      continue;
    }
    if (!value.is_string())
      return Error{.code = Code::kInvalidArgument,
                   .what = "must be a string or null",
                   .field = "labels." + key.substr(0, 64)};
    labels[key] = value.get<std::string>();
  }
  RETURN_IF_ERROR(CheckLabels(labels));
  return labels;
}

}  // namespace

void ChangeLabels(Api& api, SandboxEntry& entry, const oci::Json& changes, const Peer& caller,
                  Responder responder) {
  Result<StringMap> labels = MergeLabels(entry.facts.fields.labels, changes);
  const Status changed = labels.has_value() ? api.sandboxes.SetLabels(entry, *std::move(labels))
                                            : Status(labels.error());
  if (!changed.has_value()) {
    AuditDenial(api, caller, &entry, "PATCH labels", changed.error());
    return responder.Send(changed.error());
  }
  api.sandboxes.Touch(entry, Activity::kCall);
  responder.Send(JsonReply(200, api.sandboxes.ToJson(entry)));
}

}  // namespace hutch::daemon
