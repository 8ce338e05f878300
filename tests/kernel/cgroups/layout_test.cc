// Which cgroup file systems a process can reach.
#include "cgroups/layout.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>

namespace hutch::cgroups {
namespace {

TEST(CgroupLayout, MountsBelowAnotherAreNotFound) {
  const auto before = VisibleCgroupMounts();
  ASSERT_TRUE(before) << before.error().ToString();
  ASSERT_FALSE(before->empty());
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  ASSERT_EQ(::mount("none", "/sys/fs/cgroup", "cgroup2", 0, nullptr), 0);
  const auto after = VisibleCgroupMounts();
  ASSERT_TRUE(after) << after.error().ToString();
  const auto covered = std::count_if(after->begin(), after->end(), [](const CgroupMount& mount) {
    return mount.mount_point.starts_with("/sys/fs/cgroup/");
  });
  EXPECT_EQ(covered, 0);
  const auto top = std::count_if(after->begin(), after->end(), [](const CgroupMount& mount) {
    return mount.mount_point == "/sys/fs/cgroup" && mount.is_v2;
  });
  EXPECT_EQ(top, 1);
}

}  // namespace
}  // namespace hutch::cgroups
