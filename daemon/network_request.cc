#include "daemon/network_request.h"

#include <algorithm>

#include "network/inside.h"
#include "network/presets.h"

namespace hutch::daemon {
namespace {

constexpr char kPresetMark[] = "preset:";

bool NamesAPreset(const oci::Json& json) {
  if (!json.is_object() || !json.contains("allow") || !json["allow"].is_array()) return false;
  const oci::Json& allow = json["allow"];
  return std::any_of(allow.begin(), allow.end(), [](const oci::Json& rule) {
    return rule.is_string() && rule.get_ref<const std::string&>().starts_with(kPresetMark);
  });
}

bool Has(const std::vector<std::string>& env, const std::string& name) {
  return std::any_of(env.begin(), env.end(),
                     [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

}  // namespace

Result<network::Policy> ParseNetworkRequest(const oci::Json& json, const Config& config) {
  network::Presets presets;
  if (NamesAPreset(json) && !config.network.presets_file.empty()) {
    ASSIGN_OR_RETURN(presets, network::LoadPresets(config.network.presets_file));
  }
  return network::ParsePolicy(json, presets);
}

void SetProxyEnv(const network::Policy& policy, std::vector<std::string>& env) {
  if (policy.mode != network::Mode::kAllowlist) return;
  const std::string proxy = "http://127.0.0.1:" + std::to_string(network::kProxyPort);
  const std::string direct = "localhost,127.0.0.1,::1";
  // ALL_PROXY is left alone: what it is used for beyond these is caught anyway, and some clients
  // refuse to start for a scheme of it that they do not know.
  const std::pair<const char*, std::string> rows[] = {
      {"HTTP_PROXY", proxy},       {"http_proxy", proxy},       {"HTTPS_PROXY", proxy},
      {"https_proxy", proxy},      {"NO_PROXY", direct},        {"no_proxy", direct},
      {"NODE_USE_ENV_PROXY", "1"}, {"NODE_USE_SYSTEM_CA", "1"},
  };
  for (const auto& [name, value] : rows)
    if (!Has(env, name)) env.push_back(std::string(name) + "=" + value);
}

bool IsClosed(const network::Policy& policy) {
  return policy.mode == network::Mode::kNone && policy.join.empty();
}

}  // namespace hutch::daemon
