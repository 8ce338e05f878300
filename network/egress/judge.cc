#include "network/egress/judge.h"

#include <algorithm>

#include "network/egress/client_hello.h"
#include "network/host_names.h"

namespace hutch::network {
namespace {

constexpr uint16_t kHttpPort = 80, kHttpsPort = 443;

bool IsWhole(const Rule& rule) { return rule.methods.empty() && rule.paths.empty(); }
bool NeedsHttp(const Rule& rule) {
  return !IsWhole(rule) || !rule.secret.empty() || rule.originate_tls;
}

std::string WhyNotAllowed(const EgressSettings& settings, const std::string& host, uint16_t port) {
  if (settings.hosts.contains(host))
    return "it is a member of a joined network: reach it directly, without a proxy";
  if (AllowsName(settings.policy, host))
    return "port " + std::to_string(port) + " of it is not in the allowlist";
  return "it is not in the allowlist";
}

const Rule* FindRequestRule(const EgressSettings& settings, const Target& target,
                            const RequestHead& request) {
  if (!target.address)
    return FindByRequest(settings.policy, target.host, target.port, request.method, request.path);
  for (const Rule& rule : settings.policy.allow) {
    if (!rule.cidr || !rule.cidr->Contains(*target.address)) continue;
    const bool port = std::any_of(rule.ports.begin(), rule.ports.end(), [&](const PortRange& r) {
      return target.port >= r.first && target.port <= r.last;
    });
    if (port && AllowsRequest(rule, request.method, request.path)) return &rule;
  }
  return nullptr;
}

// Servers answer these with the request itself, and the secret in it (RFC 9110, 9.3.8).
bool IsEcho(std::string method) {
  for (char& c : method)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return method == "TRACE" || method == "TRACK";
}

Status AddSecret(const EgressSettings& settings, const Rule& rule, RequestVerdict* verdict) {
  const auto it = settings.secrets.find(rule.secret);
  if (it == settings.secrets.end())
    return Error{.code = Code::kForbidden,
                 .what = "the secret \"" + rule.secret + "\" of its rule is not there"};
  const Secret& secret = it->second;
  const bool meant = std::any_of(
      secret.hosts.begin(), secret.hosts.end(),
      [&](const std::string& host) { return HostMatches(host, verdict->upstream.host); });
  if (meant) verdict->secret = HttpField{secret.header, secret.value};
  return OkStatus();
}

}  // namespace

std::string Target::shown() const {
  std::string name = host;
  if (address) name = address->is_v4() ? address->ToString() : "[" + address->ToString() + "]";
  return name + ":" + std::to_string(port);
}

Result<Target> ReadTarget(std::string_view host, uint16_t port) {
  Target target;
  target.port = port;
  if (const auto address = ParseAddress(host)) {
    target.address = *address;
    return target;
  }
  ASSIGN_OR_RETURN(target.host, NormalHost(host));
  return target;
}

Verdict JudgeName(const EgressSettings& settings, const std::string& host, uint16_t port) {
  const Rule* rule = FindByHost(settings.policy, host, port);
  if (rule == nullptr) return {false, Carrier::kOpaque, WhyNotAllowed(settings, host, port)};
  if (!IsWhole(*rule) || port == kHttpPort) return {true, Carrier::kHttp, ""};
  if (port == kHttpsPort) return {true, Carrier::kTls, ""};
  return {true, NeedsHttp(*rule) ? Carrier::kHttp : Carrier::kOpaque, ""};
}

Verdict JudgeAddress(const EgressSettings& settings, const Address& address, uint16_t port) {
  const Rule* rule = FindByAddress(settings.policy, address, port);
  if (rule != nullptr) return {true, NeedsHttp(*rule) ? Carrier::kHttp : Carrier::kOpaque, ""};
  const char* closed = WhyClosed(address);
  std::string reason = "no address range of the allowlist has it";
  if (closed != nullptr) reason += std::string(" (") + closed + ")";
  return {false, Carrier::kOpaque, reason};
}

Verdict JudgeTarget(const EgressSettings& settings, const Target& target) {
  return target.address ? JudgeAddress(settings, *target.address, target.port)
                        : JudgeName(settings, target.host, target.port);
}

std::string JudgeHello(const EgressSettings& settings, std::string_view bytes,
                       const std::string& host, uint16_t port, std::string* name) {
  const ClientHello hello = ReadClientHello(bytes);
  if (hello.state == ClientHello::State::kNotTls) return "this is no TLS";
  if (hello.state == ClientHello::State::kMalformed)
    return std::string("no proper TLS ClientHello: ") + hello.why;
  if (hello.state == ClientHello::State::kNeedMore) return "the TLS ClientHello is not whole";
  if (hello.name.empty()) return "the TLS ClientHello has no server name";
  const auto normal = NormalHost(hello.name);
  if (!normal) return "the TLS server name is no host name";
  *name = *normal;
  if (!host.empty() && *normal != host)
    return "the TLS server name is another one than was connected to";
  const Verdict verdict = JudgeName(settings, *normal, port);
  if (!verdict.allowed) return verdict.reason;
  if (verdict.carrier == Carrier::kHttp)
    return "its rules are for plain HTTP, and this is TLS: what is asked for cannot be seen";
  if (hello.encrypted)
    return "encrypted ClientHello: the name inside cannot be seen (turn ECH off in the client)";
  return "";
}

RequestVerdict JudgeRequest(const EgressSettings& settings, const RequestHead& request,
                            const Target& target) {
  RequestVerdict verdict;
  verdict.asked = verdict.upstream = target;
  const Verdict by_name = JudgeTarget(settings, target);
  if (!by_name.allowed) {
    verdict.reason = by_name.reason;
    return verdict;
  }
  const Rule* rule = FindRequestRule(settings, target, request);
  if (rule == nullptr) {
    verdict.reason = "no rule allows " + request.method + " of this path";
    return verdict;
  }
  if (!rule->secret.empty() && IsEcho(request.method)) {
    verdict.reason = "its rule has a secret, which an answer to " + request.method + " would tell";
    return verdict;
  }
  verdict.narrow = !IsWhole(*rule);
  if (!rule->secret.empty()) {
    if (const Status added = AddSecret(settings, *rule, &verdict); !added) {
      verdict.reason = added.error().what;
      return verdict;
    }
  }
  if (rule->originate_tls) {
    verdict.tls = true;
    verdict.upstream.port = kHttpsPort;
  }
  verdict.allowed = true;
  return verdict;
}

std::vector<Address> OpenAddresses(const EgressSettings& settings,
                                   const std::vector<Address>& addresses,
                                   std::optional<uint16_t> port, std::string* why) {
  std::vector<Address> open;
  for (const Address& address : addresses) {
    const char* closed = WhyClosed(address);
    const bool named =
        port ? FindByAddress(settings.policy, address, *port) != nullptr
             : std::any_of(settings.policy.allow.begin(), settings.policy.allow.end(),
                           [&](const Rule& r) { return r.cidr && r.cidr->Contains(address); });
    if (closed == nullptr || named)
      open.push_back(address);
    else
      *why = "the name leads to " + address.ToString() + " (" + closed + ")";
  }
  return open;
}

std::string DenialText(const std::string& sandbox, const std::string& shown,
                       const std::string& reason) {
  return "hutch: " + shown + " is denied: " + reason +
         ".\nWhat this sandbox may reach: hutch net show " + sandbox + "\n";
}

}  // namespace hutch::network
