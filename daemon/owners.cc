#include "daemon/owners.h"

#include <algorithm>

#include "daemon/limits.h"
#include "daemon/message.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kMostSandboxes = 65534;
constexpr size_t kMaxSeparatorBytes = 16;

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

}  // namespace

const char* OwnerCounts::KindName(Kind kind) {
  constexpr const char* kNames[] = {"user", "label", "session_prefix"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<OwnerCounts::Owner> OwnerCounts::OwnersOf(uint32_t uid,
                                                      const SandboxFields& fields) const {
  const std::string user = std::to_string(uid);
  std::vector<Owner> owners = {{.kind = Kind::kUser, .value = user}};
  for (const OwnerLimits::Label& limited : limits_.labels)
    if (const auto it = fields.labels.find(limited.label); it != fields.labels.end())
      owners.push_back({.kind = Kind::kLabel, .key = it->first, .value = it->second});
  if (!fields.session_key.empty())
    owners.push_back({.kind = Kind::kSession,
                      .key = user,
                      .value = fields.session_key.substr(
                          0, fields.session_key.find(limits_.session_separator))});
  return owners;
}

void OwnerCounts::Add(uint32_t uid, const SandboxFields& fields) {
  for (Owner& owner : OwnersOf(uid, fields)) ++counts_[std::move(owner)];
}

void OwnerCounts::Remove(uint32_t uid, const SandboxFields& fields) {
  for (const Owner& owner : OwnersOf(uid, fields)) {
    const auto it = counts_.find(owner);
    if (it != counts_.end() && --it->second == 0) counts_.erase(it);
  }
}

uint64_t OwnerCounts::MostOf(const Owner& owner) const {
  if (owner.kind == Kind::kUser) return limits_.sandboxes_per_user;
  if (owner.kind == Kind::kSession) return limits_.sandboxes_per_session_prefix;
  for (const OwnerLimits::Label& label : limits_.labels)
    if (label.label == owner.key) return label.max;
  return 0;
}

Status OwnerCounts::CheckOwner(const Owner& owner) const {
  const uint64_t most = MostOf(owner);
  const auto it = counts_.find(owner);
  if (most == 0 || it == counts_.end() || it->second < most) return OkStatus();
  std::string who = "user " + owner.value, field, setting = "owner_limits.sandboxes_per_user";
  if (owner.kind == Kind::kLabel) {
    who = "label " + owner.key + "=" + owner.value;
    field = "labels." + owner.key;
    setting = "owner_limits.labels";
  } else if (owner.kind == Kind::kSession) {
    who = "session keys of " + owner.value + " of user " + owner.key;
    field = "session_key";
    setting = "owner_limits.sandboxes_per_session_prefix";
  }
  return Error{.code = Code::kLimit,
               .step = kAdmissionStep,
               .what = who + " has " + std::to_string(it->second) + " sandboxes, and may have " +
                       std::to_string(most) + " (" + setting + ")",
               .field = field};
}

Status OwnerCounts::Check(uint32_t uid, const SandboxFields& fields) const {
  for (const Owner& owner : OwnersOf(uid, fields)) RETURN_IF_ERROR(CheckOwner(owner));
  return OkStatus();
}

Status OwnerCounts::CheckLabels(const StringMap& before, const StringMap& after) const {
  for (const auto& [key, value] : after) {
    const auto it = before.find(key);
    if (it != before.end() && it->second == value) continue;
    RETURN_IF_ERROR(CheckOwner({.kind = Kind::kLabel, .key = key, .value = value}));
  }
  return OkStatus();
}

oci::Json OwnerCounts::ToJson() const {
  std::vector<const std::pair<const Owner, uint64_t>*> rows;
  for (const auto& row : counts_) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto* a, const auto* b) { return a->second > b->second; });
  if (rows.size() > kMaxOwnersShown) rows.resize(kMaxOwnersShown);
  oci::Json list = oci::Json::array();
  for (const auto* row : rows) {
    const auto& [owner, count] = *row;
    const uint64_t most = MostOf(owner);
    list.push_back({{"kind", KindName(owner.kind)},
                    {"key", owner.key.empty() ? oci::Json() : oci::Json(owner.key)},
                    {"owner", owner.value},
                    {"sandboxes", count},
                    {"max", most == 0 ? oci::Json() : oci::Json(most)}});
  }
  return list;
}

Status ApplyOwnerLimits(const oci::Json& json, OwnerLimits* limits) {
  constexpr auto kRefuse = oci::ObjectReader::Unknown::kRefuse;
  oci::ObjectReader reader(json, "owner_limits");
  reader.Uint("sandboxes_per_user", &limits->sandboxes_per_user, 0, kMostSandboxes)
      .Uint("sandboxes_per_session_prefix", &limits->sandboxes_per_session_prefix, 0,
            kMostSandboxes)
      .String("session_separator", &limits->session_separator, kMaxSeparatorBytes);
  const oci::Json* labels = reader.Member("labels");
  RETURN_IF_ERROR(reader.Done(kRefuse));
  if (labels == nullptr) return OkStatus();
  if (!labels->is_array())
    return Invalid(R"(must be a list as [{"label": "team", "max": 10}])", "owner_limits.labels");
  limits->labels.clear();
  for (const oci::Json& item : *labels) {
    OwnerLimits::Label label;
    oci::ObjectReader row(item, "owner_limits.labels");
    row.String("label", &label.label, kMaxLabelBytes).Uint("max", &label.max, 1, kMostSandboxes);
    RETURN_IF_ERROR(row.Done(kRefuse));
    limits->labels.push_back(std::move(label));
  }
  return OkStatus();
}

Status CheckOwnerLimits(const OwnerLimits& limits) {
  if (limits.session_separator.empty())
    return Invalid("must not be empty", "owner_limits.session_separator");
  for (const OwnerLimits::Label& label : limits.labels)
    if (label.label.empty() || label.max == 0)
      return Invalid("each needs label and max", "owner_limits.labels");
  return OkStatus();
}

oci::Json OwnerLimitsJson(const OwnerLimits& limits) {
  oci::Json labels = oci::Json::array();
  for (const OwnerLimits::Label& label : limits.labels)
    labels.push_back({{"label", label.label}, {"max", label.max}});
  return {{"sandboxes_per_user", limits.sandboxes_per_user},
          {"sandboxes_per_session_prefix", limits.sandboxes_per_session_prefix},
          {"session_separator", limits.session_separator},
          {"labels", std::move(labels)}};
}

std::vector<std::string> OwnerLimitKeys() {
  return {"owner_limits.sandboxes_per_user", "owner_limits.sandboxes_per_session_prefix",
          "owner_limits.session_separator", "owner_limits.labels"};
}

}  // namespace hutch::daemon
