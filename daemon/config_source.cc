#include "daemon/config_source.h"

#include <algorithm>

#include "base/file.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

// Read anew wherever they are needed, or handed on by the reload itself. A last dot stands for all
// of a section. What is not here waits for a restart.
constexpr const char* kAtOnce[] = {
    "log_format",
    "log_level",
    "audit_content",
    "templates_dir",
    "template_relax",
    "template_command_seconds",
    "retention_seconds",
    "expiry_warning_seconds",
    "defaults.",
    "ceilings.",
    "limits.sandboxes",
    "limits.commands_per_sandbox",
    "limits.connections",
    "limits.http_timeout_seconds",
    "limits.shutdown_seconds",
    "limits.memory_reserve_bytes",
    "limits.volumes_total_bytes",
    "limits.memory_overcommit",
    "limits.process_timeout_seconds",
    "limits.cpus_overcommit",
    "limits.pids_overcommit",
    "limits.disk_overcommit",
    "limits.memory_pressure_percent",
    "registries.allowed",
    "network.presets_file",
    "network.secrets_dir",
    "ports.addresses",
    "tcp.tokens_file",
    "tcp.connections",
    "owner_limits.",
    "sandbox_pools",
};

// Takes what `field` names out of an object; names may hold dots, as hosts do.
bool Erase(oci::Json* object, std::string_view field) {
  if (!object->is_object()) return false;
  for (auto it = object->begin(); it != object->end(); ++it) {
    const std::string& key = it.key();
    if (!field.starts_with(key)) continue;
    const std::string_view rest = field.substr(key.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    if (rest.empty() || !Erase(&it.value(), rest.substr(1))) object->erase(it);
    return true;
  }
  return false;
}

// Leaves out what was found wrong. False: it is nothing that was said, so no other errors can be
// told from it.
bool LeaveOut(const std::string& field, oci::Json* document,
              std::vector<ConfigSource::Option>* options) {
  if (field.empty()) return false;
  const auto said = std::find_if(options->begin(), options->end(),
                                 [&](const auto& option) { return option.key == field; });
  if (said != options->end()) {
    options->erase(said);
    return true;
  }
  if (Erase(document, field)) return true;
  constexpr std::string_view kDefaults = "defaults.";  // may be above a ceiling that was said
  return field.starts_with(kDefaults) &&
         Erase(document, "ceilings." + field.substr(kDefaults.size()));
}

Result<Config> Judge(const oci::Json& document, const std::vector<ConfigSource::Option>& options) {
  Config config;
  RETURN_IF_ERROR(ApplyConfigText(oci::PrintJson(document), &config));
  for (const ConfigSource::Option& option : options) config.*option.member = option.value;
  RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

// The file's JSON; an empty object where there need be none.
Result<oci::Json> ReadDocument(const ConfigSource& source, bool* from_file) {
  const Result<std::string> text = ReadFile(source.path, kMaxFileBytes);
  if (!text.has_value() && source.file == ConfigSource::File::kOptional &&
      text.error().code == Code::kNotFound)
    return oci::Json::object();
  if (!text.has_value()) return text.error();
  *from_file = true;
  Result<oci::Json> parsed = oci::ParseJson(*text, {.max_bytes = kMaxFileBytes, .max_depth = 8});
  if (!parsed.has_value()) {
    Error error = std::move(parsed).error();
    error.what = source.path + ": " + error.what;
    return error;
  }
  if (!parsed->is_object())
    return Error{.code = Code::kInvalidArgument, .what = source.path + ": must be an object"};
  return parsed;
}

// Whether the file names a key: "limits.sandboxes".
bool Names(const oci::Json& document, const std::string& key) {
  const size_t dot = key.find('.');
  if (!document.is_object()) return false;
  const auto it = document.find(key.substr(0, dot));
  if (it == document.end() || it->is_null()) return false;
  return dot == std::string::npos || Names(*it, key.substr(dot + 1));
}

}  // namespace

ConfigReading ReadConfig(const ConfigSource& source) {
  ConfigReading reading;
  Result<oci::Json> read = ReadDocument(source, &reading.from_file);
  if (!read.has_value()) {
    reading.errors.push_back(std::move(read).error());
    return reading;
  }
  reading.document = *read;
  oci::Json left = std::move(*read);
  std::vector<ConfigSource::Option> options = source.options;
  while (reading.errors.size() < kMaxConfigErrors) {
    Result<Config> judged = Judge(left, options);
    if (judged.has_value()) {
      reading.config = std::move(*judged);
      break;
    }
    const std::string field = judged.error().field;
    reading.errors.push_back(std::move(judged).error());
    if (!LeaveOut(field, &left, &options)) break;
  }
  return reading;
}

bool AppliesAtOnce(std::string_view key) {
  return std::any_of(std::begin(kAtOnce), std::end(kAtOnce), [&](std::string_view row) {
    return row.ends_with('.') ? key.starts_with(row) : key == row;
  });
}

std::string DescribeConfig(const ConfigSource& source, const ConfigReading& reading) {
  std::string text = "{\n";
  const std::vector<ConfigFact> facts = ConfigFacts(reading.config);
  for (const ConfigFact& fact : facts) {
    const bool option = std::any_of(source.options.begin(), source.options.end(),
                                    [&](const auto& one) { return one.key == fact.key; });
    const char* from = option ? "option" : Names(reading.document, fact.key) ? "file" : "default";
    text += "  " + oci::PrintJson(fact.key) + ": {\"value\": " + oci::PrintJson(fact.value) +
            ", \"from\": \"" + from +
            "\", \"reload\": " + (AppliesAtOnce(fact.key) ? "true" : "false") + "}";
    text += &fact == &facts.back() ? "\n" : ",\n";
  }
  return text + "}\n";
}

std::string WithField(const Error& error) {
  return error.field.empty() ? error.ToString() : error.field + ": " + error.ToString();
}

}  // namespace hutch::daemon
