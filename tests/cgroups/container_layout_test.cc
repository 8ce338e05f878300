#include "cgroups/container_layout.h"

#include <gtest/gtest.h>

namespace hutch::cgroups {
namespace {

TEST(ContainerLayout, EveryHierarchyOnce) {
  const auto found = PlanHierarchies(ParseCgroupMounts(
      "30 1 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "31 1 0:1 / /mnt/again rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 1 0:2 / /sys/fs/cgroup/systemd rw - cgroup cgroup "
      "rw,xattr,release_agent=/x,name=systemd\n"
      "33 1 0:3 /docker/x /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->v2_root, "/sys/fs/cgroup/unified");
  EXPECT_EQ(found->v2_mounted, "/docker/x");
  ASSERT_EQ(found->v1.size(), 2u);
  EXPECT_EQ(found->v1[0].root, "/sys/fs/cgroup/cpu");
  EXPECT_EQ(found->v1[0].controllers, (std::vector<std::string>{"cpu", "cpuacct"}));
  EXPECT_EQ(found->v1[1].controllers, std::vector<std::string>{"name=systemd"});
}

TEST(ContainerLayout, V1AloneIsRefusedByName) {
  const auto found =
      PlanHierarchies(ParseCgroupMounts("30 1 0:1 / /c rw - cgroup cgroup rw,cpu\n"));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kUnsupported);
}

TEST(ContainerLayout, OwnPathIsThatOfTheHierarchy) {
  constexpr char kText[] = "4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/d:e\n0::/f\n";
  EXPECT_EQ(OwnPath(kText, "memory"), "/a/b");
  EXPECT_EQ(OwnPath(kText, "cpuacct"), "/c");
  EXPECT_EQ(OwnPath(kText, "name=systemd"), "/d:e");
  EXPECT_EQ(OwnPath(kText, ""), "/f");
  EXPECT_EQ(OwnPath(kText, "pids"), "/");
}

TEST(ContainerLayout, APathIsSeenFromTheMount) {
  EXPECT_EQ(BelowMount("/docker/x/y", "/docker/x"), "/y");
  EXPECT_EQ(BelowMount("/a", "/"), "/a");
  EXPECT_EQ(BelowMount("/../../a", "/"), "/") << "outside of the cgroup namespace";
}

// hardening: cgroup_path_applied.
TEST(ContainerLayout, NoPathLeavesItsBase) {
  EXPECT_EQ(NormalGroupPath("/a//b/./c", "/x"), "/a/b/c");
  EXPECT_EQ(NormalGroupPath("/../../a", "/x"), "/a");
  EXPECT_EQ(NormalGroupPath("/a/../..", "/x"), "/");
  EXPECT_EQ(NormalGroupPath("c", "/"), "/c");
  EXPECT_EQ(NormalGroupPath("c", "/x/y"), "/x/y/c");
  EXPECT_EQ(NormalGroupPath("../../c", "/x/y"), "/x/y/c");
  EXPECT_EQ(NormalGroupPath("../c", "/"), "/c");
}

TEST(ContainerLayout, UnitsHaveThreeParts) {
  const auto plain = ParseUnitName("", "id", "system.slice");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->slice, "system.slice");
  EXPECT_EQ(plain->unit, "hutch-id.scope");
  const auto named = ParseUnitName("machine-a.slice:libpod:id", "id", "system.slice");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->slice, "machine-a.slice");
  EXPECT_EQ(named->unit, "libpod-id.scope");
  EXPECT_EQ(ParseUnitName("::id", "id", "user.slice")->unit, "id.scope");
  for (const char* bad : {"/a/b", "a", "a:b", "a:b:c:d", "a.slice:b:", "a:b:c", "-a.slice:b:c"})
    EXPECT_EQ(ParseUnitName(bad, "id", "system.slice").error().code, Code::kInvalidArgument) << bad;
}

TEST(ContainerLayout, SlicesAreNested) {
  EXPECT_EQ(*SlicePath("a-b-c.slice"), "/a.slice/a-b.slice/a-b-c.slice");
  EXPECT_EQ(*SlicePath("system.slice"), "/system.slice");
  EXPECT_EQ(*SlicePath("-.slice"), "");
  for (const char* bad : {"a", "", ".slice", "a--b.slice", "a-.slice", "a/b.slice"})
    EXPECT_FALSE(SlicePath(bad)) << bad;
}

}  // namespace
}  // namespace hutch::cgroups
