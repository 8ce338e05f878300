#include "cgroups/layout.h"

#include <gtest/gtest.h>

namespace hutch::cgroups {
namespace {

using Roots = std::vector<std::pair<std::string, std::string>>;

constexpr char kPureV2[] =
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 21 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

constexpr char kHybrid[] =
    "40 21 0:30 / /sys/fs/cgroup rw shared:3 - tmpfs tmpfs rw,mode=755\n"
    "41 40 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
    "42 40 0:32 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
    "43 40 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "44 40 0:34 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "45 40 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(Layout, PureV2WhenTheTreeHasEveryRequiredController) {
  const auto layout = PlanLayout(ParseCgroupMounts(kPureV2), "cpuset cpu io memory pids\n");
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->mode, Mode::kV2);
  EXPECT_EQ(layout->v2_root, "/sys/fs/cgroup");
  EXPECT_TRUE(layout->v1_roots.empty());
}

TEST(Layout, HybridTakesLimitsFromV1AndKnowsCombinedMounts) {
  const auto layout = PlanLayout(ParseCgroupMounts(kHybrid), "hugetlb\n");
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->mode, Mode::kHybrid);
  EXPECT_EQ(layout->v2_root, "/sys/fs/cgroup/unified");
  EXPECT_EQ(layout->v1_roots, (Roots{{"memory", "/sys/fs/cgroup/memory"},
                                     {"pids", "/sys/fs/cgroup/pids"},
                                     {"cpu", "/sys/fs/cgroup/cpu,cpuacct"}}));
}

TEST(Layout, BlkioIsUsedWhereItIsMounted) {
  const std::string text =
      std::string(kHybrid) + "46 40 0:36 / /mnt/my\\040io rw - cgroup cgroup rw,blkio\n";
  const auto layout = PlanLayout(ParseCgroupMounts(text), "");
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->v1_roots.back(), (std::pair<std::string, std::string>("io", "/mnt/my io")));
}

TEST(Layout, WhatIsMissingIsNamed) {
  const auto no_v2 = PlanLayout(ParseCgroupMounts("21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), "");
  ASSERT_FALSE(no_v2);
  EXPECT_EQ(no_v2.error().code, Code::kUnsupported);
  EXPECT_NE(no_v2.error().what.find("cgroup v2"), std::string::npos);

  const auto no_cpu = PlanLayout(ParseCgroupMounts(kPureV2), "memory pids");
  ASSERT_FALSE(no_cpu);
  EXPECT_EQ(no_cpu.error().code, Code::kUnsupported);
  EXPECT_NE(no_cpu.error().what.find("/sys/fs/cgroup/cgroup.controllers"), std::string::npos);

  std::string no_pids = kHybrid;
  no_pids.replace(no_pids.find("rw,pids"), 7, "rw,none");
  const auto layout = PlanLayout(ParseCgroupMounts(no_pids), "");
  ASSERT_FALSE(layout);
  EXPECT_TRUE(layout.error().what.ends_with("has pids")) << layout.error().what;
}

TEST(Layout, BrokenLinesAreSkipped) {
  for (const char* text : {"", "\n", "- cgroup2", "1 2 3 4 5 6 -", "1 2 3 4 - cgroup2 a b",
                           "1 2 3 4 5 6 - cgroup2", "1 2 3 4 5 6 cgroup2 cgroup2 rw"})
    EXPECT_TRUE(ParseCgroupMounts(text).empty()) << text;
  EXPECT_EQ(ParseCgroupMounts("1 2 3 4 /a\\04 6 - cgroup2 x rw")[0].mount_point, "/a\\04");
}

TEST(Layout, ThisMachineHasOne) {
  const auto layout = DetectLayout();
  if (!layout) {
    EXPECT_EQ(layout.error().code, Code::kUnsupported) << layout.error().ToString();
  } else {
    EXPECT_EQ(layout->v2_root[0], '/');
  }
}

}  // namespace
}  // namespace hutch::cgroups
