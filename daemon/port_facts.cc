#include "daemon/port_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "daemon/limits.h"
#include "network/inside.h"

namespace hutch::daemon {
namespace {

using oci::ObjectReader;

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

bool IsV6(const std::string& address) { return address.find(':') != std::string::npos; }

// The one way to write it, so that two texts of one address are one address.
Result<std::string> NormalAddress(const std::string& text, const std::string& field) {
  unsigned char bytes[16];
  char normal[INET6_ADDRSTRLEN];
  const int family = IsV6(text) ? AF_INET6 : AF_INET;
  if (::inet_pton(family, text.c_str(), bytes) != 1 ||
      ::inet_ntop(family, bytes, normal, sizeof normal) == nullptr)
    return Invalid("must be an IP address without a zone", field);
  return std::string(normal);
}

bool IsLoopback(const std::string& address) {
  return address == "::1" || address.starts_with("127.");
}

Status CheckAddress(const std::string& address, const std::string& field, const Config& config) {
  if (IsLoopback(address)) return OkStatus();
  for (const std::string& allowed : config.port_addresses)
    if (allowed == address) return OkStatus();
  return Error{.code = Code::kForbidden,
               .what = "ports are not forwarded from " + address + " on this host",
               .field = field,
               .hint = "127.0.0.1 and ::1 always are; an operator lists others in ports.addresses"};
}

}  // namespace

Status CheckInsidePort(uint16_t port, const std::string& field) {
  if (port != network::kDnsPort && port != network::kProxyPort && port != network::kCatchPort)
    return OkStatus();
  return Invalid("ports 53, 3128 and 3129 are hutch's own inside", field);
}

Result<PortFacts> ParsePort(const oci::Json& json, const std::string& field, const Config& config) {
  uint64_t port = 0, host_port = 0;
  PortFacts facts;
  const std::string before = field.empty() ? "" : field + ".";
  const std::string port_field = json.is_object() ? before + "port" : field;
  if (json.is_number_unsigned()) {
    port = json.get<uint64_t>();
  } else if (json.is_object()) {
    ObjectReader reader(json, field);
    reader.Uint("port", &port, 0, UINT16_MAX)
        .Uint("host_port", &host_port, 0, UINT16_MAX)
        .String("address", &facts.address, 64)
        .String("label", &facts.label, kMaxNameBytes);
    RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  } else {
    return Invalid("must be a port number, or an object with one", field);
  }
  if (port == 0 || port > UINT16_MAX) return Invalid("must be a port, 1 to 65535", port_field);
  facts.port = static_cast<uint16_t>(port);
  facts.host_port = static_cast<uint16_t>(host_port);
  const std::string address_field = before + "address";
  ASSIGN_OR_RETURN(facts.address, NormalAddress(facts.address, address_field));
  RETURN_IF_ERROR(CheckAddress(facts.address, address_field, config));
  RETURN_IF_ERROR(CheckInsidePort(facts.port, port_field));
  if (host_port != 0 && host_port < kMinHostPort)
    return Invalid("must be 0 (any) or " + std::to_string(kMinHostPort) + " to 65535",
                   before + "host_port");
  return facts;
}

Result<std::vector<PortFacts>> ParsePorts(const oci::Json& json, const std::string& field,
                                          const Config& config) {
  if (!json.is_array()) return Invalid("must be a list of ports", field);
  if (json.size() > kMaxForwards)
    return Invalid("more than " + std::to_string(kMaxForwards) + " ports", field);
  std::vector<PortFacts> ports;
  for (const oci::Json& one : json) {
    const std::string path = field + "[" + std::to_string(ports.size()) + "]";
    ASSIGN_OR_RETURN(PortFacts facts, ParsePort(one, path, config));
    const bool twice = std::any_of(ports.begin(), ports.end(), [&](const PortFacts& other) {
      return other.port == facts.port;
    });
    if (twice) return Invalid("port " + std::to_string(facts.port) + " is there twice", path);
    ports.push_back(std::move(facts));
  }
  return ports;
}

Result<std::vector<PortFacts>> LoadPorts(const oci::Json& json) {
  Config config;
  if (json.is_array())
    for (const oci::Json& one : json)
      if (one.is_object() && one.contains("address") && one["address"].is_string())
        config.port_addresses.push_back(one["address"].get<std::string>());
  return ParsePorts(json, "ports", config);
}

oci::Json PortFactsJson(const PortFacts& facts) {
  oci::Json json = {
      {"port", facts.port}, {"host_port", facts.host_port}, {"address", facts.address}};
  if (!facts.label.empty()) json["label"] = facts.label;
  return json;
}

oci::Json PortListJson(const std::vector<PortFacts>& ports) {
  oci::Json list = oci::Json::array();
  for (const PortFacts& facts : ports) list.push_back(PortFactsJson(facts));
  return list;
}

std::string HostPortText(const PortFacts& facts) {
  const std::string host = IsV6(facts.address) ? "[" + facts.address + "]" : facts.address;
  return host + ":" + std::to_string(facts.host_port);
}

std::string PortUrl(const PortFacts& facts) {
  PortFacts shown = facts;
  if (facts.address == "0.0.0.0") shown.address = "127.0.0.1";
  if (facts.address == "::") shown.address = "::1";
  return "http://" + HostPortText(shown) + "/";
}

}  // namespace hutch::daemon
