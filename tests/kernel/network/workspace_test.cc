#include "network/workspace.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "network/inside.h"
#include "network/netns.h"
#include "tests/kernel/network/network_fixture.h"

namespace hutch::network {
namespace {

constexpr uint16_t kPort = 5000;

WorkspaceSubnet Subnet(uint8_t third) {
  return {Cidr{.base = V4(10, 77, third, 0), .bits = 120},
          Cidr{.base = V6(static_cast<uint16_t>(0xfd00 + third), 0), .bits = 64}};
}
Member At(uint8_t third, uint8_t last) {
  return {V4(10, 77, third, last), V6(static_cast<uint16_t>(0xfd00 + third), last)};
}

class WorkspaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LeaveTheMachinesNetwork();
    auto made = MakeWorkspace(Subnet(1));
    ASSERT_TRUE(made) << made.error().ToString() << made.error().hint;
    workspace_ = std::move(*made);
    for (UniqueFd* netns : {&a_, &b_, &c_}) *netns = *MakeNetns();
    Join(workspace_, a_, At(1, 2));
    Join(workspace_, b_, At(1, 3));
  }
  static void Join(const UniqueFd& workspace, const UniqueFd& sandbox, const Member& member,
                   const std::string& link = "ws0") {
    const Status joined = JoinWorkspace(workspace.get(), sandbox.get(), link, member);
    ASSERT_TRUE(joined) << joined.error().ToString();
  }
  static bool Talk(const UniqueFd& from, const UniqueFd& to, const Address& address) {
    const UniqueFd listener = Listen(to.get(), {address, kPort});
    UniqueFd client;
    if (Connect(from.get(), {address, kPort}, &client) != 0) return false;
    const UniqueFd server = Accept(listener.get());
    return SendByte(server.get()) == 0 && ReceiveByte(client.get()) == 'x';
  }
  static int Try(const UniqueFd& from, const Address& address) {
    UniqueFd client;
    return Connect(from.get(), {address, kPort}, &client);
  }

  UniqueFd workspace_, a_, b_, c_;
};

TEST_F(WorkspaceTest, MembersSeeEachOther) {
  EXPECT_TRUE(Talk(a_, b_, At(1, 3).v4));
  EXPECT_TRUE(Talk(a_, b_, At(1, 3).v6));
  EXPECT_TRUE(Talk(b_, a_, At(1, 2).v4));
  EXPECT_EQ(Ping(a_.get(), At(1, 3).v4), 0);
  EXPECT_EQ(Ping(a_.get(), At(1, 3).v6), 0);
  EXPECT_TRUE(Talk(a_, a_, At(1, 2).v4));  // itself as well
  EXPECT_TRUE(Talk(a_, a_, At(1, 2).v6));
  const UniqueFd udp = BindUdp(b_.get(), {At(1, 3).v4, kPort});
  UniqueFd client;
  ASSERT_EQ(SendUdp(a_.get(), {At(1, 3).v4, kPort}, &client), 0);
  EXPECT_EQ(ReceiveByte(udp.get()), 'x');
}

TEST_F(WorkspaceTest, NobodyElseIsReachedAndNobodyElseReachesThem) {
  EXPECT_EQ(Try(a_, V4(8, 8, 8, 8)), -ENETUNREACH);
  EXPECT_EQ(Try(a_, V6(0x2606, 8)), -ENETUNREACH);
  const int vacant = Try(a_, At(1, 9).v4);
  EXPECT_LT(vacant, 0);
  EXPECT_NE(vacant, -ETIMEDOUT);
  EXPECT_LT(Try(c_, At(1, 2).v4), 0);
  const UniqueFd other = *MakeWorkspace(Subnet(2));
  Join(other, c_, At(2, 2));
  EXPECT_LT(Try(c_, At(1, 2).v4), 0);
  EXPECT_LT(Try(a_, At(2, 2).v4), 0);
  EXPECT_FALSE(Talk(a_, workspace_, V4(127, 0, 0, 1)));
}

TEST_F(WorkspaceTest, ASandboxCanBeInTwoNetworksWhichStayApart) {
  const UniqueFd other = *MakeWorkspace(Subnet(2));
  Join(other, a_, At(2, 2), "ws1");
  Join(other, c_, At(2, 3));
  EXPECT_TRUE(Talk(a_, c_, At(2, 3).v4));
  EXPECT_TRUE(Talk(a_, b_, At(1, 3).v6));
  EXPECT_LT(Try(b_, At(2, 3).v4), 0);
  EXPECT_LT(Try(c_, At(1, 3).v4), 0);
}

TEST_F(WorkspaceTest, ASourceThatIsNotItsOwnIsDropped) {
  Join(workspace_, c_, At(1, 4));
  ASSERT_EQ(Command(c_.get(),
                    "ip addr add 10.77.1.2/32 dev ws0; ip addr add 9.9.9.9/32 dev ws0; "
                    "ip addr add fd01::2/128 dev ws0 nodad"),
            0);
  const UniqueFd v4 = BindUdp(b_.get(), {At(1, 3).v4, kPort}),
                 v6 = BindUdp(b_.get(), {At(1, 3).v6, kPort});
  ASSERT_EQ(Command(c_.get(),
                    "/usr/bin/python3 -c \"import socket\n"
                    "for f,a,t in ((2,'10.77.1.2','10.77.1.3'),(2,'9.9.9.9','10.77.1.3'),"
                    "(10,'fd01::2','fd01::3')):\n"
                    " s=socket.socket(f,socket.SOCK_DGRAM); s.bind((a,0))\n"
                    " s.sendto(b'x',(t,5000))\""),
            0);
  UniqueFd client;  // the kernel keeps the order: what was sent before has arrived, or never will
  const UniqueFd last = BindUdp(b_.get(), {At(1, 3).v4, 5001});
  ASSERT_EQ(Command(c_.get(), "ip addr del 9.9.9.9/32 dev ws0; ip addr del 10.77.1.2/32 dev ws0"),
            0);
  ASSERT_EQ(SendUdp(c_.get(), {At(1, 3).v4, 5001}, &client), 0);
  EXPECT_EQ(ReceiveByte(last.get()), 'x');
  char byte;
  EXPECT_LT(::recv(v4.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_LT(::recv(v6.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(WorkspaceTest, TheCatchLeavesJoinedNetworksAlone) {
  ASSERT_TRUE(OpenCatch(a_.get()));
  auto listeners = MakeListeners(a_.get(), {ListenerKind::kCatch});
  ASSERT_TRUE(listeners);
  const auto all = [&] {
    EXPECT_TRUE(Talk(a_, b_, At(1, 3).v4));
    EXPECT_TRUE(Talk(a_, b_, At(1, 3).v6));
    EXPECT_TRUE(Talk(b_, a_, At(1, 2).v4));
    EXPECT_TRUE(Talk(b_, a_, At(1, 2).v6));
    EXPECT_TRUE(Talk(a_, a_, At(1, 2).v4));
    EXPECT_TRUE(Talk(a_, a_, At(1, 2).v6));
    UniqueFd client;
    EXPECT_EQ(Connect(a_.get(), {V4(8, 8, 8, 8), 443}, &client), 0);  // caught
    EXPECT_EQ(OriginalDestination(Accept((*listeners)[0].fd.get()).get()).port, 443);
  };
  all();
  // Joined after the catch was opened.
  ASSERT_TRUE(LeaveWorkspace(a_.get(), "ws0"));
  Join(workspace_, a_, At(1, 2));
  all();
}

TEST_F(WorkspaceTest, LeavingEndsItAndIsIdempotent) {
  ASSERT_TRUE(LeaveWorkspace(a_.get(), "ws0"));
  ASSERT_TRUE(LeaveWorkspace(a_.get(), "ws0"));
  EXPECT_EQ(Try(a_, At(1, 3).v4), -ENETUNREACH);
  const int gone = Try(b_, At(1, 2).v4);
  EXPECT_LT(gone, 0);
  EXPECT_NE(gone, -ETIMEDOUT);
  Join(workspace_, c_, At(1, 2));  // another gets the address
  EXPECT_TRUE(Talk(b_, c_, At(1, 2).v4));
}

TEST_F(WorkspaceTest, JoiningIsUndoneWholeWhenItFails) {
  const std::string before = Output(workspace_.get(), "ip -o link; ip route; nft list ruleset");
  const std::string links = Output(c_.get(), "ip -o link");  // lo, and what a kernel puts beside it
  EXPECT_EQ(JoinWorkspace(workspace_.get(), c_.get(), "ws0", At(1, 2)).error().code, Code::kExists);
  EXPECT_EQ(JoinWorkspace(workspace_.get(), a_.get(), "ws0", At(1, 9)).error().code, Code::kExists);
  EXPECT_EQ(JoinWorkspace(workspace_.get(), c_.get(), "ws0", At(2, 9)).error().code,
            Code::kInvalidArgument);
  EXPECT_FALSE(JoinWorkspace(workspace_.get(), c_.get(), "a name that is too long", At(1, 9)));
  EXPECT_FALSE(JoinWorkspace(c_.get(), a_.get(), "ws1", At(1, 9)));
  ASSERT_EQ(Command(c_.get(), "sysctl -qw net.ipv6.conf.default.disable_ipv6=1"), 0);
  EXPECT_FALSE(JoinWorkspace(workspace_.get(), c_.get(), "ws0", At(1, 9)));
  EXPECT_EQ(Output(workspace_.get(), "ip -o link; ip route; nft list ruleset"), before);
  EXPECT_EQ(Output(c_.get(), "ip -o link"), links);
}

}  // namespace
}  // namespace hutch::network
