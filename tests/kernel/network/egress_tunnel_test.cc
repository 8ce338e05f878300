// CONNECT and SOCKS5: who is let through, and what must be spoken then.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "tests/kernel/network/egress_fixture.h"

namespace hutch::network {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class EgressTunnel : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    names_->Set("good.test", {kServer});
    names_->Set("same.test", {kServer});
    names_->Set("six.test", {kServerV6});
    origin_->Serve({kServer, 443}, Manner::kEcho);
    origin_->Serve({kServer, 22}, Manner::kGreet);
    origin_->Serve({kServerV6, 443}, Manner::kEcho);
  }
  static std::string SocksName(const std::string& name, uint16_t port) {
    return std::string("\x05\x01\x00\x05\x01\x00\x03", 7) + static_cast<char>(name.size()) + name +
           static_cast<char>(port >> 8) + static_cast<char>(port & 0xff);
  }
};

TEST_F(EgressTunnel, TlsForAnAllowedNameIsPassedUnchanged) {
  Allow(R"({"mode":"allowlist","allow":["good.test","six.test"]})");
  const std::string hello = MakeHello("good.test");
  const std::string more = hello + "and what follows";
  EXPECT_EQ(ThroughConnect("good.test:443", more, "follows").text, more);
  const std::string six = MakeHello("six.test");
  EXPECT_EQ(ThroughConnect("six.test:443", six, six).text, six);
  EXPECT_EQ(counters().connections, 2u);
  EXPECT_EQ(counters().sent_bytes, more.size() + six.size());
  EXPECT_EQ(counters().received_bytes, more.size() + six.size());
}

TEST_F(EgressTunnel, AHelloMayComeInPieces) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  UniqueFd fd;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  EXPECT_THAT(
      SayOn(fd.get(), "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", "\r\n\r\n").text,
      HasSubstr("200"));
  const std::string hello = MakeHello("good.test");
  for (const char c : hello) ASSERT_EQ(::send(fd.get(), &c, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(SayOn(fd.get(), "", hello).text, hello);
}

TEST_F(EgressTunnel, ConnectElsewhereIsRefusedWithAReason) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::pair<const char*, const char*> rows[] = {
      {"bad.test:443", "it is not in the allowlist"},
      {"good.test:8443", "port 8443 of it is not in the allowlist"},
      {"11.0.0.2:443", "no address range of the allowlist has it"},
      {"[2600::2]:443", "no address range"},
      {"169.254.169.254:80", "no address range"},
      {"127.0.0.1:22", "no address range"},
      {"sub.good.test:443", "it is not in the allowlist"}};
  for (const auto& [authority, reason] : rows) {
    const Said said = ThroughConnect(authority, "");
    EXPECT_THAT(said.text, AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr(reason),
                                 HasSubstr("hutch net show box"), HasSubstr(authority)));
    EXPECT_EQ(said.end, Said::End::kClosed) << said;
    EXPECT_EQ(AwaitDenial(reason).protocol, "connect");
  }
  EXPECT_EQ(origin_->connections(), 0u);
}

TEST_F(EgressTunnel, FrontingIsRefused) {
  Allow(R"({"mode":"allowlist","allow":["good.test","same.test"]})");
  const Said other = ThroughConnect("good.test:443", MakeHello("same.test"));
  EXPECT_THAT(other.text, StartsWith("\x15\x03")) << other;  // a TLS alert
  EXPECT_EQ(other.end, Said::End::kReset);
  EXPECT_EQ(AwaitDenial("another one than was connected to").host, "same.test");
  ThroughConnect("good.test:443", MakeHello("evil.test"));
  AwaitDenial("another one than was connected to");
  origin_.reset();
}

TEST_F(EgressTunnel, AHelloWithoutAPlainNameIsRefused) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  EXPECT_EQ(ThroughConnect("good.test:443", MakeHello("")).end, Said::End::kReset);
  EXPECT_EQ(AwaitDenial("no server name").protocol, "tls");
  EXPECT_EQ(ThroughConnect("good.test:443", MakeHello("good.test", true)).end, Said::End::kReset);
  AwaitDenial("encrypted ClientHello");
  EXPECT_EQ(ThroughConnect("good.test:443", "GET / HTTP/1.1\r\n\r\n").end, Said::End::kReset);
  AwaitDenial("no TLS");
  EXPECT_EQ(ThroughConnect("good.test:443", MakeHello("11.0.0.2")).end, Said::End::kReset);
  AwaitDenial("no host name");
  for (const std::string& heard : origin_->Heard()) EXPECT_EQ(heard, "");
}

TEST_F(EgressTunnel, AServerThatSpeaksFirstIsHeardOnItsOwnPort) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  EXPECT_EQ(ThroughConnect("good.test:22", "SSH-2.0-client\r\n", "client\r\n").text,
            "SSH-2.0-test\r\nSSH-2.0-client\r\n");
  EXPECT_THAT(ThroughConnect("good.test:443", "").text, HasSubstr("403"));
}

TEST_F(EgressTunnel, TlsOnAnyOtherPortMustNameTheHost) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  const std::string hello = MakeHello("good.test");
  EXPECT_THAT(ThroughConnect("good.test:22", hello, hello).text, HasSubstr(hello));
  EXPECT_EQ(ThroughConnect("good.test:22", MakeHello("evil.test")).end, Said::End::kReset);
  AwaitDenial("another one than was connected to");
}

TEST_F(EgressTunnel, ARangeAllowsItsAddressesAndNoOthers) {
  Allow(R"({"mode":"allowlist","allow":["11.0.0.2/32:22"]})");
  EXPECT_THAT(ThroughConnect("11.0.0.2:22", "x", "x").text, HasSubstr("SSH-2.0-test"));
  EXPECT_THAT(ThroughConnect("11.0.0.3:22", "").text, HasSubstr("403"));
  EXPECT_THAT(ThroughConnect("11.0.0.2:443", "").text, HasSubstr("403"));
}

TEST_F(EgressTunnel, TheHostsOwnAddressesAreClosed) {
  Allow(R"({"mode":"allowlist","allow":["home.test:22","second.test:22"]})");
  Origin home(host_.get());
  home.Serve({kHostOutside, 22}, Manner::kGreet);
  home.Serve({V4(11, 0, 0, 9), 22}, Manner::kGreet);
  names_->Set("home.test", {kHostOutside});
  names_->Set("second.test", {V4(11, 0, 0, 9)});
  for (const char* name : {"home.test:22", "second.test:22"}) {
    EXPECT_THAT(ThroughConnect(name, "").text,
                AllOf(HasSubstr("403"), HasSubstr("an address of the host itself")));
    AwaitDenial("an address of the host itself");
  }
  EXPECT_EQ(home.connections(), 0u);
  Allow(R"({"mode":"allowlist","allow":["home.test:22","11.0.0.1/32:22"]})");
  EXPECT_THAT(ThroughConnect("home.test:22", "x", "x").text, HasSubstr("SSH-2.0-test"));
}

TEST_F(EgressTunnel, SocksIsJudgedAlike) {
  Allow(R"({"mode":"allowlist","allow":["good.test","good.test:22"]})");
  const std::string literal("\x05\x01\x00\x05\x01\x00\x01\x0b\x00\x00\x02\x00\x16", 13);
  const std::string granted("\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
  const std::string denied("\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", 12);
  EXPECT_EQ(Proxy(literal).text, denied);  // before the name was asked for
  EXPECT_EQ(Proxy(SocksName("good.test", 22), "test\r\n").text, granted + "SSH-2.0-test\r\n");
  const Said said = Proxy(SocksName("bad.test", 443));
  EXPECT_EQ(said.text, denied);
  EXPECT_EQ(said.end, Said::End::kClosed);
  EXPECT_EQ(AwaitDenial("not in the allowlist").protocol, "socks");
  EXPECT_EQ(Resolve("good.test").code, 0);  // as clients do that resolve themselves
  EXPECT_EQ(Proxy(literal, "test\r\n").text, granted + "SSH-2.0-test\r\n");
  EXPECT_EQ(Proxy(SocksName("good.test", 443) + MakeHello("evil.test")).end, Said::End::kReset);
}

TEST_F(EgressTunnel, OtherSocksIsRefused) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  EXPECT_EQ(Proxy(std::string("\x04\x01\x00\x16\x0b\x00\x00\x02\x00", 9)).text,
            std::string("\x00\x5b\x00\x00\x00\x00\x00\x00", 8));
  EXPECT_EQ(Proxy(std::string("\x05\x01\x02", 3)).text, "\x05\xff");  // with a password only
  EXPECT_EQ(Proxy(std::string("\x05\x01\x00\x05\x02\x00\x01\x0b\x00\x00\x02\x00\x16", 13)).text,
            std::string("\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", 12));  // BIND
  EXPECT_EQ(origin_->connections(), 0u);
}

TEST_F(EgressTunnel, AServerThatIsNotThereIsSaidSo) {
  Allow(R"({"mode":"allowlist","allow":["good.test:9","missing.test"]})");
  EXPECT_THAT(ThroughConnect("good.test:9", "").text,
              AllOf(StartsWith("HTTP/1.1 502 "), HasSubstr("refused")));
  EXPECT_THAT(ThroughConnect("missing.test:443", "").text,
              AllOf(StartsWith("HTTP/1.1 502 "), HasSubstr("no such name")));
  EXPECT_EQ(counters().failed, 2u);
  EXPECT_EQ(counters().denied, 0u);
}

TEST_F(EgressTunnel, AnotherAddressIsTriedWhenOneDoesNotAnswer) {
  Allow(R"({"mode":"allowlist","allow":["two.test:22"]})");
  names_->Set("two.test", {kOther, kServer});  // nothing listens on the first
  EXPECT_THAT(ThroughConnect("two.test:22", "x", "x").text, HasSubstr("SSH-2.0-test"));
}

TEST_F(EgressTunnel, HalfClosedConnectionsGoOnInTheOtherDirection) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  UniqueFd fd;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  SayOn(fd.get(), "CONNECT good.test:22 HTTP/1.1\r\nHost: good.test:22\r\n\r\n", "test\r\n");
  ASSERT_EQ(::send(fd.get(), "last", 4, MSG_NOSIGNAL), 4);
  ASSERT_EQ(::shutdown(fd.get(), SHUT_WR), 0);
  const Said said = SayOn(fd.get(), "");
  EXPECT_EQ(said.text, "last");
  EXPECT_EQ(said.end, Said::End::kClosed);
}

}  // namespace
}  // namespace hutch::network
