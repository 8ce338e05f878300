#include "rootfs/image_source.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hutch::rootfs
