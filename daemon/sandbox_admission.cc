// Who asks for a sandbox, whether there is room for it, and what is counted of it while it lives.
#include "base/fault_point.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_stops.h"
#include "daemon/sandboxes.h"

namespace hutch::daemon {
namespace {

OwnedKey SessionOf(const SandboxFacts& facts) {
  return {facts.caller_uid, facts.fields.session_key};
}

}  // namespace

Status Sandboxes::Admit(const SandboxFields& fields, uint32_t uid) {
  if (!fields.name.empty() && ids_by_name_.contains(fields.name))
    return Error{.code = Code::kExists,
                 .what = "the name \"" + fields.name + "\" is taken",
                 .field = "name"};
  if (!fields.session_key.empty() && FindSession({uid, fields.session_key}) != nullptr)
    return Error{.code = Code::kExists,
                 .what = "the session key \"" + fields.session_key + "\" has a sandbox",
                 .field = "session_key"};
  if (!IsClosed(fields.network) && parts_.networks == nullptr)
    return Error{.code = Code::kUnsupported,
                 .what = "this daemon makes no networks",
                 .field = "network.mode"};
  return AdmitCounts(fields, uid);
}

Status Sandboxes::AdmitCounts(const SandboxFields& fields, uint32_t uid) {
  if (living_.size() >= parts_.config.max_sandboxes) {
    ++admission_.refused()["sandboxes"];
    return Error{.code = Code::kLimit,
                 .step = kAdmissionStep,
                 .what = std::to_string(living_.size()) + " sandboxes live already, and " +
                         std::to_string(parts_.config.max_sandboxes) + " may (limits.sandboxes)"};
  }
  Status owners = fields.pooled ? OkStatus() : owners_.Check(uid, fields);
  if (!owners.has_value()) {
    ++admission_.refused()["owner"];
    return owners;
  }
  return admission_.Check(fields);
}

void Sandboxes::CountIn(const SandboxEntry& entry) {
  const SandboxFacts& facts = entry.facts;
  admission_.Add(facts.fields);
  if (!facts.fields.pooled) owners_.Add(facts.caller_uid, facts.fields);
  if (!facts.fields.name.empty()) ids_by_name_[facts.fields.name] = facts.id;
  if (!facts.fields.session_key.empty()) ids_by_session_[SessionOf(facts)] = facts.id;
}

void Sandboxes::CountOut(const SandboxEntry& entry) {
  const SandboxFacts& facts = entry.facts;
  admission_.Remove(facts.fields);
  if (!facts.fields.pooled) owners_.Remove(facts.caller_uid, facts.fields);
  if (!facts.fields.name.empty()) ids_by_name_.erase(facts.fields.name);
}

void Sandboxes::FreeSession(const SandboxEntry& entry) {
  const auto it = ids_by_session_.find(SessionOf(entry.facts));
  if (it != ids_by_session_.end() && it->second == entry.facts.id) ids_by_session_.erase(it);
}

SandboxEntry* Sandboxes::FindSession(const OwnedKey& key) {
  const auto it = ids_by_session_.find(key);
  return it == ids_by_session_.end() ? nullptr : stops->FindAny(it->second);
}

void Sandboxes::RecountOwners() {
  owners_.Clear();
  for (const auto& [id, entry] : living_)
    if (!entry->facts.fields.pooled) owners_.Add(entry->facts.caller_uid, entry->facts.fields);
}

// As the daemon that made it answered, save for what changed since.
void Sandboxes::RememberAnswer(const SandboxEntry& entry) {
  const SandboxFields& fields = entry.facts.fields;
  claims_.Remember({.owner = entry.facts.caller_uid,
                    .session = {},
                    .idempotency = fields.idempotency_key,
                    .digests = fields.digests},
                   201, ToJson(entry), entry.facts.created_at);
  FaultPoint("key remembered");
}

Status Sandboxes::SetLabels(SandboxEntry& entry, StringMap labels) {
  RETURN_IF_ERROR(owners_.CheckLabels(entry.facts.fields.labels, labels));
  SandboxFacts changed = entry.facts;
  changed.fields.labels = std::move(labels);
  const std::string record = SaveFacts(changed);
  RETURN_IF_ERROR(CheckRecord(record));
  RETURN_IF_ERROR(parts_.runtime.SaveState(*entry.sandbox, record));
  owners_.Remove(entry.facts.caller_uid, entry.facts.fields);
  entry.facts.fields.labels = std::move(changed.fields.labels);
  owners_.Add(entry.facts.caller_uid, entry.facts.fields);
  return OkStatus();
}

oci::Json Sandboxes::AdmissionJson() const {
  oci::Json json = admission_.ToJson();
  json["owners"] = owners_.ToJson();
  return json;
}

}  // namespace hutch::daemon
