#include "network/host_names.h"

#include <gtest/gtest.h>

#include "network/policy.h"

namespace hutch::network {
namespace {

std::string Normal(std::string_view text) {
  const auto host = NormalHost(text);
  return host.has_value() ? *host : "refused: " + host.error().what;
}

std::string InRule(std::string_view text) {
  const auto host = ParseRuleHost(text);
  return host.has_value() ? *host : "refused: " + host.error().what;
}

TEST(HostNames, HaveOneForm) {
  EXPECT_EQ(Normal("PkGs.example.org"), "pkgs.example.org");
  EXPECT_EQ(Normal("pkgs.example.org."), "pkgs.example.org");
  EXPECT_EQ(Normal("_http._tcp.example.org"), "_http._tcp.example.org");
  EXPECT_EQ(Normal("r3---sn-a.example.org"), "r3---sn-a.example.org");
  EXPECT_EQ(Normal("db"), "db");
  const std::string kLabel(63, 'a');
  EXPECT_EQ(Normal(kLabel + ".org"), kLabel + ".org");
}

TEST(HostNames, WhatIsNoneIsRefused) {
  for (const char* text :
       {"",        ".",     "..",     ".a",  "a..b",   "a.b..",     "-a.org",        "a-.org",
        "a b.org", "a\tb",  "a:80",   "a/b", "a%2eb",  "a\\b",      "*.a.org",       "192.0.2.1",
        "::1",     "127.1", "0x7f.1", "1",   "a.0x7f", "example.1", "p\xc3\xa9.org", "a\nb"})
    EXPECT_NE(Normal(text).find("refused"), std::string::npos) << text;
  EXPECT_NE(Normal(std::string_view("a\0b", 3)).find("refused"), std::string::npos);
}

TEST(HostNames, LengthsAreBounded) {
  const std::string kLabel(63, 'a');
  EXPECT_NE(Normal(kLabel + "a.org").find("63"), std::string::npos);
  const std::string three = kLabel + "." + kLabel + "." + kLabel + ".";
  EXPECT_EQ(Normal(three + std::string(61, 'b')).size(), 253u);
  EXPECT_NE(Normal(three + std::string(62, 'b')).find("253"), std::string::npos);
}

TEST(HostNames, RulesTakeWhatCannotBeMisread) {
  for (const char* text : {"pkgs.example.org", "*.pkgs.example.org", "db", "a.b.c.example.co.uk",
                           "*.example.co.uk", "s3.amazonaws.com", "octocat.github.io"})
    EXPECT_EQ(InRule(text), text);
  EXPECT_EQ(InRule("*.PkGs.example.org."), "*.pkgs.example.org");
  EXPECT_EQ(InRule("xn--bcher-kva.example"), "xn--bcher-kva.example");
  EXPECT_EQ(InRule("xn--80ak6aa92e.example"), "xn--80ak6aa92e.example");  // all of it Cyrillic
}

TEST(HostNames, RulesRefuseWhatCouldBeMisread) {
  const std::pair<const char*, const char*> kTable[] = {
      {"*", "every name"},
      {"*.", "every name"},
      {"*.com", "lets in everybody"},
      {"*.co.uk", "lets in everybody"},
      {"*.github.io", "lets in everybody"},
      {"*.internal", "lets in everybody"},
      {"com", "public suffix"},
      {"co.uk", "public suffix"},
      {"*.*.org", "whole first label"},
      {"a.*.org", "whole first label"},
      {"*a.org", "whole first label"},
      {"https://pkgs.example.org", "is a URL"},
      {"pkgs.example.org/simple", "has a path"},
      {"me@pkgs.example.org", "has a user"},
      {"localhost", "loopback"},
      {"a.localhost", "loopback"},
      {"*.localhost", "loopback"},
      {"192.0.2.1", "is an address"},
      {"127.1", "read as an address"},
      {"p\xd0\xb0ypal.com", "not ASCII"},
      {"xn--pypal-4ve.com", "scripts that look alike"},
      {"www.xn--pypal-4ve.com", "scripts that look alike"},
      {"xn--99999999.example", "stands for nothing"},
      {"xn--.example", "hyphen"},
      {"xn--paypal-.example", "hyphen"},
      {"xn--papal-it33a.example", "stands for nothing"},  // a wide "y"
      {"*.xn--p1ai", "lets in everybody"},
      {"*.xn--55qx5d.cn", "lets in everybody"},
  };
  for (const auto& [text, reason] : kTable)
    EXPECT_NE(InRule(text).find(reason), std::string::npos) << text << ": " << InRule(text);
  EXPECT_NE(ParseRuleHost("b\xc3\xbc"
                          "cher.example")
                .error()
                .hint.find("xn--bcher-kva.example"),
            std::string::npos);
}

TEST(HostNames, AWildcardIsForWhatIsBelow) {
  EXPECT_TRUE(HostMatches("*.pkgs.example.org", "files.pkgs.example.org"));
  EXPECT_TRUE(HostMatches("*.pkgs.example.org", "a.b.pkgs.example.org"));
  EXPECT_FALSE(HostMatches("*.pkgs.example.org", "pkgs.example.org"));
  EXPECT_FALSE(HostMatches("*.pkgs.example.org", "evilpkgs.example.org"));
  EXPECT_FALSE(HostMatches("*.pkgs.example.org", ".pkgs.example.org"));
  EXPECT_TRUE(HostMatches("pkgs.example.org", "pkgs.example.org"));
  EXPECT_FALSE(HostMatches("pkgs.example.org", "files.pkgs.example.org"));
  EXPECT_FALSE(HostMatches("", ""));
}

}  // namespace
}  // namespace hutch::network
