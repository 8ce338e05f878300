#include "daemon/pool_spec.h"

#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;

// As it comes: numbers that are not negative are unsigned.
Json Sent(const Json& json) { return *oci::ParseJson(oci::PrintJson(json)); }

std::string FieldOf(const Json& json, const std::string& name = "p") {
  const Result<PoolSpec> spec = ParsePoolSpec(Sent(json), "", name);
  return spec.has_value() ? "" : spec.error().field;
}

TEST(PoolSpecTest, WhatIsSaidIsWhatIsShown) {
  const Json json = {{"name", "p"},
                     {"template", "python"},
                     {"image", nullptr},
                     {"ready", 2},
                     {"max", 5},
                     {"demand", true},
                     {"request", {{"user", "root"}}}};
  const Result<PoolSpec> spec = ParsePoolSpec(Sent(json), "sandbox_pools");
  ASSERT_TRUE(spec.has_value()) << spec.error().ToString();
  EXPECT_EQ(spec->request, Json({{"template", "python"}, {"user", "root"}}));
  EXPECT_EQ(PoolSpecJson(*spec), json);
  const Result<PoolSpec> little = ParsePoolSpec({{"image", "a"}}, "", "p");
  ASSERT_TRUE(little.has_value());
  EXPECT_EQ(little->ready, 1u);
  EXPECT_EQ(little->max, 1u);
  EXPECT_FALSE(little->demand);
}

TEST(PoolSpecTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(FieldOf({{"image", "a"}}), "");
  EXPECT_EQ(FieldOf(Json::object()), "template");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"template", "b"}}), "template");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"ready", 3}, {"max", 2}}), "max");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"name", "q"}}), "name");
  for (const char* member : {"name", "owner", "session_key", "labels", "timeouts", "ports"})
    EXPECT_EQ(FieldOf({{"image", "a"}, {"request", {{member, "x"}}}}),
              std::string("request.") + member);
  EXPECT_EQ(FieldOf({{"image", "a"}, {"request", {{"image", "b"}}}}), "request.image");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"request", Json::array()}}), "request");
}

TEST(PoolSpecTest, NumbersAreBounded) {
  EXPECT_EQ(FieldOf({{"image", "a"}, {"ready", kMaxPoolMembers}}), "");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"ready", kMaxPoolMembers + 1}}), "ready");
  EXPECT_EQ(FieldOf({{"image", "a"}, {"max", kMaxPoolMembers + 1}}), "max");
}

TEST(PoolSpecTest, NamesAreShort) {
  EXPECT_EQ(FieldOf({{"image", "a"}}, std::string(kMaxPoolNameBytes, 'a')), "");
  for (const std::string& name : {std::string(kMaxPoolNameBytes + 1, 'a'), std::string("A"),
                                  std::string("-a"), std::string("a/b"), std::string("a\"")})
    EXPECT_EQ(FieldOf({{"image", "a"}}, name), "name") << name;
}

TEST(PoolSpecTest, ListsAreBounded) {
  Json list = Json::array();
  for (size_t i = 0; i < kMaxPools; ++i)
    list.push_back({{"name", "p" + std::to_string(i)}, {"image", "a"}});
  ASSERT_TRUE(ParsePoolSpecs(list, "sandbox_pools").has_value());
  list.push_back({{"name", "more"}, {"image", "a"}});
  EXPECT_FALSE(ParsePoolSpecs(list, "sandbox_pools").has_value());
  const Json twice = {{{"name", "p"}, {"image", "a"}}, {{"name", "p"}, {"image", "b"}}};
  EXPECT_FALSE(ParsePoolSpecs(twice, "sandbox_pools").has_value());
  EXPECT_FALSE(ParsePoolSpecs(Json::object(), "sandbox_pools").has_value());
}

}  // namespace
}  // namespace hutch::daemon
