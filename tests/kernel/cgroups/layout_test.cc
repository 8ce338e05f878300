// Which cgroup file systems a process can reach.
#include "cgroups/layout.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>

namespace hutch::cgroups {
namespace {

TEST(CgroupLayout, MountsBelowAnotherAreNotFound) {
  const auto before = VisibleCgroupMounts();
  ASSERT_TRUE(before) << before.error().ToString();
  ASSERT_FALSE(before->empty());
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(::mount("none", "/sys/fs/cgroup", "tmpfs", 0, nullptr), 0);
  const auto covered = VisibleCgroupMounts();
  ASSERT_TRUE(covered) << covered.error().ToString();
  for (const CgroupMount& mount : *covered)
    EXPECT_FALSE(mount.mount_point.starts_with("/sys/fs/cgroup")) << mount.mount_point;
  ASSERT_EQ(::mkdir("/sys/fs/cgroup/above", 0755), 0);
  ASSERT_EQ(::mount("none", "/sys/fs/cgroup/above", "cgroup2", 0, nullptr), 0);
  const auto after = VisibleCgroupMounts();
  ASSERT_TRUE(after) << after.error().ToString();
  const auto above = std::count_if(after->begin(), after->end(), [](const CgroupMount& mount) {
    return mount.mount_point == "/sys/fs/cgroup/above" && mount.is_v2;
  });
  EXPECT_EQ(above, 1);
}

}  // namespace
}  // namespace hutch::cgroups
