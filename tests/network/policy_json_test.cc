#include <gtest/gtest.h>

#include "network/limits.h"
#include "network/policy.h"

namespace hutch::network {
namespace {

using oci::Json;

Presets SomePresets() {
  const Json json =
      oci::ParseJson(R"({"mode":"allowlist","allow":["deb.example.org:80","pypi.example.org"]})")
          .value();
  return {{"packages", ParsePolicy(json, {}).value().allow}};
}

Result<Policy> Parse(const std::string& text) {
  return ParsePolicy(oci::ParseJson(text).value(), SomePresets());
}

Error Refusal(const std::string& text) {
  const auto policy = Parse(text);
  return policy.has_value() ? Error{.what = "taken"} : policy.error();
}

std::string Rules(const std::string& rules) {
  return R"({"mode":"allowlist","allow":[)" + rules + "]}";
}

TEST(PolicyJson, EveryFormOfARuleIsRead) {
  const Policy policy = Parse(Rules(R"("pkgs.example.org", "*.x.org:8080", "10.1.0.0/16:5432-5440",
      "[2001:db8::]/32:443", "preset:packages",
      {"host":"API.a.org","ports":[80,"8000-8010"],"methods":["GET"],"paths":["/v1/*"],
       "secret":"token","tls":"originate"}, {"cidr":"10.2.0.0/16"})"))
                            .value();
  ASSERT_EQ(policy.allow.size(), 8u);
  EXPECT_EQ(policy.allow[0].ports.size(), 2u);
  EXPECT_EQ(policy.allow[1].host, "*.x.org");
  EXPECT_EQ(policy.allow[2].cidr->ToString(), "10.1.0.0/16");
  EXPECT_EQ(policy.allow[2].ports[0].last, 5440);
  EXPECT_EQ(policy.allow[2].origin, "10.1.0.0/16:5432-5440");
  EXPECT_EQ(policy.allow[4].origin, "preset:packages");
  EXPECT_EQ(policy.allow[6].host, "api.a.org");
  EXPECT_TRUE(policy.allow[6].originate_tls);
  EXPECT_EQ(policy.allow[6].secret, "token");
  EXPECT_EQ(policy.presets, std::vector<std::string>{"packages"});
}

TEST(PolicyJson, WhatIsPrintedIsReadAgainWithoutPresets) {
  for (
      const std::string& text :
      {std::string("{}"), std::string(R"({"mode":"open","join":["ws","b"],"allow":["10.0.0.0/8:22"],
        "limits":{"bytes_per_second":7,"total_bytes":8,"connections":9}})"),
       Rules(
           R"("preset:packages","preset:packages",{"host":"a.org","ports":["1-65535"],"tls":"originate"})")}) {
    const Json printed = PolicyJson(Parse(text).value());
    const auto again = ParsePolicy(printed, {});
    ASSERT_TRUE(again.has_value()) << again.error().what;
    EXPECT_EQ(PolicyJson(*again), printed);
  }
  const Policy open =
      Parse(R"({"mode":"open","allow":["preset:packages","10.0.0.0/8:22"]})").value();
  ASSERT_EQ(open.allow.size(), 1u);
  EXPECT_TRUE(open.allow[0].cidr.has_value());
}

TEST(PolicyJson, RefusalsNameTheFieldAndTheReason) {
  const std::tuple<std::string, const char*, const char*> kTable[] = {
      {Rules(R"("a.org","*")"), "network.allow[1]", "every name"},
      {Rules(R"("*.com")"), "network.allow[0]", "lets in everybody"},
      {Rules(R"("https://a.org")"), "network.allow[0]", "is a URL"},
      {Rules(R"("https://a.org:443/x")"), "network.allow[0]", "is a URL"},
      {Rules(R"("a.org/x:80")"), "network.allow[0]", "has a path"},
      {Rules(R"("[fe80::1%eth0]/128")"), "network.allow[0]", "zone"},
      {Rules(R"("fe80::1%eth0")"), "network.allow[0]", "zone"},
      {Rules(R"("[fe80::1%eth0]:80")"), "network.allow[0]", "zone"},
      {Rules(R"("10.0.0.1")"), "network.allow[0]", "is an address"},
      {Rules(R"("10.0.0.1:80")"), "network.allow[0]", "is an address"},
      {Rules(R"("::1")"), "network.allow[0]", "is an address"},
      {Rules(R"("[::1]:80")"), "network.allow[0]", "is an address"},
      {Rules(R"("0.0.0.0/0")"), "network.allow[0]", "among others"},
      {Rules(R"("a.org:")"), "network.allow[0]", "port"},
      {Rules(R"("a.org:0")"), "network.allow[0]", "port"},
      {Rules(R"("a.org:65536")"), "network.allow[0]", "port"},
      {Rules(R"("a.org:90-80")"), "network.allow[0]", "port"},
      {Rules(R"("a.org:80,443")"), "network.allow[0]", "port"},
      {Rules(R"("a.org:*")"), "network.allow[0]", "port"},
      {Rules(R"("")"), "network.allow[0]", "empty"},
      {Rules("7"), "network.allow[0]", "string or an object"},
      {Rules("{}"), "network.allow[0]", "either"},
      {Rules(R"({"host":"a.org","cidr":"10.0.0.0/8"})"), "network.allow[0]", "either"},
      {Rules(R"({"host":"a.org:80"})"), "network.allow[0].host", "characters"},
      {Rules(R"({"host":"a.org","ports":[]})"), "network.allow[0].ports", "ports"},
      {Rules(R"({"host":"a.org","ports":[0]})"), "network.allow[0].ports", "ports"},
      {Rules(R"({"host":"a.org","ports":[-1]})"), "network.allow[0].ports", "ports"},
      {Rules(R"({"host":"a.org","methods":["get"]})"), "network.allow[0].methods", "methods"},
      {Rules(R"({"host":"a.org","methods":["CONNECT"]})"), "network.allow[0].methods", "methods"},
      {Rules(R"({"host":"a.org","paths":["a"]})"), "network.allow[0].paths", "paths"},
      {Rules(R"({"host":"a.org","paths":["/a/../b"]})"), "network.allow[0].paths", "paths"},
      {Rules(R"({"host":"a.org","paths":["/a*"]})"), "network.allow[0].paths", "paths"},
      {Rules(R"({"host":"a.org","tls":"strip"})"), "network.allow[0].tls", "originate"},
      {Rules(R"({"host":"a.org","secret":"../x"})"), "network.allow[0].secret", "secret"},
      {Rules(R"({"host":"a.org","color":1})"), "network.allow[0].color", "unknown"},
      {Rules(R"({"cidr":"10.0.0.0/8","paths":["/a"]})"), "network.allow[0]", "need a \"host\""},
      {Rules(R"("preset:none")"), "network.allow[0]", "not there"},
      {R"({"allow":["a.org"]})", "network.allow", "mode \"none\""},
      {R"({"mode":"open","allow":["a.org"]})", "network.allow[0]", "every name"},
      {R"({"mode":"host"})", "network.mode", "must be"},
      {R"({"mode":"none","color":1})", "network.color", "unknown"},
      {R"({"join":["a","a"]})", "network.join[0]", "twice"},
      {R"({"join":["../a"]})", "network.join[0]", "letters"},
      {R"({"limits":{"connections":4294967296}})", "network.limits.connections", "between"},
      {R"({"limits":{"x":1}})", "network.limits.x", "unknown"},
      {R"([])", "network", "object"},
  };
  for (const auto& [text, field, reason] : kTable) {
    const Error error = Refusal(text);
    EXPECT_EQ(error.field, field) << text << ": " << error.what;
    EXPECT_NE((error.what + error.hint).find(reason), std::string::npos) << text << error.what;
  }
  EXPECT_EQ(Refusal(Rules(R"("preset:none")")).code, Code::kNotFound);
}

TEST(PolicyJson, ARuleWrittenTwiceInOneObjectIsRefused) {
  EXPECT_FALSE(oci::ParseJson(R"({"allow":["a.org"],"allow":["b.org"]})").has_value());
}

std::string Repeated(const std::string& item, size_t count) {
  std::string list = item;
  for (size_t i = 1; i < count; ++i) list += "," + item;
  return list;
}

TEST(PolicyJson, ListsAreBounded) {
  EXPECT_TRUE(Parse(Rules(Repeated(R"("a.org")", kMaxAllowRules))).has_value());
  EXPECT_EQ(Refusal(Rules(Repeated(R"("a.org")", kMaxAllowRules + 1))).field, "network.allow");
  const auto object = [](const char* name, const std::string& list) {
    return Rules(R"({"host":"a.org",")" + std::string(name) + "\":[" + list + "]}");
  };
  EXPECT_TRUE(Parse(object("ports", Repeated("80", kMaxRulePorts))).has_value());
  EXPECT_FALSE(Parse(object("ports", Repeated("80", kMaxRulePorts + 1))).has_value());
  EXPECT_TRUE(Parse(object("methods", Repeated(R"("GET")", kMaxRuleMethods))).has_value());
  EXPECT_FALSE(Parse(object("methods", Repeated(R"("GET")", kMaxRuleMethods + 1))).has_value());
  EXPECT_TRUE(Parse(object("paths", Repeated(R"("/a")", kMaxRulePaths))).has_value());
  EXPECT_FALSE(Parse(object("paths", Repeated(R"("/a")", kMaxRulePaths + 1))).has_value());
  const std::string path(kMaxRulePathBytes - 1, 'a');
  EXPECT_TRUE(Parse(object("paths", "\"/" + path + "\"")).has_value());
  EXPECT_FALSE(Parse(object("paths", "\"/a" + path + "\"")).has_value());
}

TEST(PolicyJson, NamesAreBounded) {
  const std::string name(kMaxNetworkNameBytes, 'a');
  EXPECT_TRUE(Parse(R"({"join":[")" + name + "\"]}").has_value());
  EXPECT_FALSE(Parse(R"({"join":["a)" + name + "\"]}").has_value());
  std::string joins = R"("n0")";
  for (size_t i = 1; i < kMaxJoins; ++i) joins += ",\"n" + std::to_string(i) + "\"";
  EXPECT_TRUE(Parse(R"({"join":[)" + joins + "]}").has_value());
  EXPECT_FALSE(Parse(R"({"join":[)" + joins + R"(,"more"]})").has_value());
  const std::string origin(kMaxRuleOriginBytes, 'a');
  EXPECT_TRUE(Parse(Rules(R"({"host":"a.org","origin":")" + origin + "\"}")).has_value());
  EXPECT_FALSE(Parse(Rules(R"({"host":"a.org","origin":"a)" + origin + "\"}")).has_value());
}

}  // namespace
}  // namespace hutch::network
