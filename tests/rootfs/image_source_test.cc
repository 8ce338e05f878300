#include "rootfs/image_source.h"

#include <gtest/gtest.h>

#include "rootfs/catalog.h"
#include "rootfs/limits.h"
#include "rootfs/store.h"

namespace hutch::rootfs {
namespace {

TEST(NormalReference, Table) {
  const std::pair<const char*, const char*> rows[] = {
      {"python", "python:latest"},
      {"python:3.11", "python:3.11"},
      {"docker.io/library/python", "docker.io/library/python:latest"},
      {"localhost:5000/a/b", "localhost:5000/a/b:latest"},
      {"localhost:5000/a/b:t", "localhost:5000/a/b:t"},
      {"a_b-c.d", "a_b-c.d:latest"}};
  for (const auto& [text, normal] : rows) {
    const auto reference = NormalReference(text);
    ASSERT_TRUE(reference.has_value()) << text;
    EXPECT_EQ(*reference, normal);
  }
  for (const char* text : {"", "/a", "a/", "a:", ":a", "-a", ".a", "a b", "a\n", "a//b", "../a",
                           "a/../b", "a@sha256:b", "sha256:0123456789ab", "ä", "a;b", "a$(b)"})
    EXPECT_EQ(NormalReference(text).error().code, Code::kInvalidArgument) << text;
}

TEST(NormalReference, NamesAreBounded) {
  const size_t room = kMaxReferenceBytes - std::string(":latest").size();
  EXPECT_TRUE(NormalReference(std::string(room, 'a')).has_value());
  EXPECT_FALSE(NormalReference(std::string(room + 1, 'a')).has_value());
  EXPECT_TRUE(NormalReference(std::string(kMaxReferenceBytes - 2, 'a') + ":b").has_value());
  EXPECT_FALSE(NormalReference(std::string(kMaxReferenceBytes - 1, 'a') + ":b").has_value());
}

TEST(NormalReference, WhatItGivesIsTakenAgainUnchanged) {
  const std::string long_name(kMaxReferenceBytes - std::string(":latest").size(), 'a');
  for (const std::string& text : {std::string("a"), std::string("a/b"), std::string("a:1/b"),
                                  std::string("a:1"), long_name}) {
    const auto once = NormalReference(text);
    ASSERT_TRUE(once.has_value()) << text;
    EXPECT_EQ(*NormalReference(*once), *once);
  }
  EXPECT_FALSE(NormalReference("sha256").has_value()) << "with its tag it would read as a digest";
}

TEST(Catalog, EveryEntryIsRead) {
  EXPECT_EQ(CatalogNames(), std::vector<std::string>{"python"});
  for (const CatalogText& text : CatalogTexts()) {
    const auto entry = ParseCatalogEntry(text.name, text.json);
    ASSERT_TRUE(entry.has_value()) << text.name << ": " << entry.error().ToString();
    EXPECT_FALSE(entry->packages.empty());
    EXPECT_EQ(entry->user, "1000:1000");
    EXPECT_EQ(entry->working_dir, "/workspace");
  }
}

TEST(Catalog, WhatIsNoEntryIsRefused) {
  EXPECT_FALSE(ParseCatalogEntry("x", R"({"suite": "bookworm", "packages": ["a;b"]})").has_value());
  EXPECT_FALSE(ParseCatalogEntry("x", R"({"suite": "-x", "packages": []})").has_value());
  EXPECT_FALSE(ParseCatalogEntry("x", R"({"suite": "bookworm", "extra": 1})").has_value());
}

TEST(Catalog, PackagesAndSourcesReachMmdebstrap) {
  const auto entry = ParseCatalogEntry("x", R"({"suite": "bookworm", "packages": ["jq", "git"]})");
  ASSERT_TRUE(entry.has_value());
  const auto args =
      MmdebstrapArgs(*entry, "/w/layer.tar", {"/etc/apt/sources.list"}, "/w/apt.conf");
  const auto has = [&](const std::string& arg) {
    return std::find(args.begin(), args.end(), arg) != args.end();
  };
  EXPECT_EQ(args.front(), "mmdebstrap");
  EXPECT_TRUE(has("--include=jq,git"));
  EXPECT_TRUE(has("--aptopt=/w/apt.conf"));
  EXPECT_EQ(args.back(), "/etc/apt/sources.list");
  EXPECT_EQ(args[args.size() - 2], "/w/layer.tar");
}

}  // namespace
}  // namespace hutch::rootfs
