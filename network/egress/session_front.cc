// What the connection wants: the first bytes of the proxy's protocols, the address of a caught one.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "network/egress/client_hello.h"
#include "network/egress/session.h"

namespace hutch::network {
namespace {

constexpr int kOriginalDst = 80;  // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST, whose headers clash
constexpr char kSocks5 = 5, kSocks4 = 4;
constexpr size_t kMaxSocksBytes = 512;
constexpr uint16_t kHttpPort = 80, kHttpsPort = 443;
// fatal, access_denied (RFC 8446, 6.2): clients show it, where a reset says nothing.
constexpr std::string_view kTlsAlert("\x15\x03\x01\x00\x02\x02\x31", 7);

struct Destination {
  Address address;
  uint16_t port = 0;
};

// Where a caught connection was meant to go.
std::optional<Destination> OriginalDestination(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  const bool v4 = storage.ss_family == AF_INET;
  size = sizeof storage;
  // Without a translation there is nothing to find: it was for us, whose port is none to reach.
  if (::getsockopt(fd, v4 ? SOL_IP : SOL_IPV6, kOriginalDst, &storage, &size) != 0)
    return std::nullopt;
  Destination to;
  if (v4) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
    to.address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::copy_n(reinterpret_cast<const uint8_t*>(&in->sin_addr), 4, &to.address.bytes[12]);
    to.port = ntohs(in->sin_port);
  } else {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    std::copy_n(reinterpret_cast<const uint8_t*>(&in6->sin6_addr), 16, to.address.bytes.data());
    to.port = ntohs(in6->sin6_port);
  }
  return to;
}

}  // namespace

bool Session::FirstBytes() {
  if (client_.in.empty()) {
    const Fill fill = FillIn(client_, kMaxHeadBytes);
    if (fill == Fill::kWait) return false;
    if (fill == Fill::kEnd) {
      Close();
      return false;
    }
  }
  const char first = client_.in[0];
  if (first == kSocks5) return Go(State::kSocksGreeting);
  if (first == kSocks4) {
    tenant_.Deny("socks", "", "", 0, "SOCKS4: only SOCKS5 is spoken here");
    constexpr char kRejected[] = "\x00\x5b\x00\x00\x00\x00\x00\x00";
    client_.Write(kRejected, 8);
    return Go(State::kDraining);
  }
  front_ = Front::kHttp;
  return Go(State::kHead);
}

bool Session::SocksGreeting() {
  std::string& in = client_.in;
  while (in.size() < 2 || in.size() < 2 + static_cast<size_t>(static_cast<uint8_t>(in[1]))) {
    const Fill fill = FillIn(client_, kMaxSocksBytes);
    if (fill == Fill::kWait) return false;
    if (fill != Fill::kMore) return Reset();
  }
  const size_t methods = static_cast<uint8_t>(in[1]);
  const bool open = in.find('\0', 2) < 2 + methods;
  in.erase(0, 2 + methods);
  client_.Write(open ? "\x05\x00" : "\x05\xff", 2);
  return Go(open ? State::kSocksRequest : State::kDraining);
}

bool Session::SocksRequest() {
  std::string& in = client_.in;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(in[at]); };
  size_t need = 5;
  while (true) {
    if (in.size() >= 5)
      need = byte(3) == 1 ? 10 : byte(3) == 4 ? 22 : byte(3) == 3 ? 7 + size_t{byte(4)} : 5;
    if (in.size() >= need && in.size() >= 5) break;
    const Fill fill = FillIn(client_, kMaxSocksBytes);
    if (fill == Fill::kWait) return false;
    if (fill != Fill::kMore) return Reset();
  }
  if (byte(0) != 5 || byte(1) != 1 || byte(2) != 0 || need == 5) {
    tenant_.Deny("socks", "", "", 0, "a SOCKS5 command other than CONNECT");
    const std::string reply{"\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", 10};
    client_.Write(reply.data(), reply.size());
    return Go(State::kDraining);
  }
  front_ = Front::kSocks;
  const auto port = static_cast<uint16_t>(byte(need - 2) << 8 | byte(need - 1));
  Result<Target> target = Error{};
  if (byte(3) == 3) {
    target = ReadTarget(std::string_view(in).substr(5, byte(4)), port);
  } else {
    Target literal;
    literal.port = port;
    literal.address.emplace();
    if (byte(3) == 1) literal.address->bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::copy_n(in.begin() + 4, need - 6, literal.address->bytes.begin() + (byte(3) == 1 ? 12 : 0));
    target = literal;
  }
  in.erase(0, need);
  if (!target) return Deny("socks", "the host is no name: " + target.error().what);
  // Clients that resolve themselves: the address is a name's, as with a caught connection.
  if (target->address) {
    const Verdict verdict = JudgeAddress(tenant_.settings, *target->address, port);
    if (!verdict.allowed) return OpenAddress(*target->address, port, verdict);
  }
  return OpenTunnel(std::move(*target));
}

bool Session::Catch() {
  const auto to = OriginalDestination(client_.fd());
  if (!to) return Reset();
  asked_ = to->address;
  asked_port_ = to->port;
  front_ = Front::kReset;
  const Verdict verdict = JudgeAddress(tenant_.settings, to->address, to->port);
  if (verdict.allowed) return OpenTunnel({"", to->address, to->port});
  if (to->port == kHttpsPort) {
    catch_names_host_ = true;
    carrier_ = Carrier::kTls;
    return Go(State::kHello);
  }
  if (to->port == kHttpPort) {
    catch_names_host_ = true;
    front_ = Front::kHttp;
    return Go(State::kHead);
  }
  return OpenAddress(to->address, to->port, verdict);
}

// An address that no range allows: it may be what an allowed name was answered with.
bool Session::OpenAddress(const Address& address, uint16_t port, const Verdict& refused) {
  asked_ = address;
  asked_port_ = port;
  for (const std::string& name : tenant_.names.NamesOf(address))
    if (JudgeName(tenant_.settings, name, port).allowed) return OpenTunnel({name, {}, port});
  return Deny(front_ == Front::kSocks ? "socks" : "tcp", refused.reason);
}

bool Session::OpenTunnel(Target target) {
  const char* protocol = front_ == Front::kSocks     ? "socks"
                         : front_ == Front::kConnect ? "connect"
                                                     : "tcp";
  const Verdict verdict = JudgeTarget(tenant_.settings, target);
  tunnel_ = std::move(target);
  if (!verdict.allowed) return Deny(protocol, verdict.reason);
  carrier_ = verdict.carrier;
  // Plain HTTP connects when it has a request that is allowed.
  return carrier_ == Carrier::kHttp ? TunnelReady() : Connect(*tunnel_, false);
}

// Tells the client that it may begin.
bool Session::TunnelReady() {
  ssize_t sent = 1;
  if (front_ == Front::kConnect) {
    constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";
    sent = client_.Write(kEstablished.data(), kEstablished.size());
  } else if (front_ == Front::kSocks) {
    constexpr char kGranted[] = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00";
    sent = client_.Write(kGranted, 10);
  }
  if (sent <= 0) return Reset();
  front_ = carrier_ == Carrier::kHttp ? Front::kHttp : Front::kReset;
  request_.reset();
  if (carrier_ == Carrier::kHttp) {
    StartDeadline(kHeadDeadline, "no request came in time");
    return Go(State::kHead);
  }
  if (carrier_ == Carrier::kTls && !catch_names_host_) {
    StartDeadline(kHeadDeadline, "no TLS ClientHello came in time");
    return Go(State::kHello);
  }
  return StartRelay();
}

bool Session::Hello() {
  while (ReadClientHello(client_.in).state == ClientHello::State::kNeedMore) {
    const Fill fill = FillIn(client_, kMaxHelloBytes);
    if (fill == Fill::kWait) return false;
    if (fill == Fill::kMore) continue;
    if (client_.in.empty()) return Reset();
    break;
  }
  std::string name;
  const uint16_t port = catch_names_host_ ? asked_port_ : tunnel_->port;
  const std::string host = catch_names_host_ ? "" : tunnel_->host;
  const std::string why = JudgeHello(tenant_.settings, client_.in, host, port, &name);
  if (!why.empty()) {
    if (!name.empty()) tunnel_ = Target{name, {}, port};
    if (LooksLikeTls(client_.in)) client_.Write(kTlsAlert.data(), kTlsAlert.size());
    return Deny("tls", why);
  }
  if (!catch_names_host_) return StartRelay();
  tunnel_ = Target{name, {}, port};
  return Connect(*tunnel_, false);
}

}  // namespace hutch::network
