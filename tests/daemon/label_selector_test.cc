#include "daemon/label_selector.h"

#include <gtest/gtest.h>

namespace hutch::daemon {
namespace {

TEST(LabelSelector, SelectsAsKubernetesDoes) {
  const std::map<std::string, std::string> labels = {{"team", "a"}, {"empty", ""}, {"eq", "x=y"}};
  const struct {
    const char* selector;
    bool fits;
  } rows[] = {
      {"team=a", true},  {"team==a", true}, {"team=b", false}, {"team=", false},
      {"empty=", true},  {"empty", true},   {"none=", false},  {"team!=a", false},
      {"team!=b", true}, {"none!=a", true}, {"team", true},    {"none", false},
      {"!team", false},  {"!none", true},   {"eq=x=y", true},  {"eq!=x=y", false},
      {"eq==x=y", true}, {"team=A", false}, {"tea", false},
  };
  for (const auto& row : rows) {
    const Result<LabelSelector> selector = ParseLabelSelector(row.selector);
    ASSERT_TRUE(selector.has_value()) << row.selector;
    EXPECT_EQ(selector->Fits(labels), row.fits) << row.selector;
  }
}

TEST(LabelSelector, NeedsAKey) {
  for (const char* text : {"", "=", "=a", "!=a", "!", "==a"})
    EXPECT_EQ(ParseLabelSelector(text).error().field, "label") << text;
}

}  // namespace
}  // namespace hutch::daemon
