#include "daemon/tcp_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>

#include <optional>

#include "base/text.h"

namespace hutch::daemon {
namespace {

constexpr int kBacklog = 256;
constexpr uint32_t kLoopbackNet = 127, kLoopbackShift = 24;

Error Invalid(std::string what, std::string hint = "") {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .hint = std::move(hint)};
}

std::optional<struct in_addr> ParseV4(const std::string& text) {
  struct in_addr address {};
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return address;
}

std::optional<struct in6_addr> ParseV6(const std::string& text) {
  struct in6_addr address {};
  if (::inet_pton(AF_INET6, text.c_str(), &address) != 1) return std::nullopt;
  return address;
}

bool IsLoopback(const std::string& address) {
  if (const auto v4 = ParseV4(address)) return ntohl(v4->s_addr) >> kLoopbackShift == kLoopbackNet;
  const auto v6 = ParseV6(address);
  return v6 && IN6_IS_ADDR_LOOPBACK(&*v6);
}

// "host:port", "[host]:port", or either without a port. Empty host: neither.
struct HostPort {
  std::string host = {}, port = {};
  bool bracketed = false;
};
HostPort SplitHost(std::string_view text) {
  HostPort parts;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return {};
    parts.host = text.substr(1, end - 1);
    parts.bracketed = true;
    text.remove_prefix(end + 1);
  } else {
    parts.host = text.substr(0, text.find(':'));
    text.remove_prefix(parts.host.size());
  }
  if (text.empty()) return parts;
  if (!text.starts_with(':')) return {};
  parts.port = text.substr(1);
  if (!ParseUint(parts.port, UINT16_MAX).has_value()) return {};
  return parts;
}

socklen_t FillAddress(const TcpEndpoint& endpoint, struct sockaddr_storage* storage) {
  if (const auto v4 = ParseV4(endpoint.address)) {
    auto* address = reinterpret_cast<struct sockaddr_in*>(storage);
    address->sin_family = AF_INET;
    address->sin_port = htons(endpoint.port);
    address->sin_addr = *v4;
    return sizeof *address;
  }
  auto* address = reinterpret_cast<struct sockaddr_in6*>(storage);
  address->sin6_family = AF_INET6;
  address->sin6_port = htons(endpoint.port);
  address->sin6_addr = ParseV6(endpoint.address).value_or(in6_addr{});
  return sizeof *address;
}

}  // namespace

Result<TcpEndpoint> ParseTcpListen(std::string_view text) {
  const HostPort parts = SplitHost(text);
  const bool is_address =
      parts.bracketed ? ParseV6(parts.host).has_value() : ParseV4(parts.host).has_value();
  const Result<uint64_t> port = ParseUint(parts.port, UINT16_MAX);
  if (!is_address || !port.has_value() || *port == 0)
    return Invalid("must be an address and a port, as in 127.0.0.1:7788 or [::1]:7788");
  if (!IsLoopback(parts.host))
    return Invalid("must be a loopback address: what goes over TCP is not encrypted",
                   "reach it from elsewhere through a tunnel, as in ssh -L 7788:127.0.0.1:7788");
  return TcpEndpoint{.address = parts.host, .port = static_cast<uint16_t>(*port)};
}

Result<UniqueFd> BindTcp(const TcpEndpoint& endpoint) {
  struct sockaddr_storage storage {};
  const socklen_t size = FillAddress(endpoint, &storage);
  const std::string name = endpoint.address + " port " + std::to_string(endpoint.port);
  UniqueFd socket(
      ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket.valid()) return SysError(errno, "make a socket for " + name);
  // Connections inherit the last two.
  struct OptionRow {
    int level, name;
  };
  constexpr OptionRow kOptions[] = {
      {SOL_SOCKET, SO_REUSEADDR}, {IPPROTO_TCP, TCP_NODELAY}, {SOL_SOCKET, SO_KEEPALIVE}};
  const int on = 1;
  for (const OptionRow& row : kOptions)
    if (::setsockopt(socket.get(), row.level, row.name, &on, sizeof on) != 0)
      return SysError(errno, "setsockopt for " + name);
  if (::bind(socket.get(), reinterpret_cast<const struct sockaddr*>(&storage), size) != 0)
    return SysError(errno, "bind " + name);
  if (::listen(socket.get(), kBacklog) != 0) return SysError(errno, "listen on " + name);
  return socket;
}

bool NamesLoopback(std::string_view host) {
  const HostPort parts = SplitHost(host);
  if (parts.bracketed) return ParseV6(parts.host).has_value() && IsLoopback(parts.host);
  return ::strcasecmp(parts.host.c_str(), "localhost") == 0 ||
         (ParseV4(parts.host).has_value() && IsLoopback(parts.host));
}

}  // namespace hutch::daemon
