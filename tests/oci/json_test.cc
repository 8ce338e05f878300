#include "oci/json.h"

#include <gtest/gtest.h>

namespace hutch::oci {
namespace {

Json Parsed(std::string_view text) {
  auto value = ParseJson(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.has_value() ? *value : Json();
}

TEST(Json, ReadsWhatItPrints) {
  const char* text = R"({"a":[1,-2,2.5,true,null,"x\u0001é"],"b":{}})";
  const Json value = Parsed(text);
  EXPECT_EQ(Parsed(PrintJson(value)), value);
  EXPECT_EQ(value["a"][1], -2);
  EXPECT_EQ(Parsed("18446744073709551615").get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(Parsed(" 1 "), 1);
}

TEST(Json, MalformedTextIsRefused) {
  for (const char* bad : {"",
                          " ",
                          "{",
                          "[1,]",
                          "{\"a\":}",
                          "{\"a\" 1}",
                          "nul",
                          "NaN",
                          "Infinity",
                          "-",
                          "01",
                          "1.",
                          "'a'",
                          "{a:1}",
                          "1 2",
                          "{}{}",
                          "// c\n1",
                          "/* c */ 1",
                          "\"\t\"",
                          "\"\\x\"",
                          "\"\\ud800\"",
                          "\xEF\xBB\xBF\xEF\xBB\xBF{}"})
    EXPECT_FALSE(ParseJson(bad).has_value()) << bad;
}

TEST(Json, InvalidUtf8IsRefused) {
  EXPECT_EQ(ParseJson("\"\xC0\xAF\"").error().code, Code::kInvalidArgument);
  EXPECT_EQ(ParseJson("\"\xED\xA0\x80\"").error().code, Code::kInvalidArgument);
}

TEST(Json, DuplicateKeysAreRefusedInTheSameObjectOnly) {
  EXPECT_NE(ParseJson(R"({"a":1,"b":2,"a":3})").error().what.find("duplicate key \"a\""),
            std::string::npos);
  EXPECT_FALSE(ParseJson(R"([{"x":{"a":1,"a":1}}])").has_value());
  EXPECT_FALSE(ParseJson("{\"a\":1,\"\\u0061\":2}").has_value());
  EXPECT_TRUE(ParseJson(R"({"a":{"a":1},"b":{"a":2}})").has_value());
}

TEST(Json, SizeAndDepthAreBounded) {
  EXPECT_EQ(ParseJson("[1,2]", {.max_bytes = 4}).error().code, Code::kTooLarge);
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJson(nested(64)).has_value());
  EXPECT_FALSE(ParseJson(nested(65)).has_value());
  EXPECT_FALSE(ParseJson(nested(500000)).has_value());
}

TEST(Json, PrintingNeverFails) { EXPECT_EQ(PrintJson(Json("a\xFF")), "\"a\xEF\xBF\xBD\""); }

TEST(ObjectReader, ReadsMembersAndLeavesAbsentOnesAlone) {
  const Json object = Parsed(
      R"({"name":"x","count":3,"share":0.5,"on":true,"list":["a","b"],"map":{"k":"v"},"none":null})");
  ObjectReader reader(object, "");
  std::string name, none = "kept", absent = "kept";
  uint64_t count = 0;
  double share = 0;
  bool on = false;
  std::vector<std::string> list;
  std::map<std::string, std::string> map;
  reader.String("name", &name)
      .Uint("count", &count, 1, 3)
      .Number("share", &share, 0, 1)
      .Bool("on", &on);
  reader.Strings("list", &list)
      .StringMap("map", &map)
      .String("none", &none)
      .String("absent", &absent);
  ASSERT_TRUE(reader.Done(ObjectReader::Unknown::kRefuse).has_value());
  EXPECT_EQ(name, "x");
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(share, 0.5);
  EXPECT_TRUE(on);
  EXPECT_EQ(list, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(map.at("k"), "v");
  EXPECT_EQ(none, "kept");
  EXPECT_EQ(absent, "kept");
}

// One wrong member each: the error names the field by its path.
TEST(ObjectReader, AWrongMemberIsNamedByItsPath) {
  for (const char* text :
       {R"({"s":1})", R"({"s":["a"]})", R"({"s":"a\u0000b"})", R"({"s":"too long"})", R"({"n":-1})",
        R"({"n":1.0})", R"({"n":"1"})", R"({"n":11})", R"({"n":1})", R"({"b":0})", R"({"l":"a"})",
        R"({"l":[1]})", R"({"l":["a","b","c"]})", R"({"m":[]})", R"({"m":{"k":1}})",
        R"({"m":{"k\u0000":"v"}})"}) {
    const Json object = Parsed(text);
    ObjectReader reader(object, "limits");
    std::string s;
    uint64_t n = 0;
    bool b = false;
    std::vector<std::string> l;
    std::map<std::string, std::string> m;
    reader.String("s", &s, 4)
        .Uint("n", &n, 2, 10)
        .Bool("b", &b)
        .Strings("l", &l, 2)
        .StringMap("m", &m);
    const Status status = reader.Done(ObjectReader::Unknown::kIgnore);
    ASSERT_FALSE(status.has_value()) << text;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(status.error().field, "limits." + std::string(1, text[2])) << text;
  }
}

TEST(ObjectReader, UnknownMembersAreRefusedByName) {
  const Json object = Parsed(R"({"known":"x","surprise":1})");
  std::string known;
  ObjectReader strict(object, "network");
  strict.String("known", &known);
  EXPECT_EQ(strict.Done(ObjectReader::Unknown::kRefuse).error().field, "network.surprise");
  ObjectReader lenient(object, "network");
  lenient.String("known", &known);
  EXPECT_TRUE(lenient.Done(ObjectReader::Unknown::kIgnore).has_value());
}

TEST(ObjectReader, TheFirstErrorWins) {
  const Json object = Parsed(R"({"a":1,"b":2})");
  std::string a, b;
  ObjectReader reader(object, "");
  reader.String("a", &a).String("b", &b);
  EXPECT_EQ(reader.Done(ObjectReader::Unknown::kRefuse).error().field, "a");
}

TEST(ObjectReader, SomethingElseThanAnObjectIsAnError) {
  const Json array = Parsed("[]");
  ObjectReader reader(array, "limits");
  std::string s;
  reader.String("s", &s);
  EXPECT_EQ(reader.Done(ObjectReader::Unknown::kRefuse).error().field, "limits");
}

}  // namespace
}  // namespace hutch::oci
