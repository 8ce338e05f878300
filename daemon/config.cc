#include "daemon/config.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <variant>

#include "base/file.h"
#include "base/text.h"
#include "daemon/owners.h"
#include "daemon/tcp_listener.h"
#include "network/rule_text.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxConfigBytes = 1u << 20;
constexpr char kSandboxPools[] = "sandbox_pools";

template <class T>
struct Range {
  T min, max;
};
using UintRange = Range<uint64_t>;
using NumberRange = Range<double>;

struct TextRow {
  const char* key;
  std::string Config::*member;
  std::vector<std::string> allowed;  // empty: anything
};
struct UintRow {
  const char* key;
  uint64_t Config::*member;
  UintRange range;
};
struct NumberRow {
  const char* key;
  double Config::*member;
  NumberRange range;
};

const std::vector<TextRow>& TextRows() {
  static const std::vector<TextRow> rows = {
      {"socket", &Config::socket, {}},
      {"socket_group", &Config::socket_group, {}},
      {"state_dir", &Config::state_dir, {}},
      {"run_dir", &Config::run_dir, {}},
      {"log_format", &Config::log_format, {"text", "json"}},
      {"log_level", &Config::log_level, {"debug", "info", "warning", "error"}},
      {"pools", &Config::pools, {"on", "off"}},
      {"cgroup_parent", &Config::cgroup_parent, {}},
      {"init_path", &Config::init_path, {}},
      {"catalog_dir", &Config::catalog_dir, {}},
      {"audit", &Config::audit, {"on", "off"}},
      {"audit_content", &Config::audit_content, {"on", "off"}},
      {"templates_dir", &Config::templates_dir, {}},
      {"template_relax", &Config::template_relax, {"on", "off"}},
  };
  return rows;
}

constexpr UintRow kTopRows[] = {
    {"audit_retention_days", &Config::audit_retention_days, {0, 36500}},
    {"audit_max_bytes", &Config::audit_max_bytes, {0, uint64_t{1} << 50}},
    {"template_command_seconds", &Config::template_command_seconds, {1, 86400}},
    {"blanks", &Config::blanks, {0, 1024}},
    {"host_id_start", &Config::host_id_start, {65536, UINT32_MAX}},
    {"host_id_ranges", &Config::host_id_ranges, {1, 65534}},
    {"retention_seconds", &Config::retention_seconds, {0, 86400}},
    {"expiry_warning_seconds", &Config::expiry_warning_seconds, {0, 86400}},
};
constexpr UintRow kLimitRows[] = {
    {"sandboxes", &Config::max_sandboxes, {1, 65534}},
    {"commands_per_sandbox", &Config::max_commands_per_sandbox, {1, 1000}},
    {"connections", &Config::max_connections, {1, 65536}},
    {"http_timeout_seconds", &Config::http_timeout_seconds, {1, 86400}},
    {"shutdown_seconds", &Config::shutdown_seconds, {0, 3600}},
    {"memory_reserve_bytes", &Config::memory_reserve_bytes, {0, uint64_t{1} << 60}},
    {"volumes_total_bytes", &Config::volumes_total_bytes, {0, uint64_t{1} << 60}},
};
constexpr NumberRow kLimitNumberRows[] = {
    {"memory_overcommit", &Config::memory_overcommit, {0.01, 1e6}},
    {"process_timeout_seconds", &Config::process_timeout_ceiling_seconds, {0, 1e9}},
    {"cpus_overcommit", &Config::cpus_overcommit, {0.01, 1e6}},
    {"pids_overcommit", &Config::pids_overcommit, {0.01, 1e6}},
    {"disk_overcommit", &Config::disk_overcommit, {0.01, 1e6}},
    {"memory_pressure_percent", &Config::memory_pressure_percent, {0, 100}},
};

struct AmountRow {
  const char* key;
  std::variant<uint64_t Amounts::*, double Amounts::*> member;
};
constexpr UintRange kUintAmounts{0, uint64_t{1} << 62};
constexpr NumberRange kNumberAmounts{0, 1e9};
constexpr AmountRow kAmountRows[] = {
    {"memory_bytes", &Amounts::memory_bytes},
    {"cpus", &Amounts::cpus},
    {"pids", &Amounts::pids},
    {"disk_bytes", &Amounts::disk_bytes},
    {"open_files", &Amounts::open_files},
    {"idle_seconds", &Amounts::idle_seconds},
    {"lifetime_seconds", &Amounts::lifetime_seconds},
    {"exec_timeout_seconds", &Amounts::exec_timeout_seconds},
    {"max_output_bytes", &Amounts::max_output_bytes},
};

struct Section {
  const char* key;
  Amounts Config::*member;
};
constexpr Section kSections[] = {{"defaults", &Config::defaults}, {"ceilings", &Config::ceilings}};

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

Status ApplyAmounts(const oci::Json& json, const std::string& path, Amounts* amounts) {
  oci::ObjectReader reader(json, path);
  for (const AmountRow& row : kAmountRows) {
    if (const auto* number = std::get_if<double Amounts::*>(&row.member))
      reader.Number(row.key, &(amounts->**number), kNumberAmounts.min, kNumberAmounts.max);
    else
      reader.Uint(row.key, &(amounts->*std::get<uint64_t Amounts::*>(row.member)), kUintAmounts.min,
                  kUintAmounts.max);
  }
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

Status ApplyLimits(const oci::Json& json, Config* config) {
  oci::ObjectReader reader(json, "limits");
  for (const UintRow& row : kLimitRows)
    reader.Uint(row.key, &(config->*row.member), row.range.min, row.range.max);
  for (const NumberRow& row : kLimitNumberRows)
    reader.Number(row.key, &(config->*row.member), row.range.min, row.range.max);
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

using rootfs::RegistryOptions;
struct RegistryTextRow {
  const char* key;
  std::string RegistryOptions::*member;
};
constexpr RegistryTextRow kRegistryTextRows[] = {
    {"default", &RegistryOptions::default_registry},
    {"certs_dir", &RegistryOptions::certs_dir},
    {"auth_file", &RegistryOptions::auth_file},
};
struct RegistryUintRow {
  const char* key;
  uint64_t RegistryOptions::*member;
  UintRange range;
};
constexpr RegistryUintRow kRegistryUintRows[] = {
    {"layers_at_once", &RegistryOptions::layers_at_once, {1, 16}},
    {"retries", &RegistryOptions::retries, {0, 100}},
    {"stall_seconds", &RegistryOptions::stall_seconds, {1, 3600}},
};
constexpr const char* kRegistryListKeys[] = {"allowed", "plain_http", "mirrors"};

Status ApplyMirrors(const oci::Json& json, RegistryOptions* options) {
  if (!json.is_object()) return Invalid("must be an object of lists", "registries.mirrors");
  options->mirrors.clear();
  oci::ObjectReader reader(json, "registries.mirrors");
  for (const auto& [host, hosts] : json.items())
    reader.Strings(host.c_str(), &options->mirrors[host]);
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

Status ApplyRegistries(const oci::Json& json, Config* config) {
  RegistryOptions& options = config->registries;
  oci::ObjectReader reader(json, "registries");
  for (const RegistryTextRow& row : kRegistryTextRows)
    reader.String(row.key, &(options.*row.member), 4096);
  for (const RegistryUintRow& row : kRegistryUintRows)
    reader.Uint(row.key, &(options.*row.member), row.range.min, row.range.max);
  reader.Strings("allowed", &config->allowed_registries).Strings("plain_http", &options.plain_http);
  const oci::Json* mirrors = reader.Member("mirrors");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  return mirrors == nullptr ? OkStatus() : ApplyMirrors(*mirrors, &options);
}

struct NetworkTextRow {
  const char* key;
  std::string NetworkConfig::*member;
};
constexpr NetworkTextRow kNetworkTextRows[] = {
    {"presets_file", &NetworkConfig::presets_file},
    {"secrets_dir", &NetworkConfig::secrets_dir},
    {"pool_v4", &NetworkConfig::pool_v4},
    {"pool_v6", &NetworkConfig::pool_v6},
    {"workspaces_v4", &NetworkConfig::workspaces_v4},
    {"workspaces_v6", &NetworkConfig::workspaces_v6},
};
constexpr char kLinksAhead[] = "links_ahead";
constexpr uint64_t kMaxLinksAhead = 64;
constexpr const char* kNetworkListKeys[] = {"reachable"};

// What the ranges are cut into must fit; a /30 is the smallest pool of addresses.
struct NetworkRangeRow {
  const char* key;
  std::string NetworkConfig::*member;
  bool v4;
  uint8_t max_bits;  // of the IPv6 form
};
constexpr NetworkRangeRow kNetworkRanges[] = {
    {"network.pool_v4", &NetworkConfig::pool_v4, true, 96 + 30},
    {"network.pool_v6", &NetworkConfig::pool_v6, false, 112},
    {"network.workspaces_v4", &NetworkConfig::workspaces_v4, true, 96 + 24},
    {"network.workspaces_v6", &NetworkConfig::workspaces_v6, false, 64},
};

Status ApplyNetwork(const oci::Json& json, NetworkConfig* network) {
  oci::ObjectReader reader(json, "network");
  for (const NetworkTextRow& row : kNetworkTextRows)
    reader.String(row.key, &(network->*row.member), 4096);
  reader.Uint(kLinksAhead, &network->links_ahead, 0, kMaxLinksAhead);
  reader.Strings("reachable", &network->reachable);
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

Status CheckNetwork(const NetworkConfig& network) {
  for (const std::string* path : {&network.presets_file, &network.secrets_dir})
    if (!path->empty() && (*path)[0] != '/')
      return Invalid("must be an absolute path, or empty", path == &network.presets_file
                                                               ? "network.presets_file"
                                                               : "network.secrets_dir");
  for (const NetworkRangeRow& row : kNetworkRanges) {
    const auto range = network::ParseRuleCidr(network.*row.member);
    if (!range.has_value()) return Invalid(range.error().what, row.key);
    if (range->base.is_v4() != row.v4)
      return Invalid(row.v4 ? "must be an IPv4 range" : "must be an IPv6 range", row.key);
    if (network::WhyClosed(range->base) == nullptr)
      return Invalid("must be a private range: others' addresses are in it", row.key);
    if (range->bits > row.max_bits) return Invalid("is too small a range", row.key);
  }
  for (const std::string& text : network.reachable) {
    const auto range = network::ParseRuleCidr(text);
    if (!range.has_value()) return Invalid(range.error().what, "network.reachable");
  }
  return OkStatus();
}

Status ApplyPorts(const oci::Json& json, Config* config) {
  oci::ObjectReader reader(json, "ports");
  reader.Strings("addresses", &config->port_addresses);
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

struct TcpTextRow {
  const char* key;
  std::string TcpConfig::*member;
};
constexpr TcpTextRow kTcpTextRows[] = {
    {"listen", &TcpConfig::listen},
    {"tokens_file", &TcpConfig::tokens_file},
};
struct TcpUintRow {
  const char* key;
  uint64_t TcpConfig::*member;
  UintRange range;
};
constexpr TcpUintRow kTcpUintRows[] = {{"connections", &TcpConfig::connections, {1, 65536}}};

Status ApplyTcp(const oci::Json& json, TcpConfig* tcp) {
  oci::ObjectReader reader(json, "tcp");
  for (const TcpTextRow& row : kTcpTextRows) reader.String(row.key, &(tcp->*row.member), 4096);
  for (const TcpUintRow& row : kTcpUintRows)
    reader.Uint(row.key, &(tcp->*row.member), row.range.min, row.range.max);
  return reader.Done(oci::ObjectReader::Unknown::kRefuse);
}

Status CheckTcp(const TcpConfig& tcp) {
  if (!tcp.tokens_file.starts_with('/'))
    return Invalid("must be an absolute path", "tcp.tokens_file");
  if (tcp.listen.empty()) return OkStatus();
  const Result<TcpEndpoint> endpoint = ParseTcpListen(tcp.listen);
  if (endpoint.has_value()) return OkStatus();
  Error error = endpoint.error();
  error.field = "tcp.listen";
  return error;
}

double AsDouble(const Amounts& amounts, const AmountRow& row) {
  if (const auto* number = std::get_if<double Amounts::*>(&row.member)) return amounts.**number;
  return static_cast<double>(amounts.*std::get<uint64_t Amounts::*>(row.member));
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}
std::string RangeText(const UintRange& range) {
  return std::to_string(range.min) + " to " + std::to_string(range.max);
}
std::string RangeText(const NumberRange& range) {
  return NumberText(range.min) + " to " + NumberText(range.max);
}
oci::Json AmountJson(const Amounts& amounts, const AmountRow& row) {
  if (const auto* number = std::get_if<double Amounts::*>(&row.member)) return amounts.**number;
  return amounts.*std::get<uint64_t Amounts::*>(row.member);
}
std::string AmountRange(const AmountRow& row) {
  return std::holds_alternative<double Amounts::*>(row.member) ? RangeText(kNumberAmounts)
                                                               : RangeText(kUintAmounts);
}

Status CheckTexts(const Config& config) {
  for (const TextRow& row : TextRows()) {
    const std::string& value = config.*row.member;
    if (row.allowed.empty() ||
        std::find(row.allowed.begin(), row.allowed.end(), value) != row.allowed.end())
      continue;
    std::string what = "must be one of";
    for (const std::string& allowed : row.allowed) what += " " + allowed;
    return Invalid(what, row.key);
  }
  for (const char* key : {"socket", "state_dir", "run_dir", "cgroup_parent", "init_path",
                          "catalog_dir", "templates_dir"}) {
    const auto row = std::find_if(TextRows().begin(), TextRows().end(),
                                  [&](const TextRow& r) { return key == std::string(r.key); });
    const std::string& value = config.*row->member;
    const bool may_be_empty = row->member == &Config::cgroup_parent ||
                              row->member == &Config::init_path ||
                              row->member == &Config::templates_dir;
    if (value.empty() ? !may_be_empty : value[0] != '/')
      return Invalid("must be an absolute path", key);
  }
  return OkStatus();
}

}  // namespace

Status ApplyConfigText(std::string_view json, Config* config) {
  ASSIGN_OR_RETURN(const oci::Json document,
                   oci::ParseJson(json, {.max_bytes = kMaxConfigBytes, .max_depth = 8}));
  oci::ObjectReader reader(document, "");
  for (const TextRow& row : TextRows()) reader.String(row.key, &(config->*row.member));
  for (const UintRow& row : kTopRows)
    reader.Uint(row.key, &(config->*row.member), row.range.min, row.range.max);
  const oci::Json* sections[std::size(kSections)];
  for (size_t i = 0; i < std::size(kSections); ++i) sections[i] = reader.Member(kSections[i].key);
  const oci::Json* limits = reader.Member("limits");
  const oci::Json* registries = reader.Member("registries");
  const oci::Json* network = reader.Member("network");
  const oci::Json* ports = reader.Member("ports");
  const oci::Json* tcp = reader.Member("tcp");
  const oci::Json* owner_limits = reader.Member("owner_limits");
  const oci::Json* sandbox_pools = reader.Member(kSandboxPools);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  for (size_t i = 0; i < std::size(kSections); ++i)
    if (sections[i] != nullptr)
      RETURN_IF_ERROR(
          ApplyAmounts(*sections[i], kSections[i].key, &(config->*kSections[i].member)));
  if (limits != nullptr) RETURN_IF_ERROR(ApplyLimits(*limits, config));
  if (registries != nullptr) RETURN_IF_ERROR(ApplyRegistries(*registries, config));
  if (network != nullptr) RETURN_IF_ERROR(ApplyNetwork(*network, &config->network));
  if (ports != nullptr) RETURN_IF_ERROR(ApplyPorts(*ports, config));
  if (tcp != nullptr) RETURN_IF_ERROR(ApplyTcp(*tcp, &config->tcp));
  if (owner_limits != nullptr)
    RETURN_IF_ERROR(ApplyOwnerLimits(*owner_limits, &config->owner_limits));
  if (sandbox_pools != nullptr) {
    ASSIGN_OR_RETURN(config->sandbox_pools, ParsePoolSpecs(*sandbox_pools, kSandboxPools));
  }
  return OkStatus();
}

Status ApplyConfigFile(const std::string& path, Config* config) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  Status status = ApplyConfigText(text, config);
  if (status.has_value()) return status;
  Error error = std::move(status).error();
  error.what = path + ": " + error.what;
  return error;
}

Status CheckConfig(const Config& config) {
  RETURN_IF_ERROR(CheckTexts(config));
  RETURN_IF_ERROR(CheckNetwork(config.network));
  RETURN_IF_ERROR(CheckTcp(config.tcp));
  RETURN_IF_ERROR(CheckOwnerLimits(config.owner_limits));
  for (const RegistryTextRow& row : kRegistryTextRows) {
    const std::string& value = config.registries.*row.member;
    const bool is_path = row.member != &RegistryOptions::default_registry;
    if (is_path && !value.empty() && value[0] != '/')
      return Invalid("must be an absolute path, or empty", std::string("registries.") + row.key);
  }
  if (config.host_id_start % 65536 != 0)
    return Invalid("must be a multiple of 65536", "host_id_start");
  if (config.host_id_start + config.host_id_ranges * 65536 > UINT32_MAX)
    return Invalid("ranges go beyond the last user id", "host_id_ranges");
  for (const AmountRow& row : kAmountRows) {
    const double ceiling = AsDouble(config.ceilings, row);
    if (ceiling > 0 && AsDouble(config.defaults, row) > ceiling)
      return Invalid("is above its ceiling", std::string("defaults.") + row.key);
  }
  return OkStatus();
}

std::vector<std::string> ConfigKeys() {
  std::vector<std::string> keys;
  for (const TextRow& row : TextRows()) keys.emplace_back(row.key);
  for (const UintRow& row : kTopRows) keys.emplace_back(row.key);
  for (const Section& section : kSections)
    for (const AmountRow& row : kAmountRows)
      keys.push_back(std::string(section.key) + "." + row.key);
  for (const UintRow& row : kLimitRows) keys.push_back(std::string("limits.") + row.key);
  for (const NumberRow& row : kLimitNumberRows) keys.push_back(std::string("limits.") + row.key);
  for (const RegistryTextRow& row : kRegistryTextRows)
    keys.push_back(std::string("registries.") + row.key);
  for (const RegistryUintRow& row : kRegistryUintRows)
    keys.push_back(std::string("registries.") + row.key);
  for (const char* key : kRegistryListKeys) keys.push_back(std::string("registries.") + key);
  for (const NetworkTextRow& row : kNetworkTextRows)
    keys.push_back(std::string("network.") + row.key);
  keys.push_back(std::string("network.") + kLinksAhead);
  for (const char* key : kNetworkListKeys) keys.push_back(std::string("network.") + key);
  keys.emplace_back("ports.addresses");
  for (const TcpTextRow& row : kTcpTextRows) keys.push_back(std::string("tcp.") + row.key);
  for (const TcpUintRow& row : kTcpUintRows) keys.push_back(std::string("tcp.") + row.key);
  for (std::string& key : OwnerLimitKeys()) keys.push_back(std::move(key));
  keys.emplace_back(kSandboxPools);
  return keys;
}

std::vector<ConfigFact> ConfigFacts(const Config& config) {
  std::vector<ConfigFact> facts;
  const auto add = [&facts](const char* section, const char* key, oci::Json value,
                            std::string range = "") {
    facts.push_back({section + std::string(key), std::move(value), std::move(range)});
  };
  for (const TextRow& row : TextRows())
    add("", row.key, config.*row.member, Join(row.allowed, ", "));
  for (const UintRow& row : kTopRows) add("", row.key, config.*row.member, RangeText(row.range));
  for (const Section& section : kSections)
    for (const AmountRow& row : kAmountRows)
      add((std::string(section.key) + ".").c_str(), row.key,
          AmountJson(config.*section.member, row), AmountRange(row));
  for (const UintRow& row : kLimitRows)
    add("limits.", row.key, config.*row.member, RangeText(row.range));
  for (const NumberRow& row : kLimitNumberRows)
    add("limits.", row.key, config.*row.member, RangeText(row.range));
  for (const RegistryTextRow& row : kRegistryTextRows)
    add("registries.", row.key, config.registries.*row.member);
  for (const RegistryUintRow& row : kRegistryUintRows)
    add("registries.", row.key, config.registries.*row.member, RangeText(row.range));
  add("registries.", "allowed", config.allowed_registries);
  add("registries.", "plain_http", config.registries.plain_http);
  add("registries.", "mirrors", config.registries.mirrors);
  for (const NetworkTextRow& row : kNetworkTextRows)
    add("network.", row.key, config.network.*row.member);
  add("network.", kLinksAhead, config.network.links_ahead, RangeText(UintRange{0, kMaxLinksAhead}));
  add("network.", "reachable", config.network.reachable);
  add("ports.", "addresses", config.port_addresses);
  for (const TcpTextRow& row : kTcpTextRows) add("tcp.", row.key, config.tcp.*row.member);
  for (const TcpUintRow& row : kTcpUintRows)
    add("tcp.", row.key, config.tcp.*row.member, RangeText(row.range));
  const oci::Json owner_limits = OwnerLimitsJson(config.owner_limits);
  for (const std::string& key : OwnerLimitKeys())
    add("", key.c_str(), owner_limits.at(key.substr(key.find('.') + 1)));
  add("", kSandboxPools, PoolSpecsJson(config.sandbox_pools));
  return facts;
}

}  // namespace hutch::daemon
