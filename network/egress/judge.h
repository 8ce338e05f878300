// What the egress program decides, as pure functions of a sandbox's settings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "network/egress/client.h"
#include "network/egress/http_head.h"

namespace hutch::network {

// What must be spoken on a connection.
enum class Carrier {
  kTls,    // a ClientHello that names the host
  kHttp,   // plain HTTP, request by request
  kOpaque  // anything; TLS, should the client begin with it, must name the host
};

struct Verdict {
  bool allowed = false;
  Carrier carrier = Carrier::kOpaque;
  std::string reason;  // why not
};

// `host` is in normal form.
Verdict JudgeName(const EgressSettings& settings, const std::string& host, uint16_t port);
// Of a literal address: only a rule with a CIDR allows it.
Verdict JudgeAddress(const EgressSettings& settings, const Address& address, uint16_t port);
// A host as asked for, either of the two.
struct Target {
  std::string host;  // normal form; empty: an address
  std::optional<Address> address;
  uint16_t port = 0;
  std::string shown() const;  // "pkgs.example.org:443", "[::1]:80"
  bool operator==(const Target& other) const {
    return host == other.host && address == other.address && port == other.port;
  }
};
Result<Target> ReadTarget(std::string_view host, uint16_t port);
Verdict JudgeTarget(const EgressSettings& settings, const Target& target);

// A ClientHello against the host it must name; empty: any that is allowed on this port, which is
// returned in *name. The reason why not, or empty.
std::string JudgeHello(const EgressSettings& settings, std::string_view bytes,
                       const std::string& host, uint16_t port, std::string* name);

// One request of plain HTTP.
struct RequestVerdict {
  bool allowed = false;
  std::string reason;
  Target asked;         // what it was judged by
  Target upstream;      // with the port that is connected to
  bool tls = false;     // originated by us
  bool narrow = false;  // its rule is of methods or paths
  std::optional<HttpField> secret;
};
RequestVerdict JudgeRequest(const EgressSettings& settings, const RequestHead& request,
                            const Target& target);

// The addresses a name may lead to. *why: of the last one that was left out.
std::vector<Address> OpenAddresses(const EgressSettings& settings,
                                   const std::vector<Address>& addresses,
                                   std::optional<uint16_t> port, std::string* why);

// For people: what was denied, why, and where to look.
std::string DenialText(const std::string& sandbox, const std::string& shown,
                       const std::string& reason);

}  // namespace hutch::network
