// What hutchd does inside a sandbox's network namespace. Every call enters it on the calling thread
// and is back in its own afterwards (network_namespaces(7)); `target` is a descriptor of the
// namespace or a pidfd of a process in it, which setns(2) takes as well. Needs CAP_SYS_ADMIN and,
// in the namespace's user namespace (the host's), CAP_NET_ADMIN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/policy.h"

namespace hutch::network {

// Where the egress program listens inside. Nothing else of ours is there.
inline constexpr uint16_t kDnsPort = 53, kProxyPort = 3128, kCatchPort = 3129;

enum class Family { kV4, kV6 };
enum class ListenerKind {
  kDnsUdp,
  kDnsTcp,
  kProxy,  // HTTP (also CONNECT) and SOCKS5, told apart by the first byte
  kCatch   // connections to anywhere; SO_ORIGINAL_DST says where to
};
struct Listener {
  ListenerKind kind;
  Family family;
  UniqueFd fd;  // bound to 127.0.0.1 or ::1, listening, non-blocking
};

// The transparent catch: every address is behind lo (a route in the main table, for IPv4 and IPv6),
// TCP to anything but loopback is redirected to kCatchPort, DNS to kDnsPort, and all else is
// refused at once (ICMP administratively prohibited) and counted. Only what the routing sends
// through lo: a network that the sandbox joined has better routes and is not touched. Bounds
// connections being tracked. Idempotent. kUnsupported names the kernel's option. On error nothing
// is open.
Status OpenCatch(int target);
// What is caught then is nothing, as nothing is routed. Counters stay.
Status CloseCatch(int target);
// The dear part of OpenCatch ahead of need; nothing is open yet. Costs programs inside about a
// microsecond per round trip on loopback.
Status PrepareCatch(int target);
struct CatchCounters {
  uint64_t refused_packets = 0;  // neither TCP nor DNS
};
Result<CatchCounters> ReadCatch(int target);  // kNotFound when it never was open

// For the modes: allowlist has all four kinds, open and joined networks only DNS.
Result<std::vector<Listener>> MakeListeners(int target, const std::vector<ListenerKind>& kinds);

// socket(2) in the namespace; close-on-exec.
Result<UniqueFd> SocketIn(int target, int domain, int type);

struct ListeningPort {
  Address address;  // all zeroes: any
  uint16_t port = 0;
  uint32_t uid = 0;  // host's view
  uint64_t inode = 0;
};
// TCP sockets that listen inside (sock_diag(7)), without our own.
Result<std::vector<ListeningPort>> ListeningPorts(int target);

}  // namespace hutch::network
