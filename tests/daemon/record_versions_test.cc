// Records of older versions are read as what they were; those of newer ones are refused.
#include <gtest/gtest.h>

#include "base/file.h"
#include "daemon/sandbox_record.h"

namespace hutch::daemon {
namespace {

std::string Kept(const std::string& name) {
  const auto text = ReadFile(std::string(HUTCH_SOURCE_DIR) + "/tests/daemon/data/" + name, 1 << 20);
  EXPECT_TRUE(text.has_value()) << name;
  return text.has_value() ? *text : std::string();
}

TEST(RecordVersions, TheFirstOneIsRead) {
  const auto facts = LoadFacts("sb-one", Kept("record_v1.json"), Config());
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->fields.name, "kept");
  EXPECT_EQ(facts->fields.session_key, "s-1");
  EXPECT_EQ(facts->fields.labels.at("team"), "a");
  EXPECT_EQ(facts->fields.timeouts.on_expiry, OnExpiry::kPause);
  EXPECT_FALSE(facts->fields.readonly_root);
  EXPECT_EQ(facts->history.back().state, SandboxState::kPaused);
  EXPECT_TRUE(facts->paused_idle_ms.has_value());
  EXPECT_EQ(facts->stops, 0u);
  EXPECT_EQ(LifeBegins(*facts), facts->created_at);
}

TEST(RecordVersions, WhatIsSavedIsOfTheLatest) {
  auto facts = LoadFacts("sb-one", Kept("record_v1.json"), Config());
  ASSERT_TRUE(facts.has_value());
  facts->stops = 3;
  facts->life_from = facts->created_at + std::chrono::hours(5);
  facts->fields.directories = {{.path = "/data", .mode = 01777, .users = true}};
  const auto again = LoadFacts("sb-one", SaveFacts(*facts), Config());
  ASSERT_TRUE(again.has_value()) << again.error().ToString();
  EXPECT_EQ(again->stops, 3u);
  EXPECT_EQ(LifeBegins(*again), *facts->life_from);
  ASSERT_EQ(again->fields.directories.size(), 1u);
  EXPECT_EQ(again->fields.directories[0].path, "/data");
  EXPECT_EQ(again->fields.directories[0].mode, 01777u);
  EXPECT_TRUE(again->fields.directories[0].users);
}

TEST(RecordVersions, ANewerOneIsRefusedAsThat) {
  auto json = oci::ParseJson(Kept("record_v1.json"), {.max_bytes = 1 << 20});
  ASSERT_TRUE(json.has_value());
  for (const uint64_t version : {3u, 99u}) {
    (*json)["version"] = version;
    const auto facts = LoadFacts("sb-one", oci::PrintJson(*json), Config());
    ASSERT_FALSE(facts.has_value());
    EXPECT_EQ(facts.error().code, Code::kUnsupported);
    EXPECT_EQ(facts.error().field, "version");
    EXPECT_NE(facts.error().what.find("newer hutchd"), std::string::npos);
  }
  (*json)["version"] = 0;
  EXPECT_EQ(LoadFacts("sb-one", oci::PrintJson(*json), Config()).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace hutch::daemon
