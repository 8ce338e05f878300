// Settings that change while connections are open, limits, and the program itself.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "network/egress/limits.h"
#include "network/inside.h"
#include "network/netns.h"
#include "oci/json.h"
#include "tests/kernel/network/egress_fixture.h"

namespace hutch::network {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class EgressSettingsTest : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    names_->Set("good.test", {kServer});
    names_->Set("more.test", {kServer});
    origin_->Serve({kServer, 22}, Manner::kGreet);
    origin_->Serve({kServer, 9}, Manner::kMute);
    origin_->Serve({kServer, 80}, Manner::kHttp);
  }
  // A connection that is open and has said something.
  UniqueFd OpenTunnel(const std::string& authority) {
    UniqueFd fd;
    EXPECT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
    EXPECT_THAT(
        SayOn(fd.get(), "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n",
              "SSH-2.0-test\r\n")
            .text,
        HasSubstr("200"));
    return fd;
  }
  // One more connection is reset, maybe so soon that connect(2) tells it.
  void ExpectReset() {
    UniqueFd fd;
    const int connected = Connect(box(), {kLoopbackV4, kProxyPort}, &fd);
    EXPECT_EQ(connected == 0 ? ReceiveByte(fd.get()) : connected, -ECONNRESET);
  }
  std::string StatusField(const std::string& name) {
    const auto text =
        ReadFile("/proc/" + std::to_string(client_->process().pid()) + "/status", 1 << 16);
    EXPECT_TRUE(text);
    for (const std::string& line : Split(*text, '\n'))
      if (line.starts_with(name + ":")) return std::string(Trim(line.substr(name.size() + 1)));
    return "missing";
  }
};

TEST_F(EgressSettingsTest, NarrowerOnesCloseWhatTheyDoNotAllow) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22","more.test:22"]})");
  const UniqueFd good = OpenTunnel("good.test:22"), more = OpenTunnel("more.test:22");
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  EXPECT_EQ(ReceiveByte(more.get()), -ECONNRESET);
  EXPECT_EQ(SayOn(good.get(), "still", "still").text, "still");
  EXPECT_EQ(AwaitDenial("settings have changed").host, "more.test");
  Allow(R"({"mode":"none"})");
  EXPECT_EQ(ReceiveByte(good.get()), -ECONNRESET);
}

TEST_F(EgressSettingsTest, ARangeThatIsGoneClosesWhatOnlyItOpened) {
  const Address inner = V4(10, 0, 0, 2);
  names_->Set("inner.test", {inner});
  origin_->Serve({inner, 22}, Manner::kGreet);
  origin_->Serve({inner, 80}, Manner::kHttp);
  Allow(
      R"({"mode":"allowlist","allow":["good.test:22","inner.test:22","inner.test:80","10.0.0.0/24:22","10.0.0.0/24:80"]})");
  const UniqueFd good = OpenTunnel("good.test:22"), tunnel = OpenTunnel("inner.test:22");
  UniqueFd kept;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &kept), 0);
  const std::string request = "GET http://inner.test/ HTTP/1.1\r\nHost: inner.test\r\n\r\n";
  EXPECT_THAT(SayOn(kept.get(), request, "keep-alive\r\n\r\n\r\n").text,
              StartsWith("HTTP/1.1 200"));
  Allow(R"({"mode":"allowlist","allow":["good.test:22","inner.test:22","inner.test:80"]})");
  EXPECT_EQ(ReceiveByte(tunnel.get()), -ECONNRESET);
  EXPECT_EQ(SayOn(good.get(), "still", "still").text, "still");
  EXPECT_EQ(AwaitDenial("settings have changed").host, "inner.test");
  EXPECT_THAT(SayOn(kept.get(), request).text,
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("leads to 10.0.0.2")));
}

TEST_F(EgressSettingsTest, NoneListensOnNothing) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  Allow(R"({"mode":"none"})");
  UniqueFd fd;
  EXPECT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), -ECONNREFUSED);
  EXPECT_EQ(Connect(box(), {kLoopbackV4, 53}, &fd), -ECONNREFUSED);
}

TEST_F(EgressSettingsTest, ForgettingClosesAll) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  const UniqueFd open = OpenTunnel("good.test:22");
  ASSERT_TRUE(client_->Forget("box"));
  EXPECT_EQ(ReceiveByte(open.get()), -ECONNRESET);
  UniqueFd fd;
  EXPECT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), -ECONNREFUSED);
  EXPECT_TRUE(client_->Forget("box"));
}

TEST_F(EgressSettingsTest, TheQuotaOfBytesEndsEverything) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"],"limits":{"total_bytes":100000}})");
  const UniqueFd fd = OpenTunnel("good.test:22");
  const Said said = SayOn(fd.get(), std::string(200000, 'x'));
  EXPECT_EQ(said.end, Said::End::kReset);
  EXPECT_EQ(counters().sent_bytes + counters().received_bytes, 100000u);
  AwaitDenial("traffic quota");
  EXPECT_THAT(ThroughConnect("good.test:22", "").text,
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("traffic quota is used up")));
}

TEST_F(EgressSettingsTest, ConnectionsAreBounded) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"],"limits":{"connections":2}})");
  UniqueFd a = OpenTunnel("good.test:22");
  const UniqueFd b = OpenTunnel("good.test:22");
  EXPECT_THAT(ThroughConnect("good.test:22", "").text,
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("2 connections open")));
  a.reset();
  Said said;
  for (int i = 0; i < 200; ++i) {  // until the end of the first has been seen
    said = ThroughConnect("good.test:22", "x", "x");
    if (said.text.find("403") == std::string::npos) break;
    ::usleep(10000);
  }
  EXPECT_THAT(said.text, HasSubstr("SSH-2.0-test"));
}

TEST_F(EgressSettingsTest, IdleConnectionsAreBounded) {
  static_assert(kMaxHalfOpen < kMaxSessions);
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  std::vector<UniqueFd> open(kMaxHalfOpen);
  for (UniqueFd& fd : open) ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  ExpectReset();
  AwaitDenial("too many connections at once");
}

class EgressFewFilesTest : public EgressSettingsTest {
 protected:
  static constexpr rlim_t kFiles = 480;
  void SetUp() override {
    const rlimit few{kFiles, kFiles};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    EgressSettingsTest::SetUp();
  }
};

TEST_F(EgressFewFilesTest, AllSandboxesTogetherAreBoundedAndFewAreServed) {
  static_assert(kFiles / 6 < kMaxHalfOpen && kFiles / 6 > kAssuredSessions);
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  std::vector<UniqueFd> open(kFiles / 6);
  for (UniqueFd& fd : open) ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  ExpectReset();
  AwaitDenial("of all sandboxes together");

  auto other = MakeNetns();
  ASSERT_TRUE(other);
  ASSERT_TRUE(OpenCatch(other->get()));
  auto listeners = MakeListeners(other->get(), {ListenerKind::kProxy});
  ASSERT_TRUE(listeners);
  auto policy =
      ParsePolicy(oci::Json::parse(R"({"mode":"allowlist","allow":["good.test:22"]})"), {});
  ASSERT_TRUE(policy);
  const auto number =
      client_->Set("other", {std::move(*policy), {}, {}}, std::move(*listeners), -1);
  ASSERT_TRUE(number);
  EXPECT_FALSE(Await(EgressEvent::Kind::kApplied).error);
  UniqueFd fd;
  ASSERT_EQ(Connect(other->get(), {kLoopbackV4, kProxyPort}, &fd), 0);
  EXPECT_THAT(SayOn(fd.get(), "CONNECT good.test:22 HTTP/1.1\r\nHost: good.test:22\r\n\r\n",
                    "SSH-2.0-test\r\n")
                  .text,
              HasSubstr("200"));
}

TEST_F(EgressSettingsTest, ARateHoldsBytesBack) {
  Allow(R"({"mode":"allowlist","allow":["good.test:9"],"limits":{"bytes_per_second":1000}})");
  UniqueFd fd;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  SayOn(fd.get(), "CONNECT good.test:9 HTTP/1.1\r\nHost: good.test:9\r\n\r\n", "\r\n\r\n");
  const std::string much(200000, 'x');
  EXPECT_GT(::send(fd.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
  while (counters().sent_bytes < 16384) ::usleep(1000);
  // Three minutes' worth is waiting: of it, no more than the burst and a few seconds' can be gone.
  EXPECT_LT(counters().sent_bytes, 16384u + 20000u);
}

TEST_F(EgressSettingsTest, EqualDenialsAreToldTogether) {
  Allow(R"({"mode":"allowlist","allow":[]})");
  for (int i = 0; i < 50; ++i) Resolve("evil.test");
  EXPECT_EQ(AwaitDenial("not in the allowlist").times, 1u);
  uint64_t more = 0;
  while (more < 49) {
    const uint64_t times = AwaitDenial("not in the allowlist").times;
    ASSERT_GT(times, 0u);
    more += times;
  }
  EXPECT_EQ(counters().denied, 50u);
}

TEST_F(EgressSettingsTest, LongSettingsArriveWhole) {
  std::string rules;
  for (int i = 0; i < 1000; ++i)
    rules += "{\"host\":\"h" + std::to_string(i) + ".test\",\"paths\":[\"/" +
             std::string(200, 'p') + "\"]},";
  Allow(R"({"mode":"allowlist","allow":[)" + rules + R"("good.test:22"]})");
  EXPECT_THAT(ThroughConnect("good.test:22", "x", "x").text, HasSubstr("SSH-2.0-test"));
}

TEST_F(EgressSettingsTest, CountersOutliveTheProgram) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  EXPECT_THAT(ThroughConnect("good.test:22", "x", "x").text, HasSubstr("SSH-2.0-test"));
  const uint64_t sent = counters().sent_bytes;
  EXPECT_EQ(sent, 1u);
  ASSERT_TRUE(client_->process().Signal(SIGKILL));
  Await(EgressEvent::Kind::kEnded);
  UniqueFd fd;
  EXPECT_NE(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);  // nothing is open meanwhile
  auto again = EgressClient::Start(HUTCH_EGRESS);
  ASSERT_TRUE(again) << again.error().ToString();
  client_ = std::move(*again);
  EXPECT_EQ(counters().sent_bytes, sent);
}

TEST_F(EgressSettingsTest, TheProgramHasNothingButSockets) {
  EXPECT_EQ(StatusField("CapPrm"), "0000000000000000");
  EXPECT_EQ(StatusField("CapEff"), "0000000000000000");
  EXPECT_EQ(StatusField("CapBnd"), "0000000000000000");
  EXPECT_EQ(StatusField("NoNewPrivs"), "1");
  EXPECT_EQ(StatusField("Seccomp"), "2");
  EXPECT_EQ(StatusField("Groups"), "");
  EXPECT_EQ(StatusField("Threads"), "1");
  EXPECT_THAT(StatusField("Uid"), ::testing::Not(StartsWith("0\t")));
  const std::string proc = "/proc/" + std::to_string(client_->process().pid());
  const auto names = ListDirectory(proc + "/root/.");
  ASSERT_TRUE(names);
  EXPECT_THAT(*names, ::testing::IsEmpty());
  struct stat own {
  }, its{};
  ASSERT_EQ(::stat("/proc/thread-self/ns/net", &own), 0);
  ASSERT_EQ(::stat((proc + "/ns/net").c_str(), &its), 0);
  EXPECT_EQ(own.st_ino, its.st_ino);  // where its connections begin
}

TEST_F(EgressSettingsTest, TheProgramEndsWithItsOwner) {
  const pid_t pid = client_->process().pid();
  auto process = Pidfd::Open(pid);
  ASSERT_TRUE(process);
  client_.reset();
  EXPECT_TRUE(process->WaitEnded(5000));
}

TEST_F(EgressSettingsTest, AProgramThatIsNotThereIsAnError) {
  EXPECT_FALSE(EgressClient::Start("/nonexistent/hutch-egress"));
}

}  // namespace
}  // namespace hutch::network
