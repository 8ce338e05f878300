#include "oci/image_history.h"

#include <gtest/gtest.h>

namespace hutch::oci {
namespace {

TEST(ImageHistory, StepsInTheirOrder) {
  const auto steps = ParseImageHistory(
      R"({"history":[{"created":"2024-01-01T00:00:00Z","created_by":"ADD x","comment":"c"},)"
      R"({"created_by":"ENV A=b","empty_layer":true,"author":"me","unknown":1}]})");
  ASSERT_TRUE(steps.has_value()) << steps.error().what;
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].created_by, "ADD x");
  EXPECT_EQ((*steps)[0].comment, "c");
  EXPECT_FALSE((*steps)[0].empty_layer);
  EXPECT_TRUE((*steps)[1].empty_layer);
  EXPECT_EQ((*steps)[1].author, "me");
}

TEST(ImageHistory, NoneIsFine) {
  for (const char* text : {"{}", R"({"history":null})", R"({"history":[]})"}) {
    const auto steps = ParseImageHistory(text);
    ASSERT_TRUE(steps.has_value()) << text;
    EXPECT_TRUE(steps->empty()) << text;
  }
}

TEST(ImageHistory, IsBounded) {
  std::string many = "{}";
  for (int i = 0; i < 1024; ++i) many += ",{}";
  for (const std::string& text :
       {R"({"history":[)" + many + "]}",
        R"({"history":[{"created_by":")" + std::string(70'000, 'x') + "\"}]}",
        std::string(R"({"history":{}})"), std::string(R"({"history":[1]})"),
        std::string(R"({"history":[{"created":1}]})")}) {
    const auto steps = ParseImageHistory(text);
    ASSERT_FALSE(steps.has_value()) << text.substr(0, 60);
    EXPECT_EQ(steps.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hutch::oci
