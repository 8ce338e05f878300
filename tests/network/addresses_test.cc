#include <gtest/gtest.h>

#include "network/policy.h"
#include "network/rule_text.h"

namespace hutch::network {
namespace {

Address At(const char* text) { return ParseAddress(text).value(); }

TEST(Addresses, OnlyWholeFormsAreTaken) {
  for (const char* text : {"192.0.2.1", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::", "::1"})
    EXPECT_EQ(At(text).ToString(), text);
  EXPECT_TRUE(At("192.0.2.1").is_v4());
  EXPECT_FALSE(At("2001:db8::1").is_v4());
  EXPECT_EQ(At("::ffff:192.0.2.1"), At("192.0.2.1"));
  for (const char* text : {"127.1", "1", "0x7f.0.0.1", "192.0.2.01", "192.0.2.256", "192.0.2.1 ",
                           "", "fe80::1%eth0", "fe80::1%1", "[::1]", "1.2.3.4.5", "::1::", "g::"})
    EXPECT_FALSE(ParseAddress(text).has_value()) << text;
  EXPECT_FALSE(ParseAddress(std::string_view("192.0.2.1\0x", 11)).has_value());
}

TEST(Addresses, RangesHoldTheirOwnFamilyOnly) {
  const Cidr ten{.base = At("10.0.0.0"), .bits = 104};
  EXPECT_TRUE(ten.Contains(At("10.255.0.1")));
  EXPECT_TRUE(ten.Contains(At("::ffff:10.0.0.1")));
  EXPECT_FALSE(ten.Contains(At("11.0.0.0")));
  EXPECT_FALSE(ten.Contains(At("a00::")));
  EXPECT_EQ(ten.ToString(), "10.0.0.0/8");
  const Cidr all{.base = At("::"), .bits = 0};
  EXPECT_TRUE(all.Contains(At("2001:db8::1")));
  EXPECT_FALSE(all.Contains(At("10.0.0.1")));
  const Cidr odd{.base = At("172.16.0.0"), .bits = 108};
  EXPECT_TRUE(odd.Contains(At("172.31.255.255")));
  EXPECT_FALSE(odd.Contains(At("172.32.0.0")));
}

TEST(Addresses, WhatNoNameMayLeadToIsClosed) {
  for (const char* text : {"0.0.0.0",
                           "10.1.2.3",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "168.63.129.16",
                           "169.254.169.254",
                           "172.16.0.1",
                           "192.168.1.1",
                           "192.0.2.1",
                           "198.19.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "::127.0.0.1",
                           "::ffff:10.0.0.1",
                           "::ffff:0:10.0.0.1",
                           "64:ff9b::a00:1",
                           "64:ff9b:1::1",
                           "2002:a00:1::",
                           "2001::1",
                           "2001:db8::1",
                           "fc00::1",
                           "fd00:ec2::254",
                           "fe80::1",
                           "fec0::1",
                           "ff02::1"})
    EXPECT_NE(WhyClosed(At(text)), nullptr) << text;
  for (const char* text : {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.128.0.0", "172.32.0.0",
                           "169.253.0.1", "168.63.129.15", "168.63.129.17", "192.167.0.1",
                           "223.255.255.255", "2001:4860::1", "2a00::1", "2606:4700::1111"})
    EXPECT_EQ(WhyClosed(At(text)), nullptr) << text;
}

TEST(Addresses, ClosedRangesSayTheSameAndDoNotOverlap) {
  const std::vector<Cidr> ranges = ClosedRanges();
  for (const Cidr& range : ranges) {
    EXPECT_NE(WhyClosed(range.base), nullptr);
    for (const Cidr& other : ranges)
      EXPECT_TRUE(&range == &other || !other.Contains(range.base)) << range.ToString();
  }
  const auto holds = [&](const char* text) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const Cidr& range) { return range.Contains(At(text)); });
  };
  for (const char* text :
       {"127.0.0.1", "168.63.129.16", "169.254.169.254", "::1", "2001::1", "fd00::1"})
    EXPECT_TRUE(holds(text)) << text;
  EXPECT_FALSE(holds("1.1.1.1"));
  EXPECT_FALSE(holds("2a00::1"));
}

std::string Range(const char* text) {
  const auto range = ParseRuleCidr(text);
  return range.has_value() ? range->ToString() : "refused: " + range.error().what;
}

TEST(Addresses, RangesOfRulesAreWrittenInOneWay) {
  EXPECT_EQ(Range("10.1.0.0/16"), "10.1.0.0/16");
  EXPECT_EQ(Range("169.254.169.254/32"), "169.254.169.254/32");
  EXPECT_EQ(Range("[2001:db8::]/32"), "2001:db8::/32");
  EXPECT_EQ(Range("fc00::/7"), "fc00::/7");
  EXPECT_EQ(Range("8.0.0.0/7"), "8.0.0.0/7");
  const std::pair<const char*, const char*> kTable[] = {
      {"10.1.2.3/16", "behind its prefix"}, {"10.0.0.0/33", "prefix length"},
      {"10.0.0.0/", "prefix length"},       {"10.0.0.0/08", "prefix length"},
      {"10.0.0.0", "prefix length"},        {"10.0.0.0/-1", "prefix length"},
      {"0.0.0.0/0", "among others"},        {"::/0", "among others"},
      {"10.0.0.0/7", "among others"},       {"168.63.0.0/16", "among others"},
      {"2000::/3", "among others"},         {"0.0.0.0/8", "nothing there"},
      {"224.0.0.0/8", "nothing there"},     {"ff00::/16", "nothing there"},
      {"::ffff:10.0.0.0/104", "IPv6 form"}, {"fe80::1%eth0/128", "zone"},
      {"10/8", "begin with an address"},    {"example.com/24", "begin with an address"}};
  for (const auto& [text, reason] : kTable)
    EXPECT_NE(Range(text).find(reason), std::string::npos) << text << ": " << Range(text);
}

}  // namespace
}  // namespace hutch::network
