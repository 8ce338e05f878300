#include "tools/places.h"

#include <gtest/gtest.h>

namespace hutch::tools {
namespace {

TEST(Places, ASandboxStandsBeforeTheFirstColon) {
  const auto remote = ParsePlace("box:/a:b/c");
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->sandbox, "box");
  EXPECT_EQ(remote->path, "/a:b/c");
  for (const char* local : {"a", "./a:b", "/a:/b", "dir/a:/b", ":/a", "-", "..:/x"}) {
    const auto place = ParsePlace(local);
    ASSERT_TRUE(place) << local;
    EXPECT_FALSE(place->remote()) << local;
    EXPECT_EQ(place->path, local);
  }
  EXPECT_TRUE(ParsePlace("-")->is_tar_stream());
  for (const char* bad : {"", "box:", "box:relative"}) EXPECT_FALSE(ParsePlace(bad)) << bad;
  EXPECT_FALSE(ParseRemotePlace("/local"));
}

TEST(Places, PathsAreEncodedSegmentBySegment) {
  EXPECT_EQ(FileTarget({.sandbox = "box", .path = "/a b/c%/d?"}),
            "/v1/sandboxes/box/files/a%20b/c%25/d%3f");
  EXPECT_EQ(FileTarget({.sandbox = "b", .path = "/"}), "/v1/sandboxes/b/files/");
}

TEST(Places, NamesAndParents) {
  EXPECT_EQ(BaseName("/a/b/"), "b");
  EXPECT_EQ(BaseName("b"), "b");
  for (const char* contents : {"/", ".", "/a/.", ".."})
    EXPECT_EQ(BaseName(contents), "") << contents;
  EXPECT_EQ(JoinPath("/a", "b"), "/a/b");
  EXPECT_EQ(JoinPath("/a/", "b"), "/a/b");
  EXPECT_EQ(JoinPath("/a", ""), "/a");
  EXPECT_EQ(ParentOf("/a/b/"), "/a");
  EXPECT_EQ(ParentOf("/a"), "/");
  EXPECT_EQ(ParentOf("a"), ".");
  EXPECT_EQ(GlobOfName("a*[b]"), "a\\*\\[b\\]");
}

}  // namespace
}  // namespace hutch::tools
