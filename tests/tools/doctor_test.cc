#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/doctor/check.h"

namespace hutch::tools {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Doctor, KernelReleases) {
  EXPECT_EQ(ParseKernelRelease("6.1.0-13-amd64"), (Version{6, 1}));
  EXPECT_LT(ParseKernelRelease("5.19.0"), (Version{6, 1}));
  EXPECT_GT(ParseKernelRelease("6.18.44-x"), (Version{6, 1}));
  EXPECT_EQ(ParseKernelRelease("unknown"), Version{});
}

constexpr const char* kV2 =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kHybrid =
    "32 31 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:28 / /sys/fs/cgroup/memory rw shared:2 master:1 - cgroup cgroup rw,memory\n"
    "34 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "35 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(Doctor, CgroupModes) {
  CgroupView view = ParseCgroupMounts(kV2);
  EXPECT_EQ(view.v2_mount, "/sys/fs/cgroup");
  EXPECT_EQ(JudgeCgroups(view).level, Level::kFail);  // no controllers anywhere
  view.v2_controllers = {"cpu", "memory", "pids"};
  EXPECT_EQ(JudgeCgroups(view).level, Level::kOk);

  view = ParseCgroupMounts(kHybrid);
  EXPECT_EQ(view.v2_mount, "/sys/fs/cgroup/unified");
  EXPECT_THAT(view.v1_controllers, ElementsAre("cpu", "memory", "pids"));
  EXPECT_EQ(JudgeCgroups(view).level, Level::kWarn);
  view.v1_controllers.pop_back();
  EXPECT_NE(JudgeCgroups(view).found.find("pids"), std::string::npos);

  EXPECT_EQ(JudgeCgroups(ParseCgroupMounts("")).level, Level::kFail);
}

TEST(Doctor, SubordinateIdRanges) {
  EXPECT_THAT(OverlappingRanges("alice:100000:65536\nbob:2147483648:65536\n"), IsEmpty());
  EXPECT_THAT(OverlappingRanges("a:1879048191:1\n"), IsEmpty());
  EXPECT_THAT(OverlappingRanges("a:1879048191:2\nb:2147483647:1\nbroken\n# c:1:2\n"),
              ElementsAre("a:1879048191:2", "b:2147483647:1"));
}

TEST(Doctor, MountsOverProc) {
  EXPECT_THAT(MountsBelowProc("25 24 0:5 / /proc rw - proc proc rw\n"
                              "26 25 0:6 / /proc/sys/fs/binfmt_misc rw - binfmt_misc b rw\n"),
              IsEmpty());
  EXPECT_THAT(MountsBelowProc("27 25 0:7 / /proc/kcore ro - tmpfs tmpfs ro\n"),
              ElementsAre("/proc/kcore"));
}

TEST(Doctor, MissingOptionsAreNamedWithTheModesThatNeedThem) {
  EXPECT_EQ(JudgeFilter({}).level, Level::kOk);
  const Finding open = JudgeFilter({{"CONFIG_NFT_MASQ", FilterUse::kOpen}});
  EXPECT_EQ(open.level, Level::kWarn);
  EXPECT_EQ(open.found, "missing: CONFIG_NFT_MASQ; mode open cannot be used");
  EXPECT_NE(open.fix.find("CONFIG_NFT_MASQ"), std::string::npos);
  EXPECT_EQ(
      JudgeFilter({{"CONFIG_NFT_MASQ", FilterUse::kOpen}, {"CONFIG_NFT_REDIR", FilterUse::kAll}})
          .found,
      "missing: CONFIG_NFT_MASQ, CONFIG_NFT_REDIR; no mode but none can be used");
}

TEST(Doctor, ForwardingNamesTheSetting) {
  EXPECT_EQ(JudgeForwarding("1", "1").level, Level::kOk);
  EXPECT_EQ(JudgeForwarding("1", "").level, Level::kOk);
  EXPECT_EQ(JudgeForwarding("", "").level, Level::kWarn);
  const Finding v4 = JudgeForwarding("0", "1"), v6 = JudgeForwarding("1", "0");
  EXPECT_EQ(v4.level, Level::kWarn);
  EXPECT_NE(v4.fix.find("sysctl -w net.ipv4.ip_forward=1, "), std::string::npos);
  EXPECT_EQ(v6.level, Level::kWarn);
  EXPECT_NE(v6.fix.find("sysctl -w net.ipv6.conf.all.forwarding=1, "), std::string::npos);
}

TEST(Doctor, FirewallsThatDropWhatIsForwarded) {
  const auto found = DroppingForwardChains(
      R"({"nftables": [{"metainfo": {"json_schema_version": 1}}, {"chain": [1]}, {"chain": {}},
        {"chain": {"family": "inet", "table": "a", "name": "plain", "handle": 1}},
        {"chain": {"family": "inet", "table": "a", "name": "in", "type": "filter",
                   "hook": "input", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "a", "name": "open", "type": "filter",
                   "hook": "forward", "prio": 0, "policy": "accept"}},
        {"chain": {"family": "bridge", "table": "a", "name": "b", "type": "filter",
                   "hook": "forward", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter",
                   "hook": "forward", "prio": 0, "policy": "drop"}}]})");
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().family + " " + found->front().table + " " + found->front().name,
            "ip filter FORWARD");
  EXPECT_FALSE(DroppingForwardChains("netlink: Error").has_value());
  EXPECT_FALSE(DroppingForwardChains("[]").has_value());
}

}  // namespace
}  // namespace hutch::tools
