#include "network/policy.h"

#include <gtest/gtest.h>

namespace hutch::network {
namespace {

Policy Parsed(const std::string& text) {
  const auto policy = ParsePolicy(oci::ParseJson(text).value(), {});
  EXPECT_TRUE(policy.has_value()) << policy.error().what;
  return policy.has_value() ? *policy : Policy{};
}

Policy Listed(const std::string& rules) {
  return Parsed(R"({"mode":"allowlist","allow":[)" + rules + "]}");
}

TEST(PolicyRules, AnEmptyListAllowsNothing) {
  for (const char* text : {R"({})", R"({"mode":"none"})", R"({"mode":"allowlist"})",
                           R"({"mode":"allowlist","allow":[]})"}) {
    const Policy policy = Parsed(text);
    EXPECT_EQ(FindByHost(policy, "pkgs.example.org", 443), nullptr);
    EXPECT_FALSE(AllowsName(policy, "pkgs.example.org"));
    EXPECT_EQ(FindByAddress(policy, ParseAddress("1.1.1.1").value(), 443), nullptr);
    EXPECT_EQ(FindByRequest(policy, "pkgs.example.org", 80, "GET", "/"), nullptr);
  }
}

TEST(PolicyRules, NamesAndPortsMustFit) {
  const Policy policy = Listed(R"("pkgs.example.org", "*.x.org:8080", "db.example.org:5432-5440")");
  EXPECT_NE(FindByHost(policy, "pkgs.example.org", 80), nullptr);
  EXPECT_NE(FindByHost(policy, "pkgs.example.org", 443), nullptr);
  EXPECT_EQ(FindByHost(policy, "pkgs.example.org", 22), nullptr);
  EXPECT_EQ(FindByHost(policy, "www.pkgs.example.org", 443), nullptr);
  EXPECT_NE(FindByHost(policy, "a.x.org", 8080), nullptr);
  EXPECT_EQ(FindByHost(policy, "a.x.org", 443), nullptr);
  EXPECT_EQ(FindByHost(policy, "x.org", 8080), nullptr);
  EXPECT_NE(FindByHost(policy, "db.example.org", 5440), nullptr);
  EXPECT_EQ(FindByHost(policy, "db.example.org", 5441), nullptr);
  EXPECT_TRUE(AllowsName(policy, "a.x.org"));
  EXPECT_FALSE(AllowsName(policy, "x.org"));
}

TEST(PolicyRules, RangesAreForAddressesAlone) {
  const Policy policy = Listed(R"("10.1.0.0/16:5432", "[2001:db8::]/32:443", "::1/128:1-9")");
  const auto at = [](const char* text) { return ParseAddress(text).value(); };
  EXPECT_NE(FindByAddress(policy, at("10.1.2.3"), 5432), nullptr);
  EXPECT_EQ(FindByAddress(policy, at("10.1.2.3"), 443), nullptr);
  EXPECT_EQ(FindByAddress(policy, at("10.2.0.0"), 5432), nullptr);
  EXPECT_NE(FindByAddress(policy, at("2001:db8::7"), 443), nullptr);
  EXPECT_NE(FindByAddress(policy, at("::1"), 9), nullptr);
  EXPECT_EQ(FindByHost(policy, "", 443), nullptr);
  EXPECT_FALSE(AllowsName(policy, ""));
}

TEST(PolicyRules, TheWidestRuleOfANameDecidesConnections) {
  const Policy policy = Listed(
      R"({"host":"a.org","methods":["GET"]}, "*.org.example", {"host":"b.org.example","paths":["/x"]})");
  EXPECT_FALSE(FindByHost(policy, "a.org", 443)->methods.empty());
  EXPECT_TRUE(FindByHost(policy, "b.org.example", 443)->paths.empty());
}

TEST(PolicyRules, ARequestGoesByTheRuleThatAllowsIt) {
  const Policy policy = Listed(R"({"host":"*.a.org","secret":"wide"},
      {"host":"api.a.org","methods":["GET"],"paths":["/v1/*"],"secret":"one"},
      {"host":"api.a.org","methods":["POST"],"paths":["/v1/jobs"],"secret":"two"})");
  EXPECT_EQ(FindByRequest(policy, "api.a.org", 80, "GET", "/v1/x")->secret, "one");
  EXPECT_EQ(FindByRequest(policy, "api.a.org", 80, "POST", "/v1/jobs?x=1")->secret, "two");
  EXPECT_EQ(FindByRequest(policy, "api.a.org", 80, "DELETE", "/v1/x")->secret, "wide");
  EXPECT_EQ(FindByRequest(policy, "api.a.org", 22, "GET", "/v1/x"), nullptr);
}

TEST(PolicyRules, PathsAreComparedAsTheyAreSent) {
  const Policy policy = Listed(R"({"host":"a.org","paths":["/a/b","/pub/*"]})");
  const Rule& rule = policy.allow.at(0);
  for (const char* target : {"/a/b", "/a/b?x=/../y", "/pub/", "/pub/x", "/pub/x/y.z", "/pub/%20"})
    EXPECT_TRUE(AllowsRequest(rule, "GET", target)) << target;
  for (const char* target : {"/a/b/",
                             "/a",
                             "/A/b",
                             "/pub",
                             "/public",
                             "/pub/../a",
                             "/pub/..",
                             "/pub/./x",
                             "/pub//x",
                             "/pub/%2e%2e/x",
                             "/pub/%2E./x",
                             "/pub/x%2fy",
                             "/pub/x%2Fy",
                             "/pub/%5c",
                             "/pub/\\..\\x",
                             "/pub/%252e",
                             "/pub/..;/x",
                             "/pub/x#y",
                             "/pub/x y",
                             "http://a.org/pub/x",
                             "*",
                             "",
                             "pub/x",
                             "//pub/x",
                             "/pub/%00",
                             "/pub/%c0%ae%C0%AE/x",
                             "/pub/%e0%80%ae%E0%80%AE/x",
                             "/pub/%F0%80%80%af/x",
                             "/pub/%f8%80%80%80%af/x",
                             "/pub/%u002e"})
    EXPECT_FALSE(AllowsRequest(rule, "GET", target)) << target;
}

TEST(PolicyRules, MethodsAreExact) {
  const Policy policy = Listed(R"({"host":"a.org","methods":["GET","HEAD"]})");
  const Rule& rule = policy.allow.at(0);
  EXPECT_TRUE(AllowsRequest(rule, "GET", "/any/../thing"));
  EXPECT_TRUE(AllowsRequest(rule, "HEAD", "/"));
  for (const char* method : {"get", "POST", "GET ", "", "GETX"})
    EXPECT_FALSE(AllowsRequest(rule, method, "/")) << method;
}

}  // namespace
}  // namespace hutch::network
