// What a sandbox may reach: the policy by value, its JSON, and the one place that says yes or no.
// Pure. Names follow RFC 1035 and are compared in lower case; addresses are kept as IPv6, IPv4 ones
// mapped (RFC 4291, 2.5.5.2).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::network {

enum class Mode { kNone, kAllowlist, kOpen };
const char* ModeName(Mode mode);  // "none", "allowlist", "open"

struct Address {
  std::array<uint8_t, 16> bytes{};
  bool is_v4() const;
  std::string ToString() const;  // "192.0.2.1", "2001:db8::1"
  auto operator<=>(const Address&) const = default;
};
// No zone, no leading zeroes, no short forms such as "127.1": kInvalidArgument.
Result<Address> ParseAddress(std::string_view text);

struct Cidr {
  Address base;
  uint8_t bits = 128;  // of the IPv6 form: an IPv4 /24 is 120
  bool Contains(const Address& address) const;
  std::string ToString() const;  // "10.0.0.0/8", "2001:db8::/32"
};

struct PortRange {
  uint16_t first = 0, last = 0;
};

// One line of the allowlist. Either a host or a range of addresses.
struct Rule {
  std::string host;  // "pkgs.example.org", or "*.pkgs.example.org": all below it, not itself
  std::optional<Cidr> cidr;      // instead of host
  std::vector<PortRange> ports;  // never empty: 80 and 443 where the request names none
  // Of plain HTTP, which is all a proxy can read; empty: all. A rule with either of them allows
  // no TLS, unless it originates it.
  std::vector<std::string> methods;
  std::vector<std::string> paths;  // "/a/b" exactly, or "/a/*": all that begins with "/a/"
  std::string secret;              // name of a secret put into the requests; empty: none
  bool originate_tls = false;      // plain HTTP from inside goes on as TLS, to port 443
  std::string origin;              // how it was written, or the preset that it comes from
};

// 0: unbounded.
struct TrafficLimits {
  uint64_t bytes_per_second = 0;  // each direction
  uint64_t total_bytes = 0;       // both directions together; then everything is denied
  uint32_t connections = 0;       // open at once
};

struct Policy {
  Mode mode = Mode::kNone;
  std::vector<Rule> allow;
  std::vector<std::string> presets;  // those that are among `allow`
  TrafficLimits limits;
  std::vector<std::string> join;  // names of networks
};

// Rules by the name of a preset.
using Presets = std::map<std::string, std::vector<Rule>, std::less<>>;

// The request's "network": {"mode", "allow": ["pkgs.example.org", "*.x.org:8080",
// "10.1.0.0/16:5432-5440",
// "[2001:db8::]/32:443", "preset:packages", {"host" or "cidr", "ports", "methods", "paths",
// "secret", "tls": "originate"}], "limits", "join"}. kInvalidArgument with the field
// (network.allow[3]) and the reason for whatever could be misread: "*", "*.com" (a public suffix),
// a URL, a name that is not ASCII or an IDN that mixes scripts, an IPv6 zone, a name that is an
// address, rules with mode "none", rules of names with mode "open", a range that is partly closed
// (0.0.0.0/0), a duplicate key. kNotFound for a preset that is not there.
Result<Policy> ParsePolicy(const oci::Json& json, const Presets& presets);
// What ParsePolicy takes again without any preset, with every default written out.
oci::Json PolicyJson(const Policy& policy);

// A host name as asked for by a program inside: lower case, without the last dot. kInvalidArgument
// for what is none, and for an address.
Result<std::string> NormalHost(std::string_view text);

// Which rule allows it, else nullptr: one without methods and paths before one with them, then an
// exact name before a wildcard, then the first. Only in mode allowlist. TLS needs a rule without.
const Rule* FindByHost(const Policy& policy, std::string_view host, uint16_t port);
// The rule that a request of plain HTTP goes by: more than one can be of the same host. Of those
// that allow it, an exact name before a wildcard, then the first.
const Rule* FindByRequest(const Policy& policy, std::string_view host, uint16_t port,
                          std::string_view method, std::string_view target);
// Whether any port of it is allowed: what DNS answers.
bool AllowsName(const Policy& policy, std::string_view host);
const Rule* FindByAddress(const Policy& policy, const Address& address, uint16_t port);
// Of a rule with methods or paths. The path is compared as it is sent, up to "?"; "%2e", "%2f",
// ".." segments, "//" and backslashes fit no rule with paths.
bool AllowsRequest(const Rule& rule, std::string_view method, std::string_view target);

// Addresses that no name may lead to, and no mode reaches without a CIDR rule: private, shared
// (RFC 6598), loopback, link-local and other metadata services, unique local, multicast,
// unspecified, documentation, 6to4, Teredo, NAT64 and IPv4-mapped forms of them. The reason, or
// nullptr.
const char* WhyClosed(const Address& address);
// The same as ranges, for a packet filter: of IPv4 (mapped) and of IPv6.
std::vector<Cidr> ClosedRanges();

}  // namespace hutch::network
