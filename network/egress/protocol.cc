#include "network/egress/protocol.h"

#include <string.h>

#include "base/file.h"
#include "oci/json.h"

namespace hutch::network {
namespace {

using oci::Json;
using oci::ObjectReader;

constexpr const char* kKindNames[] = {"dns_udp", "dns_tcp", "proxy", "catch"};
constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxMembers = 4096;
constexpr oci::JsonLimits kSettingsLimits{kMaxSettingsBytes, 16};
constexpr oci::JsonLimits kEventLimits{kMaxControlBytes, 4};

Error Malformed(const char* what) {
  return {.code = Code::kInternal, .what = std::string("egress protocol: ") + what};
}

Json HostsJson(const EgressSettings& settings) {
  Json hosts = Json::object();
  for (const auto& [name, addresses] : settings.hosts) {
    hosts[name] = Json::array();
    for (const Address& address : addresses) hosts[name].push_back(address.ToString());
  }
  return hosts;
}

Status ReadHosts(const Json& json, EgressSettings* settings) {
  if (!json.is_object() || json.size() > kMaxMembers) return Malformed("hosts");
  for (const auto& [name, list] : json.items()) {
    if (!list.is_array()) return Malformed("hosts");
    for (const Json& text : list) {
      if (!text.is_string()) return Malformed("hosts");
      ASSIGN_OR_RETURN(const Address address, ParseAddress(text.get<std::string>()));
      settings->hosts[name].push_back(address);
    }
  }
  return OkStatus();
}

Status ReadSecrets(const Json& json, EgressSettings* settings) {
  if (!json.is_object()) return Malformed("secrets");
  for (const auto& [name, value] : json.items()) {
    Secret secret;
    RETURN_IF_ERROR(ObjectReader(value, "secrets")
                        .String("header", &secret.header)
                        .String("value", &secret.value)
                        .Strings("hosts", &secret.hosts)
                        .Done(ObjectReader::Unknown::kRefuse));
    settings->secrets.emplace(name, std::move(secret));
  }
  return OkStatus();
}

Status ReadListeners(const Json& json, std::vector<UniqueFd>* fds, SetCommand* set) {
  if (!json.is_array() || json.size() > fds->size()) return Malformed("listeners");
  size_t next = 0;
  for (const Json& row : json) {
    std::string name;
    uint64_t family = 4;
    RETURN_IF_ERROR(ObjectReader(row, "listeners")
                        .String("kind", &name)
                        .Uint("family", &family)
                        .Done(ObjectReader::Unknown::kRefuse));
    size_t kind = 0;
    while (kind < std::size(kKindNames) && name != kKindNames[kind]) ++kind;
    if (kind == std::size(kKindNames)) return Malformed("kind of listener");
    set->listeners.push_back({static_cast<ListenerKind>(kind),
                              family == 6 ? Family::kV6 : Family::kV4, std::move((*fds)[next++])});
  }
  return OkStatus();
}

Status ReadSet(ObjectReader& reader, std::vector<UniqueFd> fds, SetCommand* set) {
  bool has_counters = false;
  reader.String("sandbox", &set->sandbox, kMaxIdBytes)
      .Uint("number", &set->number)
      .Bool("counters", &has_counters);
  const Json* policy = reader.Member("policy");
  const Json* hosts = reader.Member("hosts");
  const Json* secrets = reader.Member("secrets");
  const Json* listeners = reader.Member("listeners");
  if (policy == nullptr || hosts == nullptr || secrets == nullptr || listeners == nullptr)
    return Malformed("a set without its members");
  if (has_counters) {
    if (fds.empty()) return Malformed("counters without a descriptor");
    set->counters = std::move(fds.back());
    fds.pop_back();
  }
  ASSIGN_OR_RETURN(set->settings.policy, ParsePolicy(*policy, {}));
  RETURN_IF_ERROR(ReadHosts(*hosts, &set->settings));
  RETURN_IF_ERROR(ReadSecrets(*secrets, &set->settings));
  return ReadListeners(*listeners, &fds, set);
}

const char* EventName(EgressEvent::Kind kind) {
  return kind == EgressEvent::Kind::kApplied ? "applied" : "denied";
}

// Strings of a wiped document must not stay behind in freed memory.
void WipeJson(Json& json) {
  if (json.is_string()) Wipe(&json.get_ref<std::string&>());
  if (json.is_structured())
    for (Json& item : json) WipeJson(item);
}

}  // namespace

void Wipe(std::string* secret) {
  ::explicit_bzero(secret->data(), secret->size());
  secret->clear();
}

void WipeSecrets(EgressSettings* settings) {
  for (auto& [name, secret] : settings->secrets) Wipe(&secret.value);
  settings->secrets.clear();
}

std::string PrintSet(const std::string& sandbox, uint64_t number, const EgressSettings& settings,
                     const std::vector<Listener>& listeners, int counters_fd) {
  Json json = {{"op", "set"},
               {"sandbox", sandbox},
               {"number", number},
               {"policy", PolicyJson(settings.policy)},
               {"hosts", HostsJson(settings)},
               {"secrets", Json::object()},
               {"listeners", Json::array()},
               {"counters", counters_fd >= 0}};
  for (const Rule& rule : settings.policy.allow) {
    const auto it = settings.secrets.find(rule.secret);
    if (rule.secret.empty() || it == settings.secrets.end()) continue;
    json["secrets"][it->first] = {
        {"header", it->second.header}, {"value", it->second.value}, {"hosts", it->second.hosts}};
  }
  for (const Listener& listener : listeners)
    json["listeners"].push_back({{"kind", kKindNames[static_cast<size_t>(listener.kind)]},
                                 {"family", listener.family == Family::kV6 ? 6 : 4}});
  std::string text = oci::PrintJson(json);
  WipeJson(json["secrets"]);
  return text;
}

std::string PrintForget(const std::string& sandbox) {
  return oci::PrintJson({{"op", "forget"}, {"sandbox", sandbox}});
}

std::string PrintNames(const std::string& resolv_conf, const std::string& hosts) {
  return oci::PrintJson({{"op", "names"}, {"resolv_conf", resolv_conf}, {"hosts", hosts}});
}

Status SendControl(int socket_fd, std::string_view text, std::vector<int> fds) {
  if (text.size() <= kMaxControlBytes) {
    const std::string_view parts[] = {text};
    return SendMessage(socket_fd, parts, fds);
  }
  if (text.size() > kMaxSettingsBytes)
    return Error{.code = Code::kTooLarge, .what = "the network settings are larger than 4 MiB"};
  ASSIGN_OR_RETURN(const UniqueFd file, SealedMemfd("hutch-settings", text));
  fds.push_back(file.get());
  constexpr std::string_view kInFile[] = {"{\"op\":\"file\"}"};
  return SendMessage(socket_fd, kInFile, fds);
}

Result<Command> ReadCommand(Message message) {
  ASSIGN_OR_RETURN(Json json, oci::ParseJson(message.bytes, kSettingsLimits));
  std::string op;
  if (json == Json{{"op", "file"}}) {
    if (message.fds.empty()) return Malformed("a file without a descriptor");
    if (::lseek(message.fds.back().get(), 0, SEEK_SET) != 0) return Malformed("seek");
    ASSIGN_OR_RETURN(message.bytes, ReadAll(message.fds.back().get(), kMaxSettingsBytes));
    message.fds.pop_back();
    ASSIGN_OR_RETURN(json, oci::ParseJson(message.bytes, kSettingsLimits));
  }
  Wipe(&message.bytes);
  Command command;
  ObjectReader reader(json, "");
  reader.String("op", &op);
  Status read = OkStatus();
  if (op == "set") {
    read = ReadSet(reader, std::move(message.fds), &command.set);
  } else if (op == "forget") {
    command.kind = Command::Kind::kForget;
    reader.String("sandbox", &command.forget.sandbox, kMaxIdBytes);
  } else if (op == "names") {
    command.kind = Command::Kind::kNames;
    reader.String("resolv_conf", &command.names.resolv_conf, kMaxResolverFileBytes)
        .String("hosts", &command.names.hosts, kMaxResolverFileBytes);
  } else {
    return Malformed("unknown command");
  }
  const Status done = reader.Done(ObjectReader::Unknown::kRefuse);
  WipeJson(json);
  RETURN_IF_ERROR(done);
  if (!read) command.error = read.error();
  return command;
}

std::string PrintEvent(const ProgramEvent& event) {
  if (event.kind == ProgramEvent::Kind::kReady) return R"({"event":"ready"})";
  if (event.kind == ProgramEvent::Kind::kStale) return R"({"event":"stale"})";
  const EgressEvent& e = event.event;
  Json json = {{"event", EventName(e.kind)}, {"sandbox", e.sandbox}, {"number", e.number}};
  if (e.error) json["error"] = {{"code", CodeName(e.error->code)}, {"what", e.error->what}};
  if (e.kind == EgressEvent::Kind::kDenied) {
    const Denial& d = e.denial;
    json["denial"] = {{"protocol", d.protocol}, {"host", d.host},     {"address", d.address},
                      {"port", d.port},         {"reason", d.reason}, {"times", d.times}};
  }
  return oci::PrintJson(json);
}

Result<ProgramEvent> ReadEvent(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, oci::ParseJson(text, kEventLimits));
  ProgramEvent event;
  std::string name;
  ObjectReader reader(json, "");
  reader.String("event", &name)
      .String("sandbox", &event.event.sandbox, kMaxIdBytes)
      .Uint("number", &event.event.number);
  if (name == "ready") event.kind = ProgramEvent::Kind::kReady;
  if (name == "stale") event.kind = ProgramEvent::Kind::kStale;
  event.event.kind = name == "denied" ? EgressEvent::Kind::kDenied : EgressEvent::Kind::kApplied;
  if (event.kind == ProgramEvent::Kind::kEvent && name != "denied" && name != "applied")
    return Malformed("unknown event");
  if (const Json* error = reader.Member("error")) {
    std::string code, what;
    RETURN_IF_ERROR(ObjectReader(*error, "error")
                        .String("code", &code, 64)
                        .String("what", &what, 4096)
                        .Done(ObjectReader::Unknown::kRefuse));
    event.event.error = Error{.code = CodeOfName(code).value_or(Code::kInternal), .what = what};
  }
  if (const Json* denial = reader.Member("denial")) {
    Denial& d = event.event.denial;
    uint64_t port = 0;
    RETURN_IF_ERROR(ObjectReader(*denial, "denial")
                        .String("protocol", &d.protocol, 16)
                        .String("host", &d.host, 253)
                        .String("address", &d.address, 64)
                        .Uint("port", &port, 0, 65535)
                        .String("reason", &d.reason, 512)
                        .Uint("times", &d.times)
                        .Done(ObjectReader::Unknown::kRefuse));
    d.port = static_cast<uint16_t>(port);
    d.sandbox = event.event.sandbox;
  }
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  return event;
}

}  // namespace hutch::network
