#include "tests/kernel/network/network_fixture.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/netfilter_ipv4.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "network/inside.h"
#include "network/netns_visit.h"

namespace hutch::network {
namespace {

constexpr int kPatienceMs = 2000;  // only ever waited out by what should not be

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

bool IsV4(const Address& address) {
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(address.bytes.data(), kMapped.data(), kMapped.size()) == 0;
}

SocketAddress MakeSocketAddress(const Peer& peer) {
  SocketAddress made;
  if (IsV4(peer.address)) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(peer.port);
    std::memcpy(&v4.sin_addr, &peer.address.bytes[12], 4);
    std::memcpy(&made.storage, &v4, made.size = sizeof v4);
  } else {
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(peer.port);
    std::memcpy(&v6.sin6_addr, peer.address.bytes.data(), 16);
    std::memcpy(&made.storage, &v6, made.size = sizeof v6);
  }
  return made;
}

Peer MakePeer(const SocketAddress& from) {
  Peer peer;
  if (from.storage.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &from.storage, sizeof v4);
    peer.port = ntohs(v4.sin_port);
    peer.address = V4(0, 0, 0, 0);
    std::memcpy(&peer.address.bytes[12], &v4.sin_addr, 4);
  } else {
    sockaddr_in6 v6;
    std::memcpy(&v6, &from.storage, sizeof v6);
    peer.port = ntohs(v6.sin6_port);
    std::memcpy(peer.address.bytes.data(), &v6.sin6_addr, 16);
  }
  return peer;
}

UniqueFd SocketFor(int netns, const Address& address, int type) {
  auto fd = SocketIn(netns, IsV4(address) ? AF_INET : AF_INET6, type);
  EXPECT_TRUE(fd) << fd.error().ToString();
  return fd ? std::move(*fd) : UniqueFd();
}

bool Await(int fd, short events) {
  pollfd waiting = {fd, events, 0};
  return ::poll(&waiting, 1, kPatienceMs) == 1;
}

}  // namespace

void LeaveTheMachinesNetwork() {
  ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  ASSERT_EQ(::ioctl(fd.get(), SIOCSIFFLAGS, &request), 0);
}

Address V4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
  return address;
}

Address V6(uint16_t first, uint16_t last) {
  Address address;
  address.bytes[0] = static_cast<uint8_t>(first >> 8);
  address.bytes[1] = static_cast<uint8_t>(first & 0xff);
  address.bytes[14] = static_cast<uint8_t>(last >> 8);
  address.bytes[15] = static_cast<uint8_t>(last & 0xff);
  return address;
}

std::string Text(const Peer& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, peer.address.bytes.data(), text, sizeof text);
  return std::string(text) + " port " + std::to_string(peer.port);
}

UniqueFd Listen(int netns, const Peer& at) {
  UniqueFd fd = SocketFor(netns, at.address, SOCK_STREAM);
  const int on = 1;
  EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  const SocketAddress address = MakeSocketAddress(at);
  EXPECT_EQ(::bind(fd.get(), address.get(), address.size), 0) << std::strerror(errno) << Text(at);
  EXPECT_EQ(::listen(fd.get(), 64), 0);
  return fd;
}

UniqueFd BindUdp(int netns, const Peer& at) {
  UniqueFd fd = SocketFor(netns, at.address, SOCK_DGRAM);
  const SocketAddress address = MakeSocketAddress(at);
  EXPECT_EQ(::bind(fd.get(), address.get(), address.size), 0) << std::strerror(errno) << Text(at);
  return fd;
}

int Connect(int netns, const Peer& to, UniqueFd* fd) {
  *fd = SocketFor(netns, to.address, SOCK_STREAM | SOCK_NONBLOCK);
  const SocketAddress address = MakeSocketAddress(to);
  if (::connect(fd->get(), address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return -errno;
  if (!Await(fd->get(), POLLOUT)) return -ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return -errno;
  return -error;
}

int SendUdp(int netns, const Peer& to, UniqueFd* fd) {
  *fd = SocketFor(netns, to.address, SOCK_DGRAM | SOCK_NONBLOCK);
  const SocketAddress address = MakeSocketAddress(to);
  if (::connect(fd->get(), address.get(), address.size) != 0) return -errno;
  return SendByte(fd->get());
}

int Ping(int netns, const Address& to) {
  const bool v4 = IsV4(to);
  UniqueFd fd;
  Inside(netns, [&] {
    fd = UniqueFd(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           v4 ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6}));
  });
  if (!fd.valid()) return -errno;
  const SocketAddress address = MakeSocketAddress({to, 0});
  if (::connect(fd.get(), address.get(), address.size) != 0) return -errno;
  const char echo[8] = {static_cast<char>(v4 ? 8 : 128)};
  if (::send(fd.get(), echo, sizeof echo, 0) < 0) return -errno;
  const int got = ReceiveByte(fd.get());
  return got < 0 ? got : 0;
}

int ReceiveByte(int fd) {
  if (!Await(fd, POLLIN)) return -ETIMEDOUT;
  char byte[64];
  const ssize_t size = ::recv(fd, byte, sizeof byte, MSG_DONTWAIT);
  if (size < 0) return -errno;
  return size == 0 ? -EPIPE : static_cast<unsigned char>(byte[0]);
}

int SendByte(int fd) { return ::send(fd, "x", 1, MSG_NOSIGNAL) == 1 ? 0 : -errno; }

UniqueFd Accept(int listener) {
  if (!Await(listener, POLLIN)) return UniqueFd();
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

Peer OriginalDestination(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  int domain = 0;
  socklen_t size = sizeof domain;
  EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size), 0);
  const int level = domain == AF_INET ? int{SOL_IP} : int{SOL_IPV6};
  EXPECT_EQ(::getsockopt(fd, level, SO_ORIGINAL_DST, address.get(), &address.size), 0)
      << std::strerror(errno);
  return MakePeer(address);
}

Peer PeerOf(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  EXPECT_EQ(::getpeername(fd, address.get(), &address.size), 0) << std::strerror(errno);
  return MakePeer(address);
}

void Inside(int netns, const std::function<void()>& f) {
  const auto visit = NetnsVisit::Enter(netns);
  ASSERT_TRUE(visit) << visit.error().ToString();
  f();
}

int Command(int netns, const std::string& command) {
  int status = -1;
  Inside(netns, [&] { status = std::system(command.c_str()); });  // NOLINT: our own words
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string Output(int netns, const std::string& command) {
  std::string text;
  Inside(netns, [&] {
    FILE* pipe = ::popen(command.c_str(), "re");
    ASSERT_NE(pipe, nullptr);
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    ::pclose(pipe);
  });
  return text;
}

}  // namespace hutch::network
