#include "tests/kernel/network/internet_fixture.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/file.h"
#include "network/links.h"

namespace hutch::network {
namespace {

Cidr Range(const Address& base, uint8_t bits) { return {.base = base, .bits = bits}; }

}  // namespace

void InternetTest::SetUp() {
  LeaveTheMachinesNetwork();
  host_ = *Open("/proc/thread-self/ns/net", O_RDONLY);
  internet_ = *MakeNetns();
  ASSERT_TRUE(WriteExisting("/proc/sys/net/ipv4/ip_forward", "1"));
  ASSERT_TRUE(WriteExisting("/proc/sys/net/ipv6/conf/all/forwarding", "1"));
  ASSERT_TRUE(WriteExisting("/proc/sys/net/ipv6/conf/default/accept_dad", "0"));
  auto route = NetlinkSocket::Open(NETLINK_ROUTE);
  ASSERT_TRUE(route) << route.error().ToString();
  NetlinkRequest request;
  // Ends of equal index are linked only when the kernel finds the time.
  AddVeth(request, {.name = "up0", .index = 10}, {.name = "eth0", .index = 20}, internet_.get());
  ASSERT_TRUE(route->Run(std::move(request), "make the uplink"));
  ASSERT_EQ(Command(host_.get(),
                    "set -e\n"
                    "ip addr add 5.5.5.1/24 dev up0; ip -6 addr add 2a00::1/64 dev up0 nodad\n"
                    "ip link set up0 up\n"
                    "ip route add default via 5.5.5.2"),
            0);
  ASSERT_EQ(Command(internet_.get(),
                    "set -e\n"
                    "ip addr add 5.5.5.2/24 dev eth0; ip -6 addr add 2a00::2/64 dev eth0 nodad\n"
                    "ip link set eth0 up\n"
                    "for a in 8.8.8.8 10.1.2.3 169.254.169.254 100.100.1.1; do\n"
                    " ip addr add $a/32 dev lo; done\n"
                    "for a in 2606::8 fd11::8; do ip -6 addr add $a/128 dev lo nodad; done"),
            0);
  ASSERT_EQ(Command(host_.get(), "ip -6 route add default via 2a00::2"), 0);
  AwaitActive(*route, 10);
  Inside(internet_.get(), [] {
    auto far = NetlinkSocket::Open(NETLINK_ROUTE);
    AwaitActive(*far, 20);
  });
  for (const Address& at : {kPublicV4, kPrivateV4, kMetadataV4, kSharedV4, kPublicV6, kPrivateV6})
    Serve(internet_.get(), at);
}

OpenConfig InternetTest::config() const {
  return {Range(V4(100, 96, 0, 0), 112), Range(V6(0xfdee, 0), 112), {}};
}

void InternetTest::Start() {
  auto started = OpenNetwork::Start(config());
  ASSERT_TRUE(started) << started.error().ToString() << " " << started.error().hint;
  network_ = std::move(*started);
}

int InternetTest::Add(const std::string& id, const Policy& policy) {
  auto netns = MakeNetns();
  EXPECT_TRUE(netns) << netns.error().ToString();
  auto lease = network_->Attach(id, netns->get(), policy);
  EXPECT_TRUE(lease) << lease.error().ToString();
  sandboxes_.push_back(std::move(*netns));
  leases_.push_back(lease ? *lease : OpenLease{});
  return static_cast<int>(sandboxes_.size()) - 1;
}

void InternetTest::Serve(int netns, const Address& at) {
  servers_.push_back({at, Listen(netns, {at, kTcpPort}), BindUdp(netns, {at, kUdpPort})});
}

int InternetTest::TalkTcp(int from, const Address& to) {
  UniqueFd client;
  const int connected = Connect(from, {to, kTcpPort}, &client);
  if (connected != 0) return connected;
  for (const Server& server : servers_) {
    if (server.address != to) continue;
    const UniqueFd other = Accept(server.tcp.get());
    if (!other.valid()) return -EPROTO;
    if (SendByte(client.get()) != 0 || ReceiveByte(other.get()) != 'x') return -EPROTO;
    if (SendByte(other.get()) != 0) return -EPROTO;
    const int got = ReceiveByte(client.get());
    return got == 'x' ? 0 : got;
  }
  return -EDESTADDRREQ;
}

int InternetTest::TalkUdp(int from, const Address& to) {
  UniqueFd client;
  const int sent = SendUdp(from, {to, kUdpPort}, &client);
  if (sent != 0) return sent;
  for (const Server& server : servers_) {
    if (server.address != to) continue;
    // A refusal comes back before anything else can.
    char byte;
    sockaddr_storage peer = {};
    socklen_t size = sizeof peer;
    ssize_t got = -1;
    for (int tries = 0; tries < 5000 && got < 0; ++tries) {
      got = ::recvfrom(server.udp.get(), &byte, 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&peer),
                       &size);
      if (got < 0 && ::recv(client.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno != EAGAIN)
        return -errno;
      if (got < 0) ::usleep(1000);
    }
    if (got != 1) return -ETIMEDOUT;
    ::sendto(server.udp.get(), "x", 1, 0, reinterpret_cast<sockaddr*>(&peer), size);
    const int back = ReceiveByte(client.get());
    return back == 'x' ? 0 : back;
  }
  return -EDESTADDRREQ;
}

OpenCounters InternetTest::Counters(const std::string& id) {
  const auto counters = network_->Count(id);
  EXPECT_TRUE(counters) << counters.error().ToString();
  return counters ? *counters : OpenCounters{};
}

}  // namespace hutch::network
