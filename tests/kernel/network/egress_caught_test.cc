// Connections of programs that know of no proxy.
#include <gmock/gmock.h>

#include "network/inside.h"
#include "tests/kernel/network/egress_fixture.h"

namespace hutch::network {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Address kAnywhere = V4(93, 184, 216, 34);

class EgressCaught : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    names_->Set("good.test", {kServer});
    names_->Set("six.test", {kServerV6});
    origin_->Serve({kServer, 443}, Manner::kEcho);
    origin_->Serve({kServer, 80}, Manner::kHttp);
    origin_->Serve({kServer, 22}, Manner::kGreet);
    origin_->Serve({kServerV6, 443}, Manner::kEcho);
    origin_->Serve({kOther, 443}, Manner::kEcho);
  }
};

TEST_F(EgressCaught, TheNameInTlsDecidesNotTheAddress) {
  Allow(R"({"mode":"allowlist","allow":["good.test","six.test"]})");
  const std::string hello = MakeHello("good.test");
  EXPECT_EQ(Say({kServer, 443}, hello, hello).text, hello);
  EXPECT_EQ(Say({kOther, 443}, hello, hello).text, hello);
  EXPECT_EQ(Say({kAnywhere, 443}, hello, hello).text, hello);
  EXPECT_EQ(Say({V6(0x2600, 99), 443}, hello, hello).text, hello);
  const std::string six = MakeHello("six.test");
  EXPECT_EQ(Say({kAnywhere, 443}, six, six).text, six);
  EXPECT_EQ(counters().connections, 5u);
}

TEST_F(EgressCaught, OtherTlsIsReset) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::pair<std::string, const char*> rows[] = {
      {MakeHello("evil.test"), "not in the allowlist"},
      {MakeHello(""), "no server name"},
      {MakeHello("good.test", true), "encrypted ClientHello"},
      {"SSH-2.0-client\r\n", "no TLS"},
      {MakeHello("good.test.evil.test"), "not in the allowlist"}};
  for (const auto& [bytes, reason] : rows) {
    EXPECT_EQ(Say({kServer, 443}, bytes).end, Said::End::kReset) << reason;
    const Denial denial = AwaitDenial(reason);
    EXPECT_EQ(denial.address, "11.0.0.2");
    EXPECT_EQ(denial.port, 443);
  }
  EXPECT_EQ(origin_->connections(), 0u);
}

TEST_F(EgressCaught, PlainHttpGoesWhereItsHostSays) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::string request = "GET /a HTTP/1.1\r\nHost: good.test\r\n\r\n";
  EXPECT_THAT(Say({kAnywhere, 80}, request, "\r\n\r\nGET /a").text, StartsWith("HTTP/1.1 200 "));
  const Said said = Say({kServer, 80}, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
  EXPECT_THAT(said.text, AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("evil.test:80 is denied"),
                               HasSubstr("hutch net show box")));
  AwaitDenial("not in the allowlist");
  EXPECT_THAT(Say({kServer, 80}, "GET / HTTP/1.1\r\nHost: 11.0.0.2\r\n\r\n").text,
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Say({kServer, 80}, "GET / HTTP/1.1\r\nHost: good.test:8080\r\n\r\n").text,
              StartsWith("HTTP/1.1 403 "));
}

TEST_F(EgressCaught, OtherPortsNeedTheAddressOfAnAllowedName) {
  Allow(R"({"mode":"allowlist","allow":["good.test:22"]})");
  EXPECT_EQ(Say({kServer, 22}, "").end, Said::End::kReset);  // not yet known
  EXPECT_EQ(Resolve("good.test").code, 0);
  EXPECT_EQ(Say({kServer, 22}, "x", "x").text, "SSH-2.0-test\r\nx");
  EXPECT_EQ(Say({kOther, 22}, "").end, Said::End::kReset);
  EXPECT_EQ(Say({kServer, 23}, "").end, Said::End::kReset);
  EXPECT_EQ(Say({kServer, 443}, MakeHello("good.test")).end, Said::End::kReset);
}

TEST_F(EgressCaught, AddressesWithoutARangeAreResetAtOnce) {
  Allow(R"({"mode":"allowlist","allow":["good.test","11.0.0.2/32:22"]})");
  EXPECT_EQ(Say({kServer, 22}, "x", "x").text, "SSH-2.0-test\r\nx");
  const std::pair<Address, uint16_t> rows[] = {
      {V4(169, 254, 169, 254), 8080}, {kHostOutside, 22},  {V4(10, 0, 0, 2), 22},
      {V4(192, 168, 1, 1), 5432},     {V6(0xfd00, 1), 22}, {kServerV6, 22}};
  for (const auto& [address, port] : rows) {
    EXPECT_EQ(Say({address, port}, "").end, Said::End::kReset) << address.ToString();
    const Denial denial = AwaitDenial("no address range");
    EXPECT_EQ(denial.address, address.ToString());
    EXPECT_EQ(denial.port, port);
  }
}

TEST_F(EgressCaught, MetadataIsRefusedWithAReason) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  EXPECT_THAT(Say({V4(169, 254, 169, 254), 80},
                  "GET /latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
                  .text,
              StartsWith("HTTP/1.1 403 "));
}

}  // namespace
}  // namespace hutch::network
