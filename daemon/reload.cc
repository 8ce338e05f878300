#include "daemon/reload.h"

#include <algorithm>
#include <ctime>

#include "daemon/listener.h"

namespace hutch::daemon {
namespace {

// Since systemd waits for the end of a reload it wants to know which one it is that begins.
std::string ReloadingState() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto microseconds =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1'000;
  return "RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds);
}

void Tell(const std::string& state) {
  const Status told = NotifySystemd(state);
  if (!told.has_value())
    Log(LogLevel::kWarning, "cannot notify systemd", {{"error", told.error().ToString()}});
}

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

struct Difference {
  std::vector<std::string> at_once, later;
};
Difference Compare(const Config& now, const Config& then) {
  Difference difference;
  const std::vector<ConfigFact> old_facts = ConfigFacts(now), new_facts = ConfigFacts(then);
  for (size_t i = 0; i < old_facts.size(); ++i) {
    const std::string& key = old_facts[i].key;
    if (old_facts[i].value == new_facts[i].value) continue;
    (AppliesAtOnce(key) ? difference.at_once : difference.later).push_back(key);
  }
  return difference;
}

// The document that says these keys' values.
oci::Json DocumentOf(const Config& config, const std::vector<std::string>& keys) {
  oci::Json document = oci::Json::object();
  for (const ConfigFact& fact : ConfigFacts(config)) {
    if (std::find(keys.begin(), keys.end(), fact.key) == keys.end()) continue;
    const size_t dot = fact.key.find('.');
    if (dot == std::string::npos)
      document[fact.key] = fact.value;
    else
      document[fact.key.substr(0, dot)][fact.key.substr(dot + 1)] = fact.value;
  }
  return document;
}

}  // namespace

LogLevel LogLevelOf(const Config& config) {
  if (config.log_level == "debug") return LogLevel::kDebug;
  if (config.log_level == "warning") return LogLevel::kWarning;
  return config.log_level == "error" ? LogLevel::kError : LogLevel::kInfo;
}

LogFormat LogFormatOf(const Config& config) {
  return config.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
}

Reloader::Reloader(Parts parts)
    : parts_(std::move(parts)), read_at_(std::chrono::system_clock::now()) {}

void Reloader::Reload() {
  Tell(ReloadingState());
  const ConfigReading reading = ReadConfig(parts_.source);
  if (!reading.errors.empty()) return Refuse(reading.errors);
  // Listening or not is decided at the start.
  Result<Tokens> tokens =
      parts_.config.tcp.listen.empty() ? Tokens() : Tokens::Load(reading.config.tcp.tokens_file);
  if (!tokens.has_value()) return Refuse({tokens.error()});
  Apply(reading, std::move(*tokens));
}

void Reloader::Refuse(const std::vector<Error>& errors) {
  oci::Json list = oci::Json::array();
  for (const Error& error : errors) {
    Log(LogLevel::kError, "the configuration is wrong and nothing of it was taken up",
        {{"error", WithField(error)}});
    list.push_back(WithField(error));
  }
  error_ = WithField(errors.front());
  parts_.audit.Record({.kind = AuditKind::kConfigReloaded,
                       .outcome = CodeName(errors.front().code),
                       .detail = {{"errors", std::move(list)}}});
  Tell("READY=1\nSTATUS=reload refused: " + OneLine(error_));
}

void Reloader::Apply(const ConfigReading& reading, Tokens tokens) {
  const Difference difference = Compare(parts_.config, reading.config);
  const oci::Json changes = DocumentOf(reading.config, difference.at_once);
  const Status applied = ApplyConfigText(oci::PrintJson(changes), &parts_.config);
  if (!applied.has_value()) return Refuse({applied.error()});  // our bug; nothing was half done
  const size_t count = tokens.size();
  parts_.access.SetTokens(std::move(tokens));
  ConfigureLog(LogFormatOf(parts_.config), LogLevelOf(parts_.config));
  if (parts_.applied) parts_.applied();
  parts_.file = reading.from_file ? parts_.source.path : "";
  read_at_ = std::chrono::system_clock::now();
  error_.clear();
  restart_needed_ = difference.later;
  Log(LogLevel::kInfo, "the configuration was read again",
      {{"changed", Join(difference.at_once, " ")},
       {"restart_needed", Join(difference.later, " ")},
       {"tokens", std::to_string(count)}});
  const oci::Json detail = {
      {"changed", difference.at_once}, {"restart_needed", difference.later}, {"tokens", count}};
  parts_.audit.Record({.kind = AuditKind::kConfigReloaded, .detail = detail});
  parts_.watching.DaemonReloaded(detail);
  Tell("READY=1\nSTATUS=" + (difference.later.empty()
                                 ? std::string("configuration read again")
                                 : "restart needed for " + Join(difference.later, ", ")));
}

oci::Json Reloader::ToJson() const {
  const auto text = [](const std::string& value) {
    return value.empty() ? oci::Json() : oci::Json(value);
  };
  return {{"file", text(parts_.file)},
          {"read_at", FormatRfc3339(read_at_)},
          {"reload_error", text(error_)},
          {"restart_needed", restart_needed_}};
}

}  // namespace hutch::daemon
