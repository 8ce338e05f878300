// JSON with comments and trailing commas: what becomes of it, and that nothing else is let through.
#include "oci/jsonc.h"

#include <gtest/gtest.h>

#include "oci/json.h"

namespace hutch::oci {
namespace {

// The value, or what is wrong as text.
std::string Read(const std::string& text) {
  const Result<std::string> plain = JsoncToJson(text, 1000);
  if (!plain.has_value()) return plain.error().what;
  EXPECT_EQ(plain->size(), text.size());
  const Result<Json> json = ParseJson(*plain);
  return json.has_value() ? PrintJson(*json) : json.error().what;
}

TEST(Jsonc, CommentsAndTrailingCommasAreTakenOut) {
  EXPECT_EQ(Read("// first\n{\"a\": 1, /* in \n between */ \"b\": [1, 2,],} // last"),
            R"({"a":1,"b":[1,2]})");
  EXPECT_EQ(Read("{\"a\": {},\n// nothing follows\n}"), R"({"a":{}})");
  EXPECT_EQ(Read("[true, /* , */ ]"), "[true]");
  EXPECT_EQ(Read("/**/1/**/"), "1");
  EXPECT_EQ(Read("\xEF\xBB\xBF{}"), "{}");
}

TEST(Jsonc, StringsAreLeftAlone) {
  EXPECT_EQ(Read(R"({"a": "http://x/*y*/,]", "b": "\"//\\"})"),
            R"({"a":"http://x/*y*/,]","b":"\"//\\"})");
  EXPECT_EQ(Read(R"(["\\",])"), R"(["\\"])");
}

TEST(Jsonc, WhatIsNoJsonStaysNone) {
  for (const char* text : {"[,]", "{,}", "[1,,]", "[1,,2]", "{\"a\":,}", "[1 2]", "", "//", "[1],",
                           "\"open", "\"open\\", "{\"a\":1}/", "[1]]", "{'a': 1}"})
    EXPECT_NE(Read(text).find("malformed JSON"), std::string::npos) << text;
  EXPECT_EQ(Read("[1] /* open"), "a comment without an end at byte 5");
  EXPECT_EQ(Read("/*/"), "a comment without an end at byte 1");
}

TEST(Jsonc, PositionsOfErrorsHold) {
  const std::string with = "{/* a comment */ \"a\": nul}", without = "{                \"a\": nul}";
  EXPECT_EQ(Read(with), Read(without));
}

TEST(Jsonc, TheSizeIsBounded) {
  const Result<std::string> large = JsoncToJson(std::string(1001, ' '), 1000);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::oci
