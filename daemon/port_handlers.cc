// Ports of a sandbox: forwards from the host, what listens inside, and requests that go on to a
// port.
#include <arpa/inet.h>

#include <cstring>
#include <memory>

#include "base/text.h"
#include "daemon/forwards.h"
#include "daemon/handlers.h"
#include "network/inside.h"

namespace hutch::daemon {
namespace {

using network::ListeningPort;
using oci::Json;

constexpr size_t kProxyPathSlashes = 6;  // "/v1/sandboxes/{id}/proxy/{port}/"

Result<uint16_t> ParsePortSegment(const std::string& text) {
  const Result<uint64_t> port = ParseUint(text, UINT16_MAX);
  if (port.has_value() && *port > 0) return static_cast<uint16_t>(*port);
  return Error{
      .code = Code::kInvalidArgument, .what = "must be a port, 1 to 65535", .field = "port"};
}

bool IsV4(const network::Address& address) {
  constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(address.bytes.data(), kMapped, sizeof kMapped) == 0;
}
bool IsAny(const network::Address& address) {
  for (size_t i = IsV4(address) ? 12 : 0; i < address.bytes.size(); ++i)
    if (address.bytes[i] != 0) return false;
  return true;
}
bool IsLoopback(const network::Address& address) {
  if (IsV4(address)) return address.bytes[12] == 127;
  return std::memcmp(address.bytes.data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

std::string Text(const network::Address& address) {
  char text[INET6_ADDRSTRLEN];
  if (IsAny(address)) return "*";
  const bool v4 = IsV4(address);
  const char* made =
      ::inet_ntop(v4 ? AF_INET : AF_INET6, address.bytes.data() + (v4 ? 12 : 0), text, sizeof text);
  return made == nullptr ? "" : made;
}

// Whether a connection to 127.0.0.1 or ::1 finds somebody.
bool IsReached(const std::vector<ListeningPort>& listening, uint16_t port) {
  for (const ListeningPort& one : listening)
    if (one.port == port && (IsAny(one.address) || IsLoopback(one.address))) return true;
  return false;
}

Json ForwardJson(const ForwardView& view, const std::vector<ListeningPort>& listening) {
  Json json = PortFactsJson(view.facts);
  json["url"] = PortUrl(view.facts);
  json["listening"] = IsReached(listening, view.facts.port);
  json["open_connections"] = view.open;
  json["connections"] = view.connections;
  json["sent_bytes"] = view.sent;
  json["received_bytes"] = view.received;
  if (view.error) json["error"] = *view.error;
  return json;
}

// What listens inside. A sandbox that ends at this moment has nothing.
std::vector<ListeningPort> Listening(const SandboxEntry& entry) {
  Result<std::vector<ListeningPort>> ports = network::ListeningPorts(entry.sandbox->init().fd());
  return ports.has_value() ? std::move(*ports) : std::vector<ListeningPort>();
}

std::string PrefixOf(const std::string& path) {
  size_t at = 0;
  for (size_t i = 1; i < kProxyPathSlashes; ++i) at = path.find('/', at + 1);
  return path.substr(0, at);
}

BodyFraming FramingOf(const TakenConnection& taken) {
  if (taken.chunked) return BodyFraming::kChunked;
  return taken.body_left > 0 ? BodyFraming::kLength : BodyFraming::kNone;
}

}  // namespace

void HandleListPorts(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const Result<Forwards*> ways = api.sandboxes.Ways();
  if (!ways.has_value()) return responder.Send(ways.error());
  const std::vector<ListeningPort> listening = Listening(**entry);
  Json forwards = Json::array(), inside = Json::array();
  for (const ForwardView& view : (*ways)->List((*entry)->facts.id))
    forwards.push_back(ForwardJson(view, listening));
  for (const ListeningPort& one : listening)
    inside.push_back({{"port", one.port},
                      {"address", Text(one.address)},
                      {"loopback_only", IsLoopback(one.address)}});
  responder.Send(
      JsonReply(200, {{"ports", std::move(forwards)}, {"listening", std::move(inside)}}));
}

void HandleAddPort(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const Result<PortFacts> wanted = ParsePort(request.json, "", api.config);
  if (!wanted.has_value()) return responder.Send(wanted.error());
  const Result<PortFacts> added = api.sandboxes.AddPort(**entry, *wanted);
  if (!added.has_value()) return responder.Send(added.error());
  responder.Send(JsonReply(201, ForwardJson({.facts = *added, .error = {}}, Listening(**entry))));
}

void HandleRemovePort(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const Result<uint16_t> port = ParsePortSegment(request.parameters[1]);
  if (!port.has_value()) return responder.Send(port.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status removed = api.sandboxes.RemovePort(
      **entry, *port, [shared] { shared->Send(Reply{.status = 204, .body = {}}); });
  if (!removed.has_value()) shared->Send(removed.error());
}

void HandleProxy(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const Result<uint16_t> port = ParsePortSegment(request.parameters[1]);
  if (!port.has_value()) return responder.Send(port.error());
  const Status allowed = CheckInsidePort(*port, "port");
  if (!allowed.has_value()) return responder.Send(allowed.error());
  const Result<Forwards*> ways = api.sandboxes.Ways();
  if (!ways.has_value()) return responder.Send(ways.error());
  const std::string& id = (*entry)->facts.id;
  ProxyRequest proxied;
  proxied.port = *port;
  proxied.ask.prefix = PrefixOf(request.path);
  const std::string path = request.path.substr(proxied.ask.prefix.size());
  // Relative links of a page would lead beside the port.
  if (path.empty()) {
    const std::string query = request.query_text.empty() ? "" : "?" + request.query_text;
    return responder.Send(Reply{
        .status = 308, .body = {}, .headers = {{"Location", proxied.ask.prefix + "/" + query}}});
  }
  const Status more = (*ways)->CheckProxy(id);
  if (!more.has_value()) return responder.Send(more.error());
  Result<TakenConnection> taken = responder.TakeOver();
  if (!taken.has_value()) return responder.Send(taken.error());
  api.sandboxes.Touch(**entry, Activity::kCall);
  proxied.connection = std::move(*taken);
  proxied.framing = FramingOf(proxied.connection);
  proxied.ask.head_only = request.method == "HEAD";
  proxied.ask.http_1_0 = proxied.connection.http_1_0;
  proxied.ask.upgrade =
      proxied.framing == BodyFraming::kNone && !proxied.ask.http_1_0 && AsksForUpgrade(request);
  proxied.head = UpstreamHead(request, path, proxied.ask, proxied.framing);
  proxied.patience = std::chrono::seconds(api.config.http_timeout_seconds);
  (*ways)->Proxy(id, std::move(proxied));
}

}  // namespace hutch::daemon
