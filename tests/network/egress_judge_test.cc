// Yes or no, of settings by value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/egress/judge.h"

namespace hutch::network {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EgressSettings Settings(const std::string& allow) {
  EgressSettings settings;
  const auto json = oci::ParseJson("{\"mode\":\"allowlist\",\"allow\":" + allow + "}");
  settings.policy = ParsePolicy(json.value(), {}).value();
  return settings;
}

TEST(EgressJudge, ThePortSaysWhatMustBeSpoken) {
  const EgressSettings settings = Settings(
      R"(["a.test","a.test:22",{"host":"b.test","ports":[8080],"paths":["/x"]},
          {"host":"c.test","ports":[8080],"secret":"key"}])");
  EXPECT_EQ(JudgeName(settings, "a.test", 80).carrier, Carrier::kHttp);
  EXPECT_EQ(JudgeName(settings, "a.test", 443).carrier, Carrier::kTls);
  EXPECT_EQ(JudgeName(settings, "a.test", 22).carrier, Carrier::kOpaque);
  EXPECT_EQ(JudgeName(settings, "b.test", 8080).carrier, Carrier::kHttp);
  EXPECT_EQ(JudgeName(settings, "c.test", 8080).carrier, Carrier::kHttp);
  EXPECT_THAT(JudgeName(settings, "a.test", 23).reason, HasSubstr("port 23"));
  EXPECT_FALSE(JudgeName(settings, "d.test", 443).allowed);
}

TEST(EgressJudge, ARuleThatBeginsTlsGoesToItsPort) {
  EgressSettings settings =
      Settings(R"([{"host":"a.test","ports":[80],"secret":"key","tls":"originate"}])");
  settings.secrets["key"] = {"X-Key", "v", {"*.other.test"}};
  RequestHead request;
  request.method = "GET";
  request.path = "/";
  const RequestVerdict verdict = JudgeRequest(settings, request, {"a.test", {}, 80});
  EXPECT_TRUE(verdict.allowed);
  EXPECT_TRUE(verdict.tls);
  EXPECT_EQ(verdict.upstream.port, 443);
  EXPECT_EQ(verdict.asked.port, 80);
  EXPECT_FALSE(verdict.secret);  // it is not for this host
}

TEST(EgressJudge, ASecretIsNotEchoed) {
  EgressSettings settings = Settings(R"([{"host":"a.test","secret":"key"},"b.test"])");
  settings.secrets["key"] = {"X-Key", "v", {"a.test"}};
  RequestHead request;
  request.path = "/";
  for (const char* method : {"TRACE", "TRACK", "trace"}) {
    request.method = method;
    EXPECT_THAT(JudgeRequest(settings, request, {"a.test", {}, 80}).reason, HasSubstr("secret"));
    EXPECT_TRUE(JudgeRequest(settings, request, {"b.test", {}, 80}).allowed);
  }
  request.method = "GET";
  EXPECT_TRUE(JudgeRequest(settings, request, {"a.test", {}, 80}).secret);
}

TEST(EgressJudge, AMemberOfANetworkIsNotReachedThroughUs) {
  EgressSettings settings = Settings("[]");
  settings.hosts["web"] = {};
  EXPECT_THAT(JudgeName(settings, "web", 80).reason, HasSubstr("joined network"));
}

TEST(EgressJudge, ARangeOpensItsPortsOnly) {
  const EgressSettings settings = Settings(R"(["a.test","10.0.0.0/24:5432"])");
  const Address inside = ParseAddress("10.0.0.5").value(),
                outside = ParseAddress("11.0.0.5").value();
  std::string why;
  EXPECT_THAT(OpenAddresses(settings, {inside, outside}, 5432, &why), ElementsAre(inside, outside));
  EXPECT_THAT(OpenAddresses(settings, {inside, outside}, 443, &why), ElementsAre(outside));
  EXPECT_THAT(why, HasSubstr("10.0.0.5"));
  EXPECT_THAT(OpenAddresses(settings, {inside}, std::nullopt, &why), ElementsAre(inside));
}

}  // namespace
}  // namespace hutch::network
