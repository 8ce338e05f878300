// network/inside.h, sockets: made inside, kept outside.
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "network/catch_addresses.h"
#include "network/inside.h"
#include "network/kernel_limits.h"
#include "network/netlink.h"
#include "network/netns_visit.h"

namespace hutch::network {
namespace {

constexpr uint32_t kListening = 1u << TCP_LISTEN;

struct KindRow {
  ListenerKind kind;
  int type;
  uint16_t port;
  const char* name;
};
constexpr KindRow kKinds[] = {
    {ListenerKind::kDnsUdp, SOCK_DGRAM, kDnsPort, "UDP port 53"},
    {ListenerKind::kDnsTcp, SOCK_STREAM, kDnsPort, "TCP port 53"},
    {ListenerKind::kProxy, SOCK_STREAM, kProxyPort, "TCP port 3128"},
    {ListenerKind::kCatch, SOCK_STREAM, kCatchPort, "TCP port 3129"},
};

const KindRow& RowOf(ListenerKind kind) { return *std::ranges::find(kKinds, kind, &KindRow::kind); }

Status Bind(int fd, Family family, uint16_t port) {
  if (family == Family::kV4) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return SysError(errno, "bind");
    return OkStatus();
  }
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return SysError(errno, "bind");
  return OkStatus();
}

Result<UniqueFd> MakeListener(const KindRow& row, Family family) {
  const int domain = family == Family::kV4 ? AF_INET : AF_INET6;
  UniqueFd fd(::socket(domain, row.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SysError(errno, "socket of a listener");
  const int on = 1;
  if (family == Family::kV6 &&
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0)
    return SysError(errno, "IPV6_V6ONLY");
  // A new hutchd listens while connections of the old one are in TIME_WAIT. Not for UDP, where it
  // would let a program inside bind the same port and take what comes.
  if (row.type == SOCK_STREAM &&
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return SysError(errno, "SO_REUSEADDR");
  Status ready = Bind(fd.get(), family, row.port);
  if (ready && row.type == SOCK_STREAM && ::listen(fd.get(), kListenBacklog) != 0)
    ready = SysError(errno, "listen");
  if (!ready) {
    Error error = ready.error();
    if (error.sys == EADDRINUSE) {
      error.code = Code::kBadState;
      error.what = std::string(row.name) + " is taken by a program inside";
    }
    return error;
  }
  return fd;
}

Address MakeAddress(uint8_t family, const uint32_t* words) {
  Address address;
  if (family == AF_INET) {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(&address.bytes[12], words, 4);
    if (words[0] == 0) address = Address{};
  } else {
    std::memcpy(address.bytes.data(), words, 16);
  }
  return address;
}

bool IsLoopback(uint8_t family, const uint32_t* words) {
  if (family == AF_INET) return words[0] == htonl(INADDR_LOOPBACK);
  return std::memcmp(words, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

// Ours belong to the host's root, which nobody inside is.
bool IsOurs(const inet_diag_msg& socket) {
  const uint16_t port = ntohs(socket.id.idiag_sport);
  return socket.idiag_uid == ::geteuid() &&
         (port == kDnsPort || port == kProxyPort || port == kCatchPort) &&
         IsLoopback(socket.idiag_family, socket.id.idiag_src);
}

Status ListFamily(NetlinkSocket& diag, uint8_t family, std::vector<ListeningPort>* ports) {
  inet_diag_req_v2 query = {};
  query.sdiag_family = family;
  query.sdiag_protocol = IPPROTO_TCP;
  query.idiag_states = kListening;
  NetlinkRequest request;
  request.Begin(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, "CONFIG_INET_DIAG and CONFIG_INET_TCP_DIAG");
  request.Header(query);
  return diag.Ask(
      std::move(request), "list listening sockets",
      [ports](const nlmsghdr&, std::string_view body) {
        inet_diag_msg socket;
        if (body.size() < sizeof socket || ports->size() >= kMaxListeningPorts) return;
        std::memcpy(&socket, body.data(), sizeof socket);
        if (IsOurs(socket)) return;
        ports->push_back({MakeAddress(socket.idiag_family, socket.id.idiag_src),
                          ntohs(socket.id.idiag_sport), socket.idiag_uid, socket.idiag_inode});
      });
}

}  // namespace

Result<std::vector<Listener>> MakeListeners(int target, const std::vector<ListenerKind>& kinds) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  std::vector<Listener> listeners;
  listeners.reserve(2 * kinds.size());
  for (const ListenerKind kind : kinds) {
    for (const Family family : {Family::kV4, Family::kV6}) {
      if (family == Family::kV6 && !HasIpv6()) continue;
      ASSIGN_OR_RETURN(UniqueFd fd, MakeListener(RowOf(kind), family));
      listeners.push_back({kind, family, std::move(fd)});
    }
  }
  return listeners;
}

Result<UniqueFd> SocketIn(int target, int domain, int type) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  UniqueFd fd(::socket(domain, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket inside");
  return fd;
}

Result<std::vector<ListeningPort>> ListeningPorts(int target) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  ASSIGN_OR_RETURN(NetlinkSocket diag, NetlinkSocket::Open(NETLINK_SOCK_DIAG));
  std::vector<ListeningPort> ports;
  RETURN_IF_ERROR(ListFamily(diag, AF_INET, &ports));
  if (HasIpv6()) RETURN_IF_ERROR(ListFamily(diag, AF_INET6, &ports));
  return ports;
}

}  // namespace hutch::network
