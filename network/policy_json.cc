#include <algorithm>
#include <iterator>

#include "network/limits.h"
#include "network/policy.h"
#include "network/rule_text.h"

namespace hutch::network {
namespace {

using oci::Json;
using oci::ObjectReader;

constexpr char kField[] = "network";
constexpr std::string_view kPresetPrefix = "preset:";
constexpr Mode kModes[] = {Mode::kNone, Mode::kAllowlist, Mode::kOpen};

Error At(const std::string& field, const std::string& what, Code code = Code::kInvalidArgument,
         std::string hint = "") {
  return Error{.code = code, .what = field + " " + what, .field = field, .hint = std::move(hint)};
}

Result<Mode> ParseMode(const std::string& name) {
  for (const Mode mode : kModes)
    if (name == ModeName(mode)) return mode;
  return At("network.mode", "must be \"none\", \"allowlist\" or \"open\"");
}

Status TakePreset(const std::string& name, const std::string& field, const Presets& presets,
                  Policy* policy) {
  const auto it = presets.find(name);
  if (it == presets.end())
    return At(
        field,
        "names the preset \"" + name.substr(0, kMaxNetworkNameBytes) + "\", which is not there",
        Code::kNotFound, "see hutch net preset");
  auto& taken = policy->presets;
  if (std::find(taken.begin(), taken.end(), name) != taken.end()) return OkStatus();
  taken.push_back(name);
  for (Rule rule : it->second) {
    rule.origin = std::string(kPresetPrefix) + name;
    policy->allow.push_back(std::move(rule));
  }
  return OkStatus();
}

Status TakeItem(const Json& item, const std::string& field, const Presets& presets,
                Policy* policy) {
  if (item.is_string()) {
    const auto& text = item.get_ref<const std::string&>();
    if (text.starts_with(kPresetPrefix))
      return TakePreset(text.substr(kPresetPrefix.size()), field, presets, policy);
  }
  ASSIGN_OR_RETURN(Rule rule, ParseRule(item, field));
  if (policy->mode == Mode::kOpen && !rule.cidr)
    return At(field, "names a host, and mode \"open\" lets every name through",
              Code::kInvalidArgument, "only closed ranges are listed with it");
  policy->allow.push_back(std::move(rule));
  return OkStatus();
}

Status ReadAllow(const Json* list, const Presets& presets, Policy* policy) {
  if (list == nullptr) return OkStatus();
  const std::string field = "network.allow";
  if (!list->is_array()) return At(field, "must be an array");
  if (policy->mode == Mode::kNone && !list->empty())
    return At(field, "has rules, and mode \"none\" allows nothing", Code::kInvalidArgument,
              "mode \"allowlist\" is what they are for");
  size_t index = 0;
  for (const Json& item : *list) {
    RETURN_IF_ERROR(TakeItem(item, field + "[" + std::to_string(index++) + "]", presets, policy));
    if (policy->allow.size() > kMaxAllowRules)
      return At(field, "has more than " + std::to_string(kMaxAllowRules) + " rules");
  }
  if (policy->mode == Mode::kOpen)  // of a preset, only ranges say anything
    std::erase_if(policy->allow, [](const Rule& rule) { return !rule.cidr; });
  return OkStatus();
}

std::vector<std::string> PresetsOf(const std::vector<Rule>& rules) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) {
    if (!rule.origin.starts_with(kPresetPrefix)) continue;
    std::string name = rule.origin.substr(kPresetPrefix.size());
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

Status ReadLimits(const Json* json, TrafficLimits* limits) {
  if (json == nullptr) return OkStatus();
  uint64_t connections = 0;
  ObjectReader reader(*json, "network.limits");
  reader.Uint("bytes_per_second", &limits->bytes_per_second);
  reader.Uint("total_bytes", &limits->total_bytes);
  reader.Uint("connections", &connections, 0, UINT32_MAX);
  limits->connections = static_cast<uint32_t>(connections);
  return reader.Done(ObjectReader::Unknown::kRefuse);
}

Status CheckNames(const std::vector<std::string>& names, const std::string& list) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string field = list + "[" + std::to_string(i) + "]";
    if (!IsNetworkName(names[i]))
      return At(field, "must be 1 to 63 letters, digits, \".\", \"_\" or \"-\"");
    if (std::count(names.begin(), names.end(), names[i]) > 1) return At(field, "is there twice");
  }
  return OkStatus();
}

}  // namespace

Result<Policy> ParsePolicy(const Json& json, const Presets& presets) {
  Policy policy;
  std::string mode = ModeName(Mode::kNone);
  ObjectReader reader(json, kField);
  reader.String("mode", &mode, 32);
  const Json* const allow = reader.Member("allow");
  const Json* const limits = reader.Member("limits");
  reader.Strings("join", &policy.join, kMaxJoins);
  reader.Member("presets");  // as PolicyJson writes it; told by the rules' origins
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  ASSIGN_OR_RETURN(policy.mode, ParseMode(mode));
  RETURN_IF_ERROR(CheckNames(policy.join, "network.join"));
  RETURN_IF_ERROR(ReadAllow(allow, presets, &policy));
  RETURN_IF_ERROR(ReadLimits(limits, &policy.limits));
  policy.presets = PresetsOf(policy.allow);
  return policy;
}

Json PolicyJson(const Policy& policy) {
  Json allow = Json::array();
  for (const Rule& rule : policy.allow) allow.push_back(RuleJson(rule));
  return {{"mode", ModeName(policy.mode)},
          {"allow", allow},
          {"presets", policy.presets},
          {"limits",
           {{"bytes_per_second", policy.limits.bytes_per_second},
            {"total_bytes", policy.limits.total_bytes},
            {"connections", policy.limits.connections}}},
          {"join", policy.join}};
}

}  // namespace hutch::network
