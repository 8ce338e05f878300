#include "network/rule_text.h"

#include <algorithm>

#include "base/text.h"
#include "network/host_names.h"
#include "network/limits.h"

namespace hutch::network {
namespace {

using oci::Json;

constexpr size_t kShownBytes = 80;  // of what was written, in a message
constexpr size_t kMaxMethodBytes = 32;
constexpr PortRange kWebPorts[] = {{80, 80}, {443, 443}};

Error Refused(std::string what, std::string hint = "") {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .hint = std::move(hint)};
}

Error At(const std::string& field, std::string what, std::string hint = "") {
  Error error = Refused(field + " " + std::move(what), std::move(hint));
  error.field = field;
  return error;
}

// `error` says what is wrong with `text`; the result says where as well.
Error At(const std::string& field, std::string_view text, const Error& error) {
  const std::string shown(text.substr(0, kShownBytes));
  return At(field, "\"" + shown + "\" " + error.what, error.hint);
}

Result<PortRange> ParsePorts(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = ParseUint(text.substr(0, dash), 65535);
  const auto last =
      dash == std::string_view::npos ? first : ParseUint(text.substr(dash + 1), 65535);
  if (!first.has_value() || !last.has_value() || *first == 0 || *first > *last)
    return Refused("has no port or range of ports (1 to 65535) behind its colon");
  return PortRange{static_cast<uint16_t>(*first), static_cast<uint16_t>(*last)};
}

// Nothing is there to be reached, or what the kernel takes for its own loopback.
const char* WhyNoDestination(const Cidr& range) {
  const char* const why = WhyClosed(range.base);
  if (why == nullptr) return nullptr;
  for (const std::string_view kind : {"unspecified", "multicast", "reserved"})
    if (why == kind) return why;
  return nullptr;
}

bool Within(const Cidr& inner, const Cidr& outer) {
  return outer.bits <= inner.bits && outer.Contains(inner.base);
}

Status CheckOneKind(const Cidr& range) {
  for (const Cidr& closed : ClosedRanges()) {
    if (Within(range, closed)) return OkStatus();
    if (Within(closed, range))
      return Refused(
          "holds " + closed.ToString() + " (" + WhyClosed(closed.base) + ") among others",
          "name closed ranges by themselves");
  }
  return OkStatus();
}

Status CheckHostBits(const Cidr& range) {
  Cidr masked = range;
  for (unsigned bit = range.bits; bit < 128; ++bit)
    masked.base.bytes[bit / 8] &= static_cast<uint8_t>(~(0x80u >> bit % 8));
  if (masked.base == range.base) return OkStatus();
  return Refused("has bits set behind its prefix", "write " + masked.ToString());
}

std::string_view WithoutBrackets(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) return text.substr(1, text.size() - 2);
  return text;
}

// Whether it is meant as an address, well-formed or not.
bool LooksLikeAddress(std::string_view text) {
  return text.starts_with('[') || ParseAddress(text).has_value() ||
         std::count(text.begin(), text.end(), ':') > 1;
}

// "192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80": not taken, since ranges and names are all there
// is.
Status CheckNoAddress(std::string_view text) {
  const bool v4 = ParseAddress(text.substr(0, text.find(':'))).has_value();
  if (!v4 && !LooksLikeAddress(text)) return OkStatus();
  if (text.find('%') != std::string_view::npos) return Refused("is an address with a zone");
  return Refused("is an address", v4 ? "write it as a range: 192.0.2.1/32:443"
                                     : "write it as a range: [2001:db8::1]/128:443");
}

Result<Rule> ParseText(std::string_view text) {
  Rule rule;
  rule.origin = text.substr(0, kMaxRuleOriginBytes);
  std::string_view ports;
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos && LooksLikeAddress(text.substr(0, slash))) {
    const size_t colon = text.find(':', slash);
    ASSIGN_OR_RETURN(rule.cidr, ParseRuleCidr(text.substr(0, colon)));
    if (colon != std::string_view::npos) ports = text.substr(colon);
  } else {
    const bool url = text.find("://") != std::string_view::npos;
    if (!url && slash == std::string_view::npos) RETURN_IF_ERROR(CheckNoAddress(text));
    const size_t colon = url ? std::string_view::npos : text.find(':');
    ASSIGN_OR_RETURN(rule.host, ParseRuleHost(text.substr(0, colon)));
    if (colon != std::string_view::npos) ports = text.substr(colon);
  }
  if (ports.empty()) {
    rule.ports.assign(std::begin(kWebPorts), std::end(kWebPorts));
    return rule;
  }
  ASSIGN_OR_RETURN(const PortRange range, ParsePorts(ports.substr(1)));
  rule.ports.push_back(range);
  return rule;
}

Status ReadPorts(const Json* list, const std::string& field, std::vector<PortRange>* ports) {
  if (list == nullptr) {
    ports->assign(std::begin(kWebPorts), std::end(kWebPorts));
    return OkStatus();
  }
  if (!list->is_array() || list->empty() || list->size() > kMaxRulePorts)
    return At(field, "must be an array of 1 to " + std::to_string(kMaxRulePorts) + " ports");
  for (const Json& item : *list) {
    const std::string text = item.is_number_unsigned() ? std::to_string(item.get<uint64_t>())
                             : item.is_string()        ? item.get<std::string>()
                                                       : "";
    const auto range = ParsePorts(text);
    if (!range.has_value()) return At(field, "must have ports (1 to 65535) or ranges (\"80-90\")");
    ports->push_back(*range);
  }
  return OkStatus();
}

Status CheckMethods(const std::vector<std::string>& methods, const std::string& field) {
  for (const std::string& method : methods) {
    const bool plain = std::all_of(method.begin(), method.end(),
                                   [](char c) { return (c >= 'A' && c <= 'Z') || c == '-'; });
    if (method.empty() || method.size() > kMaxMethodBytes || !plain || method == "CONNECT")
      return At(field, "must have methods of HTTP such as \"GET\"");
  }
  return OkStatus();
}

Status CheckPaths(const std::vector<std::string>& paths, const std::string& field) {
  for (const std::string& path : paths) {
    const std::string_view fixed =
        std::string_view(path).substr(0, path.size() - (path.ends_with("/*") ? 1 : 0));
    if (path.size() > kMaxRulePathBytes)
      return At(field, "has a path of more than " + std::to_string(kMaxRulePathBytes) + " bytes");
    if (!IsPlainPath(fixed) || fixed.find_first_of("*?") != std::string_view::npos)
      return At(field, "must have paths such as \"/a/b\" or \"/a/*\"",
                "no \"?\", \"#\", \"..\", \"//\", backslashes or escapes of them");
  }
  return OkStatus();
}

Status ReadTarget(const std::string& host, const std::string& cidr, const std::string& field,
                  Rule* rule) {
  if (host.empty() == cidr.empty()) return At(field, "must have either \"host\" or \"cidr\"");
  if (!cidr.empty()) {
    const auto range = ParseRuleCidr(cidr);
    if (!range.has_value()) return At(field + ".cidr", cidr, range.error());
    rule->cidr = *range;
    return OkStatus();
  }
  const auto name = ParseRuleHost(host);
  if (!name.has_value()) return At(field + ".host", host, name.error());
  rule->host = *name;
  return OkStatus();
}

Status CheckRule(const Rule& rule, const std::string& tls, const std::string& field) {
  if (!tls.empty() && tls != "originate") return At(field + ".tls", "must be \"originate\"");
  if (!rule.secret.empty() && !IsNetworkName(rule.secret))
    return At(field + ".secret", "must be the name of a secret");
  if (rule.cidr &&
      (!rule.methods.empty() || !rule.paths.empty() || !rule.secret.empty() || !tls.empty()))
    return At(field, "has methods, paths, a secret or tls, which need a \"host\"");
  RETURN_IF_ERROR(CheckMethods(rule.methods, field + ".methods"));
  return CheckPaths(rule.paths, field + ".paths");
}

std::string PortsText(const PortRange& range) {
  const std::string first = std::to_string(range.first);
  return range.first == range.last ? first : first + "-" + std::to_string(range.last);
}

Result<Rule> ParseObject(const Json& item, const std::string& field) {
  Rule rule;
  std::string host, cidr, tls;
  oci::ObjectReader reader(item, field);
  reader.String("host", &host, kMaxRuleOriginBytes).String("cidr", &cidr, kMaxRuleOriginBytes);
  reader.Strings("methods", &rule.methods, kMaxRuleMethods);
  reader.Strings("paths", &rule.paths, kMaxRulePaths);
  reader.String("secret", &rule.secret, kMaxNetworkNameBytes).String("tls", &tls);
  reader.String("origin", &rule.origin, kMaxRuleOriginBytes);
  const Json* const ports = reader.Member("ports");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(ReadTarget(host, cidr, field, &rule));
  RETURN_IF_ERROR(ReadPorts(ports, field + ".ports", &rule.ports));
  RETURN_IF_ERROR(CheckRule(rule, tls, field));
  rule.originate_tls = !tls.empty();
  if (rule.origin.empty()) {
    rule.origin = rule.cidr ? rule.cidr->ToString() : rule.host;
    if (rule.ports.size() == 1) rule.origin += ":" + PortsText(rule.ports[0]);
  }
  return rule;
}

}  // namespace

Result<Cidr> ParseRuleCidr(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return Refused("has no prefix length", "write /32 or /128");
  const std::string_view base = WithoutBrackets(text.substr(0, slash));
  if (base.find('%') != std::string_view::npos) return Refused("has a zone");
  const auto address = ParseAddress(base);
  if (!address.has_value()) return Refused("does not begin with an address");
  if (address->is_v4() && base.find(':') != std::string_view::npos)
    return Refused("is an IPv4 range in IPv6 form", "write it as an IPv4 range");
  const std::string_view digits = text.substr(slash + 1);
  const auto bits = ParseUint(digits, address->is_v4() ? 32 : 128);
  if (!bits.has_value() || (digits.size() > 1 && digits[0] == '0'))
    return Refused("has no prefix length behind its slash");
  Cidr range{.base = *address, .bits = static_cast<uint8_t>(*bits + (address->is_v4() ? 96 : 0))};
  RETURN_IF_ERROR(CheckHostBits(range));
  RETURN_IF_ERROR(CheckOneKind(range));
  if (const char* why = WhyNoDestination(range))
    return Refused(std::string("is ") + why + ": nothing there can be connected to");
  return range;
}

bool IsNetworkName(std::string_view name) {
  const auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= kMaxNetworkNameBytes && alnum(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alnum(c) || c == '.' || c == '_' || c == '-'; });
}

Result<Rule> ParseRule(const Json& item, const std::string& field) {
  if (item.is_object()) return ParseObject(item, field);
  if (!item.is_string()) return At(field, "must be a string or an object");
  const auto& text = item.get_ref<const std::string&>();
  auto rule = ParseText(text);
  if (!rule.has_value()) return At(field, text, rule.error());
  return rule;
}

Json RuleJson(const Rule& rule) {
  Json ports = Json::array();
  for (const PortRange& range : rule.ports) {
    if (range.first == range.last)
      ports.push_back(range.first);
    else
      ports.push_back(PortsText(range));
  }
  Json json = {{"ports", ports}, {"origin", rule.origin}};
  if (rule.cidr)
    json["cidr"] = rule.cidr->ToString();
  else
    json["host"] = rule.host;
  if (!rule.methods.empty()) json["methods"] = rule.methods;
  if (!rule.paths.empty()) json["paths"] = rule.paths;
  if (!rule.secret.empty()) json["secret"] = rule.secret;
  if (rule.originate_tls) json["tls"] = "originate";
  return json;
}

}  // namespace hutch::network
