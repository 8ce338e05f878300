// What names are answered, and with what.
#include <gmock/gmock.h>

#include "network/egress/dns_message.h"
#include "network/egress/limits.h"
#include "tests/kernel/network/egress_fixture.h"

namespace hutch::network {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kOk = 0, kNoSuchName = 3, kRefused = 5;

class EgressNames : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    names_->Set("good.test", {kServer, kServerV6});
    names_->Set("bad.test", {kOther});
  }
};

TEST_F(EgressNames, AllowedOnesAreAnsweredWithWhatTheHostFound) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  for (const bool tcp : {false, true}) {
    const DnsReply v4 = Resolve("GOOD.test", kTypeA, tcp),
                   v6 = Resolve("good.test", kTypeAaaa, tcp);
    EXPECT_EQ(v4.code, kOk);
    EXPECT_THAT(v4.addresses, ElementsAre(kServer));
    EXPECT_THAT(v6.addresses, ElementsAre(kServerV6));
  }
  EXPECT_EQ(counters().names_answered, 4u);
}

TEST_F(EgressNames, TheHostIsAskedOnceAndTheAnswerIsPinned) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  EXPECT_THAT(Resolve("good.test").addresses, ElementsAre(kServer));
  const size_t asked = names_->asked("good.test");
  names_->Set("good.test", {kOther});
  EXPECT_THAT(Resolve("good.test").addresses, ElementsAre(kServer));
  EXPECT_EQ(names_->asked("good.test"), asked);
}

TEST_F(EgressNames, OthersAreRefusedAndNeverAskedFor) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  for (const char* name : {"bad.test", "secret-data.good.test", "test", "good.test.evil.test"}) {
    EXPECT_EQ(Resolve(name).code, kRefused) << name;
    const Denial denial = AwaitDenial("not in the allowlist");
    EXPECT_EQ(denial.host, name);
    EXPECT_EQ(denial.protocol, "dns");
    EXPECT_EQ(names_->asked(name), 0u);
  }
  EXPECT_EQ(counters().names_denied, 4u);
  EXPECT_EQ(counters().denied, 4u);
}

TEST_F(EgressNames, RecordsThatCarryOtherThingsAreEmpty) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  for (const uint16_t type : std::initializer_list<uint16_t>{16, 65, 15, 33, 10}) {
    const DnsReply reply = Resolve("good.test", type);
    EXPECT_EQ(reply.code, kOk) << type;
    EXPECT_THAT(reply.addresses, IsEmpty()) << type;
  }
  EXPECT_EQ(names_->asked("good.test"), 0u);
  EXPECT_EQ(Resolve("good.test", kTypeAny).code, kRefused);
}

TEST_F(EgressNames, NamesThatLeadHomeAreNotAnswered) {
  Allow(R"({"mode":"allowlist","allow":["*.good.test"]})");
  const std::pair<const char*, Address> rows[] = {
      {"loop.good.test", kLoopbackV4},        {"meta.good.test", V4(169, 254, 169, 254)},
      {"private.good.test", V4(10, 0, 0, 2)}, {"shared.good.test", V4(100, 64, 0, 1)},
      {"six.good.test", V6(0xfd00, 1)},       {"loop6.good.test", kLoopbackV6}};
  for (const auto& [name, address] : rows) {
    names_->Set(name, {address});
    const DnsReply reply = Resolve(name, address.is_v4() ? kTypeA : kTypeAaaa);
    EXPECT_EQ(reply.code, kNoSuchName) << name;
    EXPECT_THAT(reply.addresses, IsEmpty());
    EXPECT_EQ(AwaitDenial("rebinding").host, name);
  }
  names_->Set("mixed.good.test", {V4(10, 0, 0, 2), kServer});
  EXPECT_THAT(Resolve("mixed.good.test").addresses, ElementsAre(kServer));
}

TEST_F(EgressNames, ARangeOpensAPrivateAnswer) {
  Allow(R"({"mode":"allowlist","allow":["good.test","10.0.0.0/24:443"]})");
  names_->Set("good.test", {V4(10, 0, 0, 2)});
  EXPECT_THAT(Resolve("good.test").addresses, ElementsAre(V4(10, 0, 0, 2)));
}

TEST_F(EgressNames, NothingIsAllowedByAnEmptyList) {
  Allow(R"({"mode":"allowlist","allow":[]})");
  EXPECT_EQ(Resolve("good.test").code, kRefused);
}

TEST_F(EgressNames, MembersOfJoinedNetworksAreKnownInEveryMode) {
  Allow(R"({"mode":"none","join":["team"]})", {}, {{"web", {V4(10, 9, 0, 2)}}});
  EXPECT_THAT(Resolve("web").addresses, ElementsAre(V4(10, 9, 0, 2)));
  EXPECT_EQ(Resolve("good.test").code, kRefused);
}

TEST_F(EgressNames, OpenAnswersEverything) {
  Allow(R"({"mode":"open"})");
  names_->Set("home.test", {V4(10, 0, 0, 2)});
  EXPECT_THAT(Resolve("bad.test").addresses, ElementsAre(kOther));
  EXPECT_THAT(Resolve("home.test").addresses, ElementsAre(V4(10, 0, 0, 2)));
  EXPECT_EQ(Resolve("missing.test").code, kNoSuchName);
}

TEST_F(EgressNames, TheHostsFileIsKnown) {
  Allow(R"({"mode":"allowlist","allow":["from-hosts.test"]})");
  EXPECT_THAT(Resolve("from-hosts.test").addresses, ElementsAre(kServer));
}

TEST_F(EgressNames, OneSandboxCannotAskWithoutEnd) {
  Allow(R"({"mode":"allowlist","allow":["*.good.test"]})");
  size_t refused = 0;
  for (int i = 0; i < 600 && refused == 0; ++i)
    if (Resolve("n" + std::to_string(i) + ".good.test").code == kRefused) ++refused;
  EXPECT_EQ(refused, 1u);
  AwaitDenial("too many names at once");
}

TEST_F(EgressNames, ConnectionsByTcpAreBounded) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  std::vector<UniqueFd> open(kMaxDnsConnections);
  for (UniqueFd& fd : open) ASSERT_EQ(Connect(box(), {kLoopbackV4, 53}, &fd), 0);
  UniqueFd more;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, 53}, &more), 0);
  EXPECT_EQ(ReceiveByte(more.get()), -EPIPE);
}

}  // namespace
}  // namespace hutch::network
