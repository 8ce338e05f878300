#include "base/text.h"

#include <gtest/gtest.h>

namespace hutch {
namespace {

TEST(Text, NumbersAreDecimalAndNothingElse) {
  EXPECT_EQ(*ParseUint("0"), 0u);
  EXPECT_EQ(*ParseUint("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*ParseUint("007"), 7u);
  EXPECT_EQ(*ParseUint("255", 255), 255u);
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "0x10", "1e3", "1.0", "18446744073709551616",
                          "99999999999999999999999", "1\n", "١"})
    EXPECT_FALSE(ParseUint(bad).has_value()) << bad;
  EXPECT_FALSE(ParseUint("256", 255).has_value());
  EXPECT_FALSE(ParseUint("9", 5).has_value());
  EXPECT_FALSE(ParseUint(std::string_view("1\0", 2)).has_value());
}

TEST(Text, IdsStopBelowTheNoChangeValue) {
  EXPECT_EQ(*ParseId("0"), 0u);
  EXPECT_EQ(*ParseId("4294967294"), 4294967294u);
  for (const char* bad : {"4294967295", "4294967296", "-1", "root", ""})
    EXPECT_FALSE(ParseId(bad).has_value()) << bad;
}

TEST(Text, NumberListsAreRangesAndNumbers) {
  using List = std::vector<uint32_t>;
  EXPECT_EQ(*ParseNumberList("0-3,7", 7), (List{0, 1, 2, 3, 7}));
  EXPECT_EQ(*ParseNumberList("5", 7), (List{5}));
  EXPECT_EQ(*ParseNumberList("7,0-1,1,2-2", 7), (List{0, 1, 2, 7}));
  for (const char* bad : {"", ",", "0,", ",0", "3-1", "-1", "1-", "-", "1--2", "1-2-3", "a", "0 1",
                          "0, 1", "8", "0-8", "4294967296", "0-4294967295", "0x1"})
    EXPECT_FALSE(ParseNumberList(bad, 7).has_value()) << bad;
}

TEST(Text, SizesKnowTheirUnitsAndTheirRange) {
  struct Row {
    const char* text;
    uint64_t bytes;
  };
  constexpr Row kRows[] = {
      {"0", 0},
      {"1000", 1000},
      {"10B", 10},
      {"64KiB", 65536},
      {"512MiB", 536870912},
      {"1GiB", 1073741824},
      {"2TiB", 2199023255552},
      {"2KB", 2000},
      {"2GB", 2000000000},
      {"16777215TiB", 16777215ull << 40},
  };
  for (const Row& row : kRows) EXPECT_EQ(*ParseSize(row.text), row.bytes) << row.text;
  for (const char* bad : {"", "MiB", "1 MiB", "1mib", "1M", "-1MiB", "1.5GiB", "16777216TiB",
                          "1MiBx", "18446744073709551615KiB"})
    EXPECT_FALSE(ParseSize(bad).has_value()) << bad;
}

TEST(Text, SizesPrintForPeople) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize(536870912), "512.0 MiB");
  EXPECT_EQ(FormatSize(UINT64_MAX), "16777216.0 TiB");
}

TEST(Text, SplitKeepsEmptyPartsAndJoinTakesThemBack) {
  EXPECT_EQ(Split("", ':'), std::vector<std::string>{""});
  EXPECT_EQ(Split("a::b:", ':'), (std::vector<std::string>{"a", "", "b", ""}));
  EXPECT_EQ(Join(Split("a::b:", ':'), ":"), "a::b:");
  EXPECT_EQ(Join({}, ","), "");
  EXPECT_EQ(Trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
}

TEST(Text, HexIsLowerCase) { EXPECT_EQ(HexEncode(std::string_view("\x00\xff\x1A", 3)), "00ff1a"); }

TEST(Text, Utf8IsStrict) {
  for (const char* good : {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                           "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBD"})
    EXPECT_TRUE(IsUtf8(good)) << HexEncode(good);
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xE2\x82", "a\xFF", "\xC3(", "\xE2(\xA1"})
    EXPECT_FALSE(IsUtf8(bad)) << HexEncode(bad);
  EXPECT_TRUE(IsUtf8(std::string_view("a\0b", 3)));
}

TEST(Text, RandomNamesUseTheirAlphabetAndDiffer) {
  const std::string a = RandomBase32(16), b = RandomBase32(16);
  EXPECT_EQ(a.size(), 16u);
  EXPECT_EQ(a.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567"), std::string::npos);
  EXPECT_NE(a, b);
  EXPECT_EQ(RandomBase32(0), "");
  EXPECT_EQ(RandomBase32(1000).size(), 1000u);  // more than one getrandom(2) call may give
}

TEST(Text, TimesKeepTheirMilliseconds) {
  using std::chrono::milliseconds;
  const WallTime time{milliseconds(1769850487006)};
  EXPECT_EQ(FormatRfc3339(time), "2026-01-31T09:08:07.006Z");
  EXPECT_EQ(*ParseRfc3339("2026-01-31T09:08:07.006Z"), time);
  EXPECT_EQ(FormatRfc3339(WallTime{}), "1970-01-01T00:00:00.000Z");
}

TEST(Text, TimesOfAnotherFormAreRefused) {
  for (const char* bad :
       {"", "2026-01-31", "2026-01-31T09:08:07Z", "2026-01-31T09:08:07.006",
        "2026-01-31T09:08:07.006+01:00", "2026-01-31T09:08:07.006Zx", "2026-01-31 09:08:07.006Z"})
    EXPECT_FALSE(ParseRfc3339(bad).has_value()) << bad;
}

}  // namespace
}  // namespace hutch
