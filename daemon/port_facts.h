// Ports of a sandbox that are reached from the host: what a request asks for and what is kept of
// it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "oci/json.h"

namespace hutch::daemon {

struct PortFacts {
  uint16_t port = 0;       // inside
  uint16_t host_port = 0;  // 0: any that is free, until it is bound
  std::string address = "127.0.0.1";
  std::string label = {};  // what it is for, or empty
};

// 3000, or {"port": 3000, "host_port": 8080, "address": "127.0.0.1", "label": "web"}.
// kInvalidArgument with the field below `field` ("ports[1].host_port"); kForbidden for an address
// that is neither loopback nor among the operator's (Config::port_addresses).
Result<PortFacts> ParsePort(const oci::Json& json, const std::string& field, const Config& config);
// The list of a create request. A port twice is kInvalidArgument.
Result<std::vector<PortFacts>> ParsePorts(const oci::Json& json, const std::string& field,
                                          const Config& config);
// kInvalidArgument for hutch's own listeners inside, which are for the inside only.
Status CheckInsidePort(uint16_t port, const std::string& field);

// What PortListJson() wrote: what was granted stays granted.
Result<std::vector<PortFacts>> LoadPorts(const oci::Json& json);
// What ParsePort takes again.
oci::Json PortFactsJson(const PortFacts& facts);
oci::Json PortListJson(const std::vector<PortFacts>& ports);

// "127.0.0.1:8080", "[::1]:8080".
std::string HostPortText(const PortFacts& facts);
// Where a browser finds it.
std::string PortUrl(const PortFacts& facts);

}  // namespace hutch::daemon
