#include "daemon/owners.h"

#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

class OwnerCountsTest : public testing::Test {
 protected:
  static SandboxFields Fields(const std::string& session, StringMap labels = {}) {
    SandboxFields fields;
    fields.session_key = session;
    fields.labels = std::move(labels);
    return fields;
  }
  std::string Refused(uint32_t uid, const SandboxFields& fields) {
    const Status status = counts_.Check(uid, fields);
    return status.has_value() ? "" : status.error().what;
  }

  OwnerLimits limits_;
  OwnerCounts counts_{limits_};
};

TEST_F(OwnerCountsTest, WithoutLimitsAnybodyHasAny) {
  for (int i = 0; i < 100; ++i) counts_.Add(1, Fields("a/" + std::to_string(i)));
  EXPECT_EQ(Refused(1, Fields("a/x")), "");
}

TEST_F(OwnerCountsTest, AUserHasItsMost) {
  limits_.sandboxes_per_user = 2;
  counts_.Add(1, Fields(""));
  counts_.Add(1, Fields(""));
  EXPECT_EQ(Refused(1, Fields("")),
            "user 1 has 2 sandboxes, and may have 2 (owner_limits.sandboxes_per_user)");
  EXPECT_EQ(Refused(2, Fields("")), "");
  counts_.Remove(1, Fields(""));
  EXPECT_EQ(Refused(1, Fields("")), "");
}

TEST_F(OwnerCountsTest, AValueOfALabelHasItsMostWhoeverAsks) {
  limits_.labels = {{.label = "team", .max = 1}};
  counts_.Add(1, Fields("", {{"team", "a"}, {"x", "y"}}));
  const Status refused = counts_.Check(2, Fields("", {{"team", "a"}}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kLimit);
  EXPECT_EQ(refused.error().field, "labels.team");
  EXPECT_EQ(Refused(1, Fields("", {{"team", "b"}})), "");
  EXPECT_EQ(Refused(1, Fields("", {{"x", "y"}})), "");
}

TEST_F(OwnerCountsTest, TheBeginningOfASessionKeyHasItsMostForEachUser) {
  limits_.sandboxes_per_session_prefix = 1;
  counts_.Add(1, Fields("alice/1"));
  EXPECT_NE(Refused(1, Fields("alice/2")).find("session keys of alice of user 1"),
            std::string::npos);
  EXPECT_NE(Refused(1, Fields("alice")), "");
  EXPECT_EQ(Refused(1, Fields("alice2/1")), "");
  EXPECT_EQ(Refused(2, Fields("alice/2")), "");
  EXPECT_EQ(Refused(1, Fields("")), "");
}

TEST_F(OwnerCountsTest, ChangedLabelsCountOnlyWhereTheyAreNew) {
  limits_.labels = {{.label = "team", .max = 1}};
  counts_.Add(1, Fields("", {{"team", "a"}}));
  EXPECT_TRUE(counts_.CheckLabels({{"team", "a"}}, {{"team", "a"}, {"x", "y"}}).has_value());
  EXPECT_FALSE(counts_.CheckLabels({{"team", "b"}}, {{"team", "a"}}).has_value());
}

TEST_F(OwnerCountsTest, OwnersShownAreBounded) {
  for (size_t i = 0; i < kMaxOwnersShown + 5; ++i)
    counts_.Add(static_cast<uint32_t>(i), Fields(""));
  counts_.Add(7, Fields(""));
  const oci::Json list = counts_.ToJson();
  EXPECT_EQ(list.size(), kMaxOwnersShown);
  EXPECT_EQ(list[0]["owner"], "7");
  EXPECT_EQ(list[0]["sandboxes"], 2);
  EXPECT_TRUE(list[0]["max"].is_null());
}

TEST_F(OwnerCountsTest, NothingIsLeftOfThoseWhoHaveNone) {
  limits_.labels = {{.label = "team", .max = 1}};
  counts_.Add(1, Fields("a/b", {{"team", "a"}}));
  EXPECT_EQ(counts_.ToJson().size(), 3u);
  counts_.Remove(1, Fields("a/b", {{"team", "a"}}));
  EXPECT_TRUE(counts_.ToJson().empty());
}

TEST(OwnerLimits, AreReadAndChecked) {
  Config config;
  EXPECT_TRUE(ApplyConfigText(R"({"owner_limits":{"sandboxes_per_user":3,
      "sandboxes_per_session_prefix":2,"session_separator":":",
      "labels":[{"label":"team","max":10}]}})",
                              &config)
                  .has_value());
  EXPECT_EQ(config.owner_limits.sandboxes_per_user, 3u);
  EXPECT_EQ(config.owner_limits.sandboxes_per_session_prefix, 2u);
  EXPECT_EQ(config.owner_limits.session_separator, ":");
  EXPECT_EQ(config.owner_limits.labels[0].max, 10u);
  EXPECT_TRUE(CheckConfig(config).has_value());
  for (const char* text :
       {R"({"owner_limits":{"labels":{}}})", R"({"owner_limits":{"labels":[{"max":0}]}})",
        R"({"owner_limits":{"labels":[{"label":"a","max":1,"x":1}]}})",
        R"({"owner_limits":{"per_user":1}})"})
    EXPECT_FALSE(ApplyConfigText(text, &config).has_value()) << text;
  config = Config();
  config.owner_limits.session_separator = "";
  EXPECT_EQ(CheckConfig(config).error().field, "owner_limits.session_separator");
  config = Config();
  config.owner_limits.labels = {{.label = "", .max = 1}};
  EXPECT_EQ(CheckConfig(config).error().field, "owner_limits.labels");
}

}  // namespace
}  // namespace hutch::daemon
