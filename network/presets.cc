#include "network/presets.h"

#include "base/operator_file.h"
#include "network/limits.h"
#include "network/rule_text.h"

namespace hutch::network {
namespace {

using oci::Json;

Error Refused(const std::string& what) {
  return Error{.code = Code::kInvalidArgument, .what = what};
}

}  // namespace

Result<Presets> ParsePresets(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json,
                   oci::ParseJson(text, {.max_bytes = kMaxPresetsBytes, .max_depth = 8}));
  if (!json.is_object()) return Refused("must be an object of lists of rules");
  if (json.size() > kMaxPresets)
    return Refused("has more than " + std::to_string(kMaxPresets) + " presets");
  Presets presets;
  for (const auto& [name, list] : json.items()) {
    if (!IsNetworkName(name)) return Refused("\"" + name + "\" is no name of a preset");
    if (!list.is_array() || list.size() > kMaxAllowRules)
      return Refused(name + " must be an array of at most " + std::to_string(kMaxAllowRules) +
                     " rules");
    std::vector<Rule>& rules = presets[name];
    for (size_t i = 0; i < list.size(); ++i) {
      ASSIGN_OR_RETURN(Rule rule, ParseRule(list[i], name + "[" + std::to_string(i) + "]"));
      rules.push_back(std::move(rule));
    }
  }
  return presets;
}

Result<Presets> LoadPresets(const std::string& path) {
  if (path.empty()) return Presets{};
  const auto text = ReadOperatorFile(path, kMaxPresetsBytes, Readers::kAnyone);
  if (!text.has_value()) {
    if (text.error().code == Code::kNotFound) return Presets{};
    return text.error();
  }
  auto presets = ParsePresets(*text);
  if (presets.has_value()) return presets;
  Error error = std::move(presets).error();
  error.what = path + ": " + error.what;
  error.field.clear();  // of the file, not of anybody's request
  return error;
}

}  // namespace hutch::network
