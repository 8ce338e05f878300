#include "files/glob_pattern.h"

#include <gtest/gtest.h>

#include "files/limits.h"

namespace hutch::files {
namespace {

bool MatchesPath(const std::string& pattern, const std::string& path) {
  auto parsed = GlobPattern::Parse(pattern);
  EXPECT_TRUE(parsed.has_value()) << pattern;
  return parsed && parsed->MatchesPath(path);
}

TEST(GlobPattern, StarsStayWithinAName) {
  EXPECT_TRUE(MatchesPath("*.cc", "a.cc"));
  EXPECT_FALSE(MatchesPath("*.cc", "a/b.cc"));
  EXPECT_TRUE(MatchesPath("a?c", "abc"));
  EXPECT_FALSE(MatchesPath("a?c", "a/c"));
  EXPECT_TRUE(MatchesPath("*", ".hidden"));
}

TEST(GlobPattern, TwoStarsCrossDirectories) {
  for (const char* path : {"a.cc", "x/a.cc", "x/y/a.cc"})
    EXPECT_TRUE(MatchesPath("**/*.cc", path)) << path;
  EXPECT_TRUE(MatchesPath("src/**", "src/a/b"));
  EXPECT_TRUE(MatchesPath("a/**/b/**/c", "a/x/b/b/y/c"));
  EXPECT_FALSE(MatchesPath("a/**/b", "a/x/c"));
}

TEST(GlobPattern, ClassesAndBracesAndEscapes) {
  EXPECT_TRUE(MatchesPath("[a-c]x", "bx"));
  EXPECT_FALSE(MatchesPath("[!a-c]x", "bx"));
  EXPECT_TRUE(MatchesPath("[]]x", "]x"));
  EXPECT_TRUE(MatchesPath("[x", "[x"));
  EXPECT_TRUE(MatchesPath("**/*.{ts,tsx}", "a/b.tsx"));
  EXPECT_TRUE(MatchesPath("{a,b}{c,d}", "bc"));
  EXPECT_FALSE(MatchesPath("{a,b}", "c"));
  EXPECT_TRUE(MatchesPath("\\*", "*"));
  EXPECT_FALSE(MatchesPath("\\*", "a"));
}

TEST(GlobPattern, NamesMatchAnywhereWithoutASlash) {
  EXPECT_TRUE(GlobPattern::Parse("*.cc")->Matches("a/b.cc"));
  EXPECT_FALSE(GlobPattern::Parse("x/*.cc")->Matches("a/x/b.cc"));
}

TEST(GlobPattern, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPath(pattern + "b", std::string(255, 'a')));
}

TEST(GlobPattern, PatternsAreBounded) {
  EXPECT_FALSE(GlobPattern::Parse("").has_value());
  EXPECT_FALSE(GlobPattern::Parse(std::string(kMaxGlobBytes + 1, 'a')).has_value());
  EXPECT_FALSE(GlobPattern::Parse("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}").has_value());
  EXPECT_FALSE(GlobPattern::Parse("{a,{b,c}}").has_value());
  EXPECT_FALSE(GlobPattern::Parse("{a").has_value());
}

}  // namespace
}  // namespace hutch::files
