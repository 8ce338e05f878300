#include "network/open_network.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "network/links.h"
#include "network/netns.h"
#include "tests/kernel/network/internet_fixture.h"

namespace hutch::network {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OpenNetworkTest : public InternetTest {
 protected:
  void SetUp() override {
    InternetTest::SetUp();
    Start();
  }
  // A refusal that does not have to be waited for.
  static bool AtOnce(int result) { return result < 0 && result != -ETIMEDOUT; }
  std::string HostState() {
    return Output(host_.get(),
                  "ip -o link | grep -c hutch; ip route | grep hutch; ip -6 route | grep hutch; "
                  "nft list table inet hutch | grep -v handle | sed 's/counter packets.*//'");
  }
};

Policy Opening(const Address& base, uint8_t bits, uint16_t first, uint16_t last) {
  Policy policy;
  policy.mode = Mode::kOpen;
  Rule rule;
  rule.cidr = Cidr{.base = base, .bits = bits};
  rule.ports = {{first, last}};
  policy.allow.push_back(rule);
  return policy;
}

TEST_F(OpenNetworkTest, ReachesTheInternetAndIsMasqueraded) {
  const int a = Add("a");
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  EXPECT_EQ(TalkUdp(netns(a), kPublicV4), 0);
  EXPECT_EQ(Ping(netns(a), kPublicV4), 0);
  EXPECT_EQ(TalkTcp(netns(a), kPublicV6), 0);
  EXPECT_EQ(TalkUdp(netns(a), kPublicV6), 0);
  EXPECT_EQ(Ping(netns(a), kPublicV6), 0);
  UniqueFd client;
  ASSERT_EQ(Connect(netns(a), {kPublicV4, kTcpPort}, &client), 0);
  const UniqueFd server = Accept(servers_[0].tcp.get());
  EXPECT_EQ(PeerOf(server.get()).address, kHostV4);
  const OpenCounters counters = Counters("a");
  EXPECT_GT(counters.sent_packets, 6u);
  EXPECT_GT(counters.received_packets, 6u);
  EXPECT_GT(counters.sent_bytes, 6u * 40);
  EXPECT_EQ(counters.denied_packets, 0u);
}

TEST_F(OpenNetworkTest, PrivateRangesAreRefusedAtOnceAndCounted) {
  for (const Address& to : {kPrivateV4, kMetadataV4, kSharedV4, kPrivateV6}) {
    SCOPED_TRACE(Text({to, 0}));
    const std::string id = to.ToString();
    const int a = Add(id);  // for each: the kernel answers a few refusals at once, the rest slowly
    EXPECT_EQ(TalkTcp(netns(a), to), -ECONNREFUSED);
    EXPECT_TRUE(AtOnce(TalkUdp(netns(a), to)));
    EXPECT_TRUE(AtOnce(Ping(netns(a), to)));
    EXPECT_GE(Counters(id).denied_packets, 3u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(TalkTcp(netns(a), to), -ECONNREFUSED);
    EXPECT_EQ(Counters(id).sent_packets, 0u);
  }
}

TEST_F(OpenNetworkTest, ARuleOpensItsRangeAndPortsAndNothingElse) {
  const int a = Add("a", Opening(V4(10, 1, 2, 0), 120, 3990, kTcpPort)), b = Add("b");
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);
  EXPECT_TRUE(AtOnce(TalkUdp(netns(a), kPrivateV4)));  // the next port
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kMetadataV4)));
  EXPECT_TRUE(AtOnce(TalkTcp(netns(b), kPrivateV4)));  // another sandbox
  // Changed live, open connections included.
  UniqueFd client;
  ASSERT_EQ(Connect(netns(a), {kPrivateV4, kTcpPort}, &client), 0);
  ASSERT_TRUE(network_->Change("a", Opening(V6(0xfd11, 0), 16, 1, 65535)));
  ASSERT_EQ(SendByte(client.get()), 0);
  EXPECT_EQ(ReceiveByte(client.get()), -ECONNRESET);
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kPrivateV4)));
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV6), 0);
  ASSERT_TRUE(network_->Change("a", {}));
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kPrivateV6)));
}

TEST_F(OpenNetworkTest, OverlappingRulesAreOneUnion) {
  Policy policy = Opening(V4(10, 0, 0, 0), 104, 1, 4000);
  for (const Rule& more : Opening(V4(10, 1, 0, 0), 112, 3000, 4001).allow)
    policy.allow.push_back(more);
  for (const Rule& more : Opening(V4(10, 1, 2, 3), 128, 1, 65535).allow)
    policy.allow.push_back(more);
  const int a = Add("a", policy);
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);
  EXPECT_EQ(TalkUdp(netns(a), kPrivateV4), 0);
}

TEST_F(OpenNetworkTest, TheHostAndOtherSandboxesAreClosed) {
  const int a = Add("a"), b = Add("b");
  for (const Address& at : {kHostV4, kHostV6}) Serve(host_.get(), at);
  Serve(netns(b), V4(0, 0, 0, 0));
  Serve(host_.get(), V4(127, 0, 0, 1));
  const std::vector<Address> closed = {kHostV4, kHostV6, V4(169, 254, 1, 1),
                                       leases_[static_cast<size_t>(b)].v4,
                                       leases_[static_cast<size_t>(b)].v6};
  for (const Address& to : closed) {
    SCOPED_TRACE(Text({to, 0}));
    UniqueFd client;
    EXPECT_TRUE(AtOnce(Connect(netns(a), {to, kTcpPort}, &client)));
    EXPECT_TRUE(AtOnce(Ping(netns(a), to)));
  }
  // Even where a rule names them.
  ASSERT_TRUE(network_->Change("a", Opening(V4(100, 96, 0, 0), 112, 1, 65535)));
  UniqueFd client;
  EXPECT_TRUE(AtOnce(Connect(netns(a), {closed[3], kTcpPort}, &client)));
  // Nor does the host's own traffic go in.
  EXPECT_LT(Connect(host_.get(), {closed[3], kTcpPort}, &client), 0);
}

TEST_F(OpenNetworkTest, ASourceThatIsNotItsOwnIsDropped) {
  const int a = Add("a"), b = Add("b");
  const OpenLease& other = leases_[static_cast<size_t>(b)];
  ASSERT_EQ(Command(netns(a), "ip addr add " + other.v4.ToString() + "/32 dev eth0; ip addr add " +
                                  other.v6.ToString() + "/128 dev eth0 nodad"),
            0);
  const uint64_t before = Counters("a").denied_packets;
  const std::string send =
      "/usr/bin/python3 -c \"import socket\n"
      "for f,a,t in ((2,'" +
      other.v4.ToString() + "','8.8.8.8'),(10,'" + other.v6.ToString() +
      "','2606::8')):\n"
      " s=socket.socket(f,socket.SOCK_DGRAM); s.bind((a,0)); s.sendto(b'x',(t,4001))\"";
  ASSERT_EQ(Command(netns(a), send), 0);
  EXPECT_EQ(Counters("a").denied_packets, before + 2);
  EXPECT_EQ(Counters("b").sent_packets, 0u);
  EXPECT_EQ(TalkUdp(netns(b), kPublicV4), 0);
}

TEST_F(OpenNetworkTest, ByteQuotasHoldForBothDirectionsAndEveryConnection) {
  Policy policy;
  policy.limits.total_bytes = 3000;
  const int a = Add("a", policy), b = Add("b");
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  int talks = 0;
  while (talks < 100 && TalkTcp(netns(a), kPublicV4) == 0) ++talks;
  EXPECT_LT(talks, 10);
  EXPECT_LE(Counters("a").sent_bytes + Counters("a").received_bytes, 3000u + 120);
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kPublicV4)));
  EXPECT_TRUE(AtOnce(TalkUdp(netns(a), kPublicV6)));
  EXPECT_EQ(TalkTcp(netns(b), kPublicV4), 0);
  // More is allowed: what has passed still counts.
  policy.limits.total_bytes = 3500;
  ASSERT_TRUE(network_->Change("a", policy));
  EXPECT_EQ(TalkUdp(netns(a), kPublicV4), 0);
  talks = 0;
  while (talks < 100 && TalkTcp(netns(a), kPublicV4) == 0) ++talks;
  EXPECT_LT(talks, 3);
}

TEST_F(OpenNetworkTest, ConnectionsAreBoundedForEach) {
  Policy policy;
  policy.limits.connections = 3;
  const int a = Add("a", policy), b = Add("b");
  std::vector<UniqueFd> clients(5);
  int open = 0;
  for (UniqueFd& client : clients) open += Connect(netns(a), {kPublicV4, kTcpPort}, &client) == 0;
  EXPECT_EQ(open, 3);
  EXPECT_EQ(TalkTcp(netns(b), kPublicV6), 0);
  // Also when the kernel has collected garbage in between: idle for two rounds of it.
  policy.limits.connections = 2;
  const int idle = Add("idle", policy);
  ::sleep(3);
  for (int i = 0; i < 3; ++i) {
    UniqueFd& client = clients.emplace_back();
    EXPECT_EQ(Connect(netns(idle), {kPublicV4, kTcpPort}, &client) == 0, i < 2);
  }
  policy.limits.connections = 4;
  ASSERT_TRUE(network_->Change("a", policy));
  EXPECT_EQ(Connect(netns(a), {kPublicV6, kTcpPort}, &clients[3]), 0);
}

TEST_F(OpenNetworkTest, AttachIsUndoneWholeWhicheverStepFails) {
  Add("warm");
  const std::string before = HostState();
  {
    const UniqueFd netns = *MakeNetns();  // the pair: its inner name is taken
    ASSERT_EQ(Command(netns.get(), "ip link add eth0 type bridge"), 0);
    EXPECT_FALSE(network_->Attach("x", netns.get(), {}));
    EXPECT_EQ(HostState(), before);
  }
  {
    const UniqueFd netns = *MakeNetns();  // addresses and routes inside
    ASSERT_TRUE(network_->Prepare(netns.get()));
    ASSERT_EQ(Command(netns.get(), "ip link set eth0 down"), 0);
    EXPECT_FALSE(network_->Attach("x", netns.get(), {}));
    EXPECT_EQ(HostState(), before);
  }
  {
    const UniqueFd netns = *MakeNetns();  // the policy
    Policy policy;
    Rule rule;
    rule.cidr = Cidr{.base = V4(10, 0, 0, 0), .bits = 104};
    for (int i = 0; i < 5000; ++i)
      rule.ports.push_back({static_cast<uint16_t>(2 * i + 1), static_cast<uint16_t>(2 * i + 1)});
    policy.allow.push_back(rule);
    const auto attached = network_->Attach("x", netns.get(), policy);
    ASSERT_FALSE(attached);
    EXPECT_EQ(attached.error().code, Code::kLimit);
    EXPECT_EQ(HostState(), before);
  }
  {
    const UniqueFd netns = *MakeNetns();  // the link's alias
    EXPECT_FALSE(network_->Attach(std::string(300, 'x'), netns.get(), {}));
    EXPECT_EQ(HostState(), before);
  }
  const UniqueFd netns = *MakeNetns();  // the packet filter
  ASSERT_EQ(Command(host_.get(), "nft delete table inet hutch"), 0);
  EXPECT_FALSE(network_->Attach("x", netns.get(), {}));
  EXPECT_EQ(Output(host_.get(), "ip -o link | grep -c hutch"), "1\n");
}

TEST_F(OpenNetworkTest, DetachShutsAtOnceAndIsIdempotent) {
  const int a = Add("a");
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  ASSERT_TRUE(network_->Detach("a"));
  UniqueFd client;
  EXPECT_EQ(SendUdp(netns(a), {kPublicV4, kUdpPort}, &client), 0);
  char byte;
  EXPECT_LT(::recv(servers_[0].udp.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_TRUE(network_->Detach("a"));
  EXPECT_TRUE(network_->Detach("never"));
  EXPECT_EQ(network_->Count("a").error().code, Code::kNotFound);
  EXPECT_EQ(network_->Change("a", {}).error().code, Code::kNotFound);
}

TEST_F(OpenNetworkTest, WithdrawLeavesNoWayOutAndTheLinkForLater) {
  const int a = Add("a");
  ASSERT_TRUE(network_->Withdraw("a", netns(a)));
  UniqueFd client;
  EXPECT_EQ(Connect(netns(a), {kPublicV4, kTcpPort}, &client), -ENETUNREACH);
  EXPECT_EQ(Connect(netns(a), {kPublicV6, kTcpPort}, &client), -ENETUNREACH);
  const auto again = network_->Attach("a", netns(a), {});
  ASSERT_TRUE(again) << again.error().ToString();
  EXPECT_EQ(again->v4, leases_[0].v4);
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  EXPECT_EQ(TalkUdp(netns(a), kPublicV6), 0);
}

TEST_F(OpenNetworkTest, WithdrawShutsWhatItCannotEmpty) {
  const int a = Add("a");
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(network_->Withdraw("a", nothing.get()));
  UniqueFd client;
  EXPECT_EQ(Connect(netns(a), {kPublicV4, kTcpPort}, &client), -ENETUNREACH);
  EXPECT_EQ(Output(host_.get(), "nft list set inet hutch leases4 | grep -c elements"), "0\n");
  EXPECT_TRUE(network_->Withdraw("a", netns(a)));
  ASSERT_TRUE(network_->Attach("a", netns(a), {}));
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
}

TEST_F(OpenNetworkTest, APreparedNamespaceHasNoAddressUntilItIsAttached) {
  UniqueFd netns = *MakeNetns();
  ASSERT_TRUE(network_->Prepare(netns.get()));
  UniqueFd client;
  EXPECT_EQ(Connect(netns.get(), {kPublicV4, kTcpPort}, &client), -ENETUNREACH);
  ASSERT_TRUE(network_->Attach("a", netns.get(), {}));
  EXPECT_EQ(TalkTcp(netns.get(), kPublicV4), 0);
  EXPECT_EQ(Output(host_.get(), "ip -o link | grep -c hutch"), "1\n");
}

TEST_F(OpenNetworkTest, ANewProcessTakesUpWhatLivesAndRemovesTheRest) {
  Policy policy = Opening(V4(10, 1, 2, 0), 120, 1, 65535);
  policy.limits.total_bytes = 1 << 20;
  const int a = Add("a", policy);
  Add("b", policy);
  UniqueFd prepared = *MakeNetns();
  ASSERT_TRUE(network_->Prepare(prepared.get()));
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);
  const OpenCounters before = Counters("a");
  network_.reset();
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);  // while nobody is there
  Start();
  const auto lost = network_->Recover({"a", "c"});
  ASSERT_TRUE(lost) << lost.error().ToString();
  EXPECT_THAT(*lost, ElementsAre("c"));
  EXPECT_EQ(Output(host_.get(), "ip -o link | grep -c hutch"), "1\n");
  const std::string elements = Output(
      host_.get(), "nft list table inet hutch | grep -c '\"\\?hutch[0-9]\\|0x485\\|^.*1213[0-9]'");
  EXPECT_GT(Counters("a").sent_packets, before.sent_packets);
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);
  EXPECT_EQ(network_->Count("b").error().code, Code::kNotFound);
  ASSERT_TRUE(network_->Change("a", {}));
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kPrivateV4)));
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  const auto none = network_->Recover({});
  ASSERT_TRUE(none) << none.error().ToString();
  EXPECT_THAT(*none, IsEmpty());
  EXPECT_EQ(Output(host_.get(), "ip -o link | grep -c hutch"), "0\n");
  EXPECT_EQ(Output(host_.get(),
                   "nft list table inet hutch | grep 'elements = { 12' | grep -v 'ct count'"),
            "");
}

TEST_F(OpenNetworkTest, AHalfMadeSandboxIsRemovedAsStray) {
  const int a = Add("a");
  // As if hutchd had been killed between the packet filter and the link's alias.
  ASSERT_EQ(Command(host_.get(),
                    "ip link set dev $(ip -o link | grep -o 'hutch[0-9]*' | head -1) "
                    "alias ''"),
            0);
  network_.reset();
  Start();
  const auto lost = network_->Recover({"a"});
  ASSERT_TRUE(lost) << lost.error().ToString();
  EXPECT_THAT(*lost, ElementsAre("a"));
  EXPECT_EQ(Output(host_.get(), "ip -o link | grep -c hutch"), "0\n");
  UniqueFd client;
  EXPECT_LT(Connect(netns(a), {kPublicV4, kTcpPort}, &client), 0);
}

TEST_F(OpenNetworkTest, StartRepairsTheTableAroundWhoIsThere) {
  const int a = Add("a");
  ASSERT_EQ(TalkTcp(netns(a), kPublicV4), 0);
  const OpenCounters before = Counters("a");
  ASSERT_EQ(Command(host_.get(), "nft flush chain inet hutch forward"), 0);
  EXPECT_EQ(TalkTcp(netns(a), kPrivateV4), 0);  // so it is the table that closes it
  Start();
  EXPECT_TRUE(AtOnce(TalkTcp(netns(a), kPrivateV4)));
  network_->Recover({"a"}).value();
  EXPECT_GE(Counters("a").sent_packets, before.sent_packets);
}

class OpenStartTest : public InternetTest {};

TEST_F(OpenStartTest, WithoutForwardingItSaysWhichSysctl) {
  ASSERT_EQ(Command(host_.get(), "sysctl -qw net.ipv4.ip_forward=0"), 0);
  const auto started = OpenNetwork::Start(config());
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::kUnsupported);
  EXPECT_NE(started.error().ToString().find("net.ipv4.ip_forward"), std::string::npos);
}

TEST_F(OpenStartTest, WithoutIpv6ForwardingThereIsNoIpv6Inside) {
  ASSERT_EQ(Command(host_.get(), "sysctl -qw net.ipv6.conf.all.forwarding=0"), 0);
  Start();
  const int a = Add("a");
  EXPECT_EQ(leases_[0].v6, Address{});
  UniqueFd client;
  EXPECT_EQ(Connect(netns(a), {kPublicV6, kTcpPort}, &client), -ENETUNREACH);
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
}

TEST_F(OpenStartTest, AnotherFirewallThatDropsIsNamedUntilItLetsUsPass) {
  ASSERT_EQ(Command(host_.get(),
                    "nft 'table inet strict { chain fence { type filter hook forward "
                    "priority 10; policy drop; }; }'"),
            0);
  const auto started = OpenNetwork::Start(config());
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::kUnsupported);
  EXPECT_NE(started.error().what.find("fence of table inet strict"), std::string::npos);
  // What the hint says helps.
  ASSERT_EQ(Command(host_.get(),
                    "nft insert rule inet strict fence iifname 'hutch*' accept; nft insert rule "
                    "inet strict fence oifname 'hutch*' ct state established,related accept"),
            0);
  Start();
  const int a = Add("a");
  EXPECT_EQ(TalkTcp(netns(a), kPublicV4), 0);
}

}  // namespace
}  // namespace hutch::network
