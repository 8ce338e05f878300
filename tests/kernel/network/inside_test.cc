#include "network/inside.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "base/file.h"
#include "network/kernel_limits.h"
#include "network/netns.h"
#include "tests/kernel/network/network_fixture.h"
#include "tests/support/open_files.h"

namespace hutch::network {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ListenerKind kAll[] = {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp, ListenerKind::kProxy,
                                 ListenerKind::kCatch};

class InsideTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LeaveTheMachinesNetwork();
    auto made = MakeNetns();
    ASSERT_TRUE(made) << made.error().ToString();
    netns_ = std::move(*made);
  }
  void Open() {
    const Status opened = OpenCatch(netns());
    ASSERT_TRUE(opened) << opened.error().ToString() << opened.error().hint;
    auto made = MakeListeners(netns(), {std::begin(kAll), std::end(kAll)});
    ASSERT_TRUE(made) << made.error().ToString();
    listeners_ = std::move(*made);
  }
  int netns() const { return netns_.get(); }
  int Of(ListenerKind kind, Family family) const {
    for (const Listener& listener : listeners_)
      if (listener.kind == kind && listener.family == family) return listener.fd.get();
    ADD_FAILURE() << "no such listener";
    return -1;
  }
  uint64_t Refused() const {
    const auto counters = ReadCatch(netns());
    EXPECT_TRUE(counters) << counters.error().ToString();
    return counters ? counters->refused_packets : 0;
  }
  // One connection there and back.
  void ExpectCaught(const Peer& to, Family family, ListenerKind kind) {
    SCOPED_TRACE(Text(to));
    UniqueFd client;
    ASSERT_EQ(Connect(netns(), to, &client), 0);
    const UniqueFd server = Accept(Of(kind, family));
    ASSERT_TRUE(server.valid());
    EXPECT_EQ(OriginalDestination(server.get()), to);
    EXPECT_EQ(PeerOf(client.get()), to);
    EXPECT_EQ(SendByte(client.get()), 0);
    EXPECT_EQ(ReceiveByte(server.get()), 'x');
    EXPECT_EQ(SendByte(server.get()), 0);
    EXPECT_EQ(ReceiveByte(client.get()), 'x');
  }

  UniqueFd netns_;
  std::vector<Listener> listeners_;
};

const Peer kFarV4[] = {{V4(192, 0, 2, 33), 443},     {V4(10, 9, 8, 7), 22},
                       {V4(169, 254, 169, 254), 80}, {V4(100, 100, 100, 200), 80},
                       {V4(8, 8, 8, 8), 65535},      {V4(192, 0, 2, 33), 3128}};
const Peer kFarV6[] = {{V6(0x2001, 7), 443}, {V6(0xfd00, 0xec2), 80}, {V6(0xfd12, 1), 22}};

TEST_F(InsideTest, TcpToAnywhereReachesTheCatchWithItsDestination) {
  Open();
  for (const Peer& to : kFarV4) ExpectCaught(to, Family::kV4, ListenerKind::kCatch);
  for (const Peer& to : kFarV6) ExpectCaught(to, Family::kV6, ListenerKind::kCatch);
  EXPECT_EQ(Refused(), 0u);
}

TEST_F(InsideTest, TwoConnectionsFromOnePortToTwoPlacesAreBothCaught) {
  Open();
  // The kernel gives one local port to connections with different ends.
  ASSERT_EQ(Command(netns(),
                    "/usr/bin/python3 -c \"import socket\n"
                    "for t in '192.0.2.1','192.0.2.2','192.0.2.3':\n"
                    " s=socket.socket()\n"
                    " s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
                    " s.bind(('127.0.0.1',40000)); s.settimeout(2)\n"
                    " s.connect((t,443)); globals()[t]=s\""),
            0);
}

TEST_F(InsideTest, QuestionsToAnyNameServerReachOurs) {
  Open();
  const std::pair<Peer, Family> servers[] = {{{V4(8, 8, 8, 8), 53}, Family::kV4},
                                             {{V6(0x2001, 0x8888), 53}, Family::kV6},
                                             {{kLoopbackV4, 53}, Family::kV4},
                                             {{kLoopbackV6, 53}, Family::kV6}};
  for (const auto& [server, family] : servers) {
    SCOPED_TRACE(Text(server));
    UniqueFd client;
    ASSERT_EQ(SendUdp(netns(), server, &client), 0);
    sockaddr_storage from = {};
    socklen_t size = sizeof from;
    char byte;
    const int ours = Of(ListenerKind::kDnsUdp, family);
    ASSERT_EQ(::recvfrom(ours, &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &size), 1);
    ASSERT_EQ(::sendto(ours, "a", 1, 0, reinterpret_cast<sockaddr*>(&from), size), 1);
    EXPECT_EQ(ReceiveByte(client.get()), 'a');  // a connected socket takes it from there only
  }
  ExpectCaught({V4(8, 8, 8, 8), 53}, Family::kV4, ListenerKind::kDnsTcp);
  ExpectCaught({V6(0x2001, 0x8888), 53}, Family::kV6, ListenerKind::kDnsTcp);
}

TEST_F(InsideTest, AllElseIsRefusedAtOnceAndCounted) {
  Open();
  uint64_t before = Refused();
  for (const Peer& to : {Peer{V4(8, 8, 8, 8), 443}, Peer{V6(0x2001, 7), 443},
                         Peer{V4(255, 255, 255, 255), 67}, Peer{V4(10, 0, 0, 1), 5353}}) {
    UniqueFd client;
    const int sent = SendUdp(netns(), to, &client);
    EXPECT_LT(sent, 0) << Text(to);
    EXPECT_NE(sent, -ETIMEDOUT) << Text(to);
    if (sent == -EACCES) continue;  // broadcast without SO_BROADCAST goes no further than that
    EXPECT_GT(Refused(), before) << Text(to);
    before = Refused();
  }
  for (const Address& to : {V4(8, 8, 8, 8), V6(0x2001, 7)}) {
    const int answer = Ping(netns(), to);
    EXPECT_LT(answer, 0);
    EXPECT_NE(answer, -ETIMEDOUT);
    EXPECT_GT(Refused(), before);
    before = Refused();
  }
}

TEST_F(InsideTest, LoopbackInsideIsAsBefore) {
  Open();
  const UniqueFd any_v4 = Listen(netns(), {V4(0, 0, 0, 0), 8080});
  const UniqueFd v6 = Listen(netns(), {kLoopbackV6, 8081});
  for (const Peer& to : {Peer{kLoopbackV4, 8080}, Peer{V4(127, 3, 2, 1), 8080}}) {
    UniqueFd client;
    EXPECT_EQ(Connect(netns(), to, &client), 0) << Text(to);
    EXPECT_TRUE(Accept(any_v4.get()).valid());
  }
  UniqueFd client;
  EXPECT_EQ(Connect(netns(), {kLoopbackV6, 8081}, &client), 0);
  EXPECT_EQ(Connect(netns(), {kLoopbackV4, 9}, &client), -ECONNREFUSED);
  EXPECT_EQ(Ping(netns(), kLoopbackV4), 0);
  EXPECT_EQ(Ping(netns(), kLoopbackV6), 0);
  const UniqueFd udp = BindUdp(netns(), {kLoopbackV4, 7000});
  EXPECT_EQ(SendUdp(netns(), {kLoopbackV4, 7000}, &client), 0);
  EXPECT_EQ(ReceiveByte(udp.get()), 'x');
  EXPECT_EQ(Refused(), 0u);
}

TEST_F(InsideTest, AServerInsideCannotPoseAsOneFarAway) {
  Open();
  const UniqueFd server = Listen(netns(), {V4(0, 0, 0, 0), 443});
  ExpectCaught({V4(192, 0, 2, 33), 443}, Family::kV4, ListenerKind::kCatch);
  EXPECT_EQ(::fcntl(server.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_LT(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC), 0);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(InsideTest, ConnectionsAreBounded) {
  Open();
  int connected = 0, refused = 0;
  std::vector<UniqueFd> clients;
  ASSERT_NO_FATAL_FAILURE(RaiseOpenFiles());
  for (uint32_t i = 0; i < kMaxCaughtConnections + 8; ++i) {
    UniqueFd fd;
    const int result = Connect(netns(), {V4(192, 0, 2, 33), 443}, &fd);
    ++(result == 0 ? connected : refused);
    EXPECT_NE(result, -ETIMEDOUT);
    clients.push_back(std::move(fd));
    if (result != 0) break;
    clients.push_back(Accept(Of(ListenerKind::kCatch, Family::kV4)));
  }
  EXPECT_EQ(refused, 1);
  EXPECT_LE(connected, static_cast<int>(kMaxCaughtConnections));
  EXPECT_GE(connected, static_cast<int>(kMaxCaughtConnections) / 2);
  // Those inside are no part of it.
  const UniqueFd server = Listen(netns(), {kLoopbackV4, 8080});
  UniqueFd client;
  EXPECT_EQ(Connect(netns(), {kLoopbackV4, 8080}, &client), 0);
}

TEST_F(InsideTest, OpeningTwiceIsOpeningOnceAndClosingClosesAll) {
  Open();
  const Status again = OpenCatch(netns());
  ASSERT_TRUE(again) << again.error().ToString();
  UniqueFd client;
  EXPECT_LT(SendUdp(netns(), {V4(8, 8, 8, 8), 443}, &client), 0);
  EXPECT_EQ(Refused(), 1u);
  ExpectCaught(kFarV4[0], Family::kV4, ListenerKind::kCatch);
  for (int i = 0; i < 2; ++i) {
    const Status closed = CloseCatch(netns());
    ASSERT_TRUE(closed) << closed.error().ToString();
    EXPECT_EQ(Connect(netns(), kFarV4[0], &client), -ENETUNREACH);
    EXPECT_EQ(Connect(netns(), kFarV6[0], &client), -ENETUNREACH);
    EXPECT_EQ(SendUdp(netns(), {V4(8, 8, 8, 8), 53}, &client), -ENETUNREACH);
  }
  EXPECT_EQ(Refused(), 1u);
  ASSERT_TRUE(OpenCatch(netns()));
  ExpectCaught(kFarV4[0], Family::kV4, ListenerKind::kCatch);
  ExpectCaught(kFarV6[0], Family::kV6, ListenerKind::kCatch);
}

TEST_F(InsideTest, APreparedNamespaceIsClosedUntilItIsOpened) {
  auto ready = MakeNetns(NetnsKind::kCatch);
  ASSERT_TRUE(ready) << ready.error().ToString();
  netns_ = std::move(*ready);
  UniqueFd client;
  EXPECT_EQ(Connect(netns(), kFarV4[0], &client), -ENETUNREACH);
  Open();
  ExpectCaught(kFarV4[0], Family::kV4, ListenerKind::kCatch);
}

TEST_F(InsideTest, NothingIsLeftInTheCallersNamespace) {
  const UniqueFd own = *::hutch::Open("/proc/thread-self/ns/net", O_RDONLY);
  Open();
  const auto counters = ReadCatch(own.get());
  EXPECT_FALSE(counters);
  EXPECT_EQ(counters.error().code, Code::kNotFound);
  UniqueFd client;
  EXPECT_EQ(Connect(own.get(), kFarV4[0], &client), -ENETUNREACH);
}

TEST_F(InsideTest, AHalfMadeCatchIsNone) {
  // With lo down the routes cannot be made.
  ASSERT_EQ(Command(netns(), "ip link set lo down"), 0);
  EXPECT_FALSE(OpenCatch(netns()));
  ASSERT_EQ(Command(netns(), "ip link set lo up"), 0);
  UniqueFd client;
  EXPECT_EQ(Connect(netns(), kFarV4[0], &client), -ENETUNREACH);
  EXPECT_EQ(Connect(netns(), kFarV6[0], &client), -ENETUNREACH);
}

TEST_F(InsideTest, ListenersAreTheAskedOnesAndTellAPortThatIsTaken) {
  auto made = MakeListeners(netns(), {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp});
  ASSERT_TRUE(made) << made.error().ToString();
  EXPECT_THAT(*made, SizeIs(4));
  UniqueFd client;
  EXPECT_EQ(Connect(netns(), {kLoopbackV4, kProxyPort}, &client), -ECONNREFUSED);
  const UniqueFd taken = Listen(netns(), {V4(0, 0, 0, 0), kProxyPort});
  const auto refused = MakeListeners(netns(), {ListenerKind::kProxy});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBadState);
  EXPECT_NE(refused.error().what.find("3128"), std::string::npos);
}

TEST_F(InsideTest, ListenersCanBeMadeAnewWhileConnectionsLinger) {
  Open();
  UniqueFd client;
  ASSERT_EQ(Connect(netns(), {kLoopbackV4, kProxyPort}, &client), 0);
  UniqueFd server = Accept(Of(ListenerKind::kProxy, Family::kV4));
  server.reset();  // ours first: it is ours that lingers
  client.reset();
  listeners_.clear();
  const auto anew = MakeListeners(netns(), {ListenerKind::kProxy});
  EXPECT_TRUE(anew) << anew.error().ToString();
}

TEST_F(InsideTest, ListeningPortsAreTheTenants) {
  Open();
  auto none = ListeningPorts(netns());
  ASSERT_TRUE(none) << none.error().ToString();
  EXPECT_THAT(*none, IsEmpty());
  const UniqueFd a = Listen(netns(), {V4(0, 0, 0, 0), 8080});
  const UniqueFd b = Listen(netns(), {kLoopbackV6, 8081});
  const auto ports = ListeningPorts(netns());
  ASSERT_TRUE(ports) << ports.error().ToString();
  ASSERT_THAT(*ports, SizeIs(2));
  EXPECT_EQ((*ports)[0].port, 8080);
  EXPECT_EQ((*ports)[0].address, Address{});
  EXPECT_NE((*ports)[0].inode, 0u);
  EXPECT_EQ((*ports)[1].port, 8081);
  EXPECT_EQ((*ports)[1].address, kLoopbackV6);
}

TEST_F(InsideTest, TheThreadIsBackInItsOwnWhateverHappens) {
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat("/proc/thread-self/ns/net", &before), 0);
  Open();
  EXPECT_FALSE(SocketIn(netns(), 12345, SOCK_STREAM));
  EXPECT_FALSE(MakeListeners(netns(), {ListenerKind::kProxy}));
  EXPECT_FALSE(OpenCatch(::hutch::Open("/dev/null", O_RDONLY)->get()));
  ASSERT_EQ(::stat("/proc/thread-self/ns/net", &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

}  // namespace
}  // namespace hutch::network
