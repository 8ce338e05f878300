// A container's groups on the real kernel: pure v2 or hybrid, whatever this host has.
#include "cgroups/container_group.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "cgroups/container_layout.h"
#include "tests/kernel/cgroups/groups_fixture.h"

namespace hutch::cgroups {
namespace {

constexpr int64_t kMiB = 1 << 20;

class ContainerGroupTest : public testing::Test {
 protected:
  void SetUp() override { parent_ = "/hutch-oci-test-" + std::to_string(::getpid()); }
  void TearDown() override {
    for (const pid_t pid : children_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (group_) {
      EXPECT_TRUE(group_->Remove());
    }
    const Hierarchies found = Must(FindHierarchies());
    EXPECT_FALSE(PathExists(found.v2_root + parent_));
    for (const auto& v1 : found.v1) EXPECT_FALSE(PathExists(v1.root + parent_)) << v1.root;
  }

  ContainerGroup& Make(const std::string& path = "/a/c") {
    group_ = Must(ContainerGroup::Plan({.container_id = "c", .cgroups_path = parent_ + path}));
    const Status made = group_->Make();
    EXPECT_TRUE(made) << made.error().ToString();
    return *group_;
  }
  pid_t Clone(int group_fd, const Body& body) {
    clone_args args = {};
    args.flags = group_fd >= 0 ? CLONE_INTO_CGROUP : 0;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<uint64_t>(group_fd);
    const long pid = sys::Clone3(&args);
    if (pid == 0) ::_exit(body());
    EXPECT_GT(pid, 0) << ErrnoName(static_cast<int>(-pid));
    children_.push_back(static_cast<pid_t>(pid));
    return static_cast<pid_t>(pid);
  }
  pid_t Start(ContainerGroup& group, const Body& body = SleepForEver) {
    const pid_t pid = Clone(group.clone_fd(), body);
    const Status attached = group.Attach(pid, BornIn::kGroup);
    EXPECT_TRUE(attached) << attached.error().ToString();
    return pid;
  }
  // Waits for the child's end: exit code, or 128 + signal.
  int Wait(pid_t pid) {
    std::erase(children_, pid);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  static int SleepForEver() {
    while (true) ::pause();
  }
  // The content of a file where this host has the controller.
  std::string Read(const ContainerGroup& group, const char* controller, const std::string& v2_file,
                   const std::string& v1_file) const {
    for (const GroupPlace::V1& v1 : group.place().v1)
      if (std::find(v1.controllers.begin(), v1.controllers.end(), controller) !=
          v1.controllers.end())
        return std::string(Trim(Must(ReadFile(v1.path + "/" + v1_file, 65536))));
    return std::string(Trim(Must(ReadFile(group.place().v2_path + "/" + v2_file, 65536))));
  }
  static bool Hybrid(const ContainerGroup& group) { return !group.place().v1.empty(); }

  std::string parent_;
  std::optional<ContainerGroup> group_;
  std::vector<pid_t> children_;
};

TEST_F(ContainerGroupTest, AProcessIsInEveryHierarchy) {
  ContainerGroup& group = Make();
  const pid_t pid = Start(group);
  const std::string text = Must(ReadFile("/proc/" + std::to_string(pid) + "/cgroup", 65536));
  for (const std::string& line : Split(Trim(text), '\n'))
    EXPECT_TRUE(line.ends_with(":" + parent_ + "/a/c")) << line;
  EXPECT_EQ(Must(group.Pids()), std::vector<pid_t>{pid});
}

TEST_F(ContainerGroupTest, EveryLimitIsWrittenAndConverted) {
  ContainerGroup& group = Make();
  Start(group);
  oci::ContainerResources r;
  r.memory = oci::MemoryResources{};
  r.memory->limit = 64 * kMiB;
  r.memory->reservation = 32 * kMiB;
  r.memory->swap = 64 * kMiB;
  r.cpu = oci::CpuResources{};
  r.cpu->shares = 2048;
  r.cpu->quota = 50000;
  r.cpu->period = 200000;
  r.cpu->cpus = "0";
  r.pids_limit = 20;
  const Status applied = group.Apply(r, DeviceRules::kApply);
  ASSERT_TRUE(applied) << applied.error().ToString();
  const bool hybrid = Hybrid(group);
  EXPECT_EQ(Read(group, "memory", "memory.max", "memory.limit_in_bytes"), "67108864");
  EXPECT_EQ(Read(group, "memory", "memory.low", "memory.soft_limit_in_bytes"), "33554432");
  EXPECT_EQ(Read(group, "cpu", "cpu.weight", "cpu.shares"), hybrid ? "2048" : "174");
  EXPECT_EQ(Read(group, "cpu", "cpu.max", "cpu.cfs_quota_us"), hybrid ? "50000" : "50000 200000");
  EXPECT_EQ(Read(group, "cpuset", "cpuset.cpus", "cpuset.cpus"), "0");
  EXPECT_EQ(Read(group, "pids", "pids.max", "pids.max"), "20");

  oci::ContainerResources more;
  more.memory = oci::MemoryResources{};
  more.memory->limit = 128 * kMiB;
  more.memory->swap = 128 * kMiB;
  more.cpu = oci::CpuResources{};
  more.cpu->period = 100000;
  more.pids_limit = -1;
  const Status raised = group.Apply(more, DeviceRules::kLeave);
  ASSERT_TRUE(raised) << raised.error().ToString();
  EXPECT_EQ(Read(group, "memory", "memory.max", "memory.limit_in_bytes"), "134217728");
  EXPECT_EQ(Read(group, "cpu", "cpu.max", "cpu.cfs_period_us"), hybrid ? "100000" : "50000 100000");
  EXPECT_EQ(Read(group, "pids", "pids.max", "pids.max"), "max");
}

TEST_F(ContainerGroupTest, WhatTheKernelRefusesNamesItsField) {
  ContainerGroup& group = Make();
  oci::ContainerResources r;
  r.cpu = oci::CpuResources{};
  r.cpu->cpus = "9999";
  const Status applied = group.Apply(r, DeviceRules::kLeave);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().field, "linux.resources.cpu.cpus");
  r = {};
  r.unified["cgroup.nonsense"] = "1";
  EXPECT_EQ(group.Apply(r, DeviceRules::kLeave).error().code, Code::kUnsupported);
}

TEST_F(ContainerGroupTest, UnifiedIsWrittenVerbatim) {
  ContainerGroup& group = Make();
  oci::ContainerResources r;
  r.unified["cgroup.max.depth"] = "3";
  const Status applied = group.Apply(r, DeviceRules::kLeave);
  ASSERT_TRUE(applied) << applied.error().ToString();
  EXPECT_EQ(Trim(Must(ReadFile(group.place().v2_path + "/cgroup.max.depth", 64))), "3");
}

TEST_F(ContainerGroupTest, OnlyTheNamedDevicesCanBeOpened) {
  ContainerGroup& group = Make();
  Pipe go = Must(MakePipe());
  const pid_t pid = Start(group, [&] {
    char byte = 0;
    if (::read(go.read.get(), &byte, 1) != 1) return 9;
    if (::open("/dev/null", O_RDWR | O_CLOEXEC) < 0) return 1;
    if (::open("/dev/zero", O_RDONLY | O_CLOEXEC) < 0) return 2;
    const std::string node = "/dev/hutch-test-" + std::to_string(::getpid());
    if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 11)) != 0) return 3;  // kmsg
    const bool opened = ::open(node.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) >= 0;
    const int error = errno;
    ::unlink(node.c_str());
    return opened ? 4 : error == EPERM ? 0 : 5;
  });
  oci::ContainerResources r;
  r.devices.emplace_back();  // deny everything
  r.devices.back().access = "rwm";
  ASSERT_TRUE(group.Apply(r, DeviceRules::kApply));
  const Status again = group.Apply(r, DeviceRules::kApply);
  ASSERT_TRUE(again) << again.error().ToString();
  ASSERT_EQ(::write(go.write.get(), "g", 1), 1);
  EXPECT_EQ(Wait(pid), 0);
}

TEST_F(ContainerGroupTest, AHoleInAWiderRuleIsADenial) {
  ContainerGroup& group = Make();
  Pipe go = Must(MakePipe());
  const pid_t pid = Start(group, [&] {
    char byte = 0;
    if (::read(go.read.get(), &byte, 1) != 1) return 9;
    if (::open("/dev/full", O_RDONLY | O_CLOEXEC) < 0) return 1;
    const std::string node = "/dev/hutch-test-" + std::to_string(::getpid());
    if (::mknod(node.c_str(), S_IFCHR | 0600, makedev(1, 11)) != 0) return 3;
    const bool opened = ::open(node.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) >= 0;
    ::unlink(node.c_str());
    return opened ? 4 : 0;
  });
  oci::ContainerResources r;
  r.devices.emplace_back();
  r.devices.back().allow = true;
  r.devices.back().type = "c";
  r.devices.back().major = 1;
  r.devices.emplace_back();
  r.devices.back().type = "c";
  r.devices.back().major = 1;
  r.devices.back().minor = 11;
  const Status applied = group.Apply(r, DeviceRules::kApply);
  ASSERT_TRUE(applied) << applied.error().ToString();
  ASSERT_EQ(::write(go.write.get(), "g", 1), 1);
  EXPECT_EQ(Wait(pid), 0);
}

TEST_F(ContainerGroupTest, FrozenIsFrozenAndCanBeKilled) {
  ContainerGroup& group = Make();
  const pid_t pid = Start(group);
  EXPECT_FALSE(Must(group.Frozen()));
  ASSERT_TRUE(group.Freeze(kPatienceMs));
  EXPECT_TRUE(Must(group.Frozen()));
  ASSERT_TRUE(group.Thaw());
  EXPECT_FALSE(Must(group.Frozen()));
  ASSERT_TRUE(group.Freeze(kPatienceMs));
  ASSERT_TRUE(group.Kill());
  EXPECT_EQ(Wait(pid), 128 + SIGKILL);
}

TEST_F(ContainerGroupTest, GroupsMadeInsideGoWithIt) {
  ContainerGroup& group = Make();
  ASSERT_TRUE(MakeDirectories(group.place().v2_path + "/x/y", 0755));
  Start(group);
  ASSERT_TRUE(group.Signal(SIGTERM));
  EXPECT_EQ(Wait(children_.front()), 128 + SIGTERM);
  ContainerGroup again =
      Must(ContainerGroup::Open(Must(ParseGroupPlace(PrintGroupPlace(group.place())))));
  EXPECT_TRUE(again.exists());
  ASSERT_TRUE(again.Remove());
  EXPECT_TRUE(again.Remove()) << "a second time";
  EXPECT_FALSE(Must(ContainerGroup::Open(group.place())).exists());
}

TEST_F(ContainerGroupTest, ANeighboursParentStays) {
  ContainerGroup& group = Make();
  ContainerGroup other =
      Must(ContainerGroup::Plan({.container_id = "d", .cgroups_path = parent_ + "/a/d"}));
  ASSERT_TRUE(other.Make());
  ASSERT_TRUE(group.Remove());
  EXPECT_TRUE(PathExists(other.place().v2_path));
  ASSERT_TRUE(other.Remove());
  ASSERT_TRUE(group.Remove()) << "the parents that it made";
}

TEST_F(ContainerGroupTest, AnInhabitedGroupIsRefused) {
  ContainerGroup& group = Make();
  Start(group);
  ContainerGroup other =
      Must(ContainerGroup::Plan({.container_id = "c", .cgroups_path = parent_ + "/a/c"}));
  const Status made = other.Make();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kExists);
  EXPECT_EQ(Must(group.Pids()).size(), 1u) << "left alone";
}

// The kernel kills what is cloned into a group that was killed once.
TEST_F(ContainerGroupTest, AKilledGroupIsJoinedByMoving) {
  {
    ContainerGroup first =
        Must(ContainerGroup::Plan({.container_id = "c", .cgroups_path = parent_ + "/a/c"}));
    ASSERT_TRUE(first.Make());
    ASSERT_TRUE(first.Kill());
  }
  ContainerGroup& group = Make();
  EXPECT_EQ(group.clone_fd(), -1);
  const pid_t pid = Clone(-1, SleepForEver);
  ASSERT_TRUE(group.Attach(pid, BornIn::kElsewhere));
  EXPECT_EQ(Must(group.Pids()), std::vector<pid_t>{pid});
  EXPECT_EQ(::kill(pid, 0), 0);
  ASSERT_TRUE(group.Kill());
  Wait(pid);
  ASSERT_TRUE(group.Remove());
  for (const char* path : {"/a", ""}) {
    const Hierarchies found = Must(FindHierarchies());
    ::rmdir((found.v2_root + parent_ + path).c_str());
    for (const auto& v1 : found.v1) ::rmdir((v1.root + parent_ + path).c_str());
  }
}

TEST_F(ContainerGroupTest, ExecJoinsAndGoesToTheFirstProcessWhenItMust) {
  ContainerGroup& group = Make();
  const pid_t init = Start(group);
  ASSERT_TRUE(MakeDirectories(group.place().v2_path + "/inner", 0755));
  const pid_t second = Clone(-1, SleepForEver);
  ASSERT_TRUE(group.AttachExec(second, BornIn::kElsewhere, init, {}));
  EXPECT_EQ(Must(group.Pids()).size(), 2u);
  if (Hybrid(group)) return;
  const std::string inner = group.place().v2_path + "/inner";
  for (const pid_t pid : {init, second})
    ASSERT_TRUE(WriteExisting(inner + "/cgroup.procs", std::to_string(pid)));
  ASSERT_TRUE(WriteExisting(group.place().v2_path + "/cgroup.subtree_control", "+pids"));
  const pid_t third = Clone(-1, SleepForEver);
  const Status joined = group.AttachExec(third, BornIn::kElsewhere, init, {});
  ASSERT_TRUE(joined) << joined.error().ToString();
  EXPECT_NE(Must(ReadFile(inner + "/cgroup.procs", 4096)).find(std::to_string(third)),
            std::string::npos);
  const pid_t fourth = Clone(-1, SleepForEver);
  ASSERT_TRUE(group.AttachExec(fourth, BornIn::kElsewhere, init, {"./inner/"}));
  for (const char* outside : {"..", "../../inner", "inner/..", "pids:.."})
    EXPECT_FALSE(group.AttachExec(fourth, BornIn::kElsewhere, init, {outside})) << outside;
  EXPECT_FALSE(group.AttachExec(fourth, BornIn::kElsewhere, init, {"nowhere"}));
}

TEST_F(ContainerGroupTest, StatsHaveTheShapeThatEnginesRead) {
  ContainerGroup& group = Make();
  Start(group, [] {
    // Pages taken before it was attached stay charged to where it was then.
    while (std::string(8 * kMiB, 'x')[1] == 'x') {
    }
    return 0;
  });
  oci::Json stats;
  EXPECT_TRUE(Eventually([&] {
    stats = Must(group.ReadStats());
    return stats["cpu"]["usage"]["total"] > 0 && stats["memory"]["usage"]["usage"] > kMiB;
  })) << stats.dump();
  EXPECT_EQ(stats["pids"]["current"].get<uint64_t>(), 1u);
  EXPECT_GT(stats["memory"]["raw"].size(), 10u);
  EXPECT_FALSE(stats["cpuset"]["cpus"].is_null());
  EXPECT_TRUE(stats["blkio"].is_object());
  EXPECT_EQ(group.OomKills(), 0u);
}

TEST_F(ContainerGroupTest, SystemdIsRefusedWhereItDoesNotRun) {
  if (PathExists("/run/systemd/system")) return;  // then container_scope_test.cc has its say
  const auto group = ContainerGroup::Plan({.container_id = "c",
                                           .cgroups_path = "system.slice:hutch:c",
                                           .manager = GroupManager::kSystemd});
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code, Code::kUnsupported);
  EXPECT_NE(group.error().what.find("systemd does not run here"), std::string::npos);
}

// An ordinary user without a delegated group.
TEST_F(ContainerGroupTest, WithoutPrivilegeThereIsNoGroupAndNoLimit) {
  const int code = Wait(Clone(-1, [&] {
    if (::setresgid(kTenantUid, kTenantUid, kTenantUid) != 0) return 1;
    if (::setresuid(kTenantUid, kTenantUid, kTenantUid) != 0) return 2;
    auto group = ContainerGroup::Plan(
        {.container_id = "c", .cgroups_path = parent_ + "/c", .user = GroupUser::kOrdinary});
    if (!group || !group->Make() || group->exists() || group->clone_fd() != -1) return 3;
    if (!group->Attach(::getpid(), BornIn::kElsewhere)) return 4;
    oci::ContainerResources r;
    r.pids_limit = -1;
    if (!group->Apply(r, DeviceRules::kApply)) return 5;
    r.pids_limit = 10;
    const Status limited = group->Apply(r, DeviceRules::kApply);
    if (limited || limited.error().code != Code::kUnsupported) return 6;
    if (group->Kill().error().code != Code::kNotFound) return 7;
    if (group->Frozen().value() || !group->Remove()) return 8;
    return 0;
  }));
  EXPECT_EQ(code, 0);
}

TEST_F(ContainerGroupTest, RootIsRefusedWhatItMayNotDo) {
  const int code = Wait(Clone(-1, [&] {
    if (::setresuid(kTenantUid, kTenantUid, kTenantUid) != 0) return 2;
    auto group = ContainerGroup::Plan({.container_id = "c", .cgroups_path = parent_ + "/c"});
    return group && !group->Make() ? 0 : 3;
  }));
  EXPECT_EQ(code, 0);
}

TEST_F(ContainerGroupTest, AFailedMakeLeavesNothing) {
  ContainerGroup& group = Make("/a/c");
  Start(group);
  ContainerGroup other =
      Must(ContainerGroup::Plan({.container_id = "d", .cgroups_path = parent_ + "/b/two\nlines"}));
  EXPECT_FALSE(other.Make()) << "the kernel refuses such a name";
  EXPECT_FALSE(PathExists(Must(FindHierarchies()).v2_root + parent_ + "/b"));
}

TEST_F(ContainerGroupTest, ItsRootMayMakeGroupsAndNoLimits) {
  ContainerGroup& group = Make();
  ASSERT_TRUE(group.DelegateTo(kTenantUid));
  if (Hybrid(group)) return;  // v1 knows no safe delegation
  struct stat st {};
  ASSERT_EQ(::stat(group.place().v2_path.c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, kTenantUid);
  ASSERT_EQ(::stat((group.place().v2_path + "/memory.max").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 0u);
}

}  // namespace
}  // namespace hutch::cgroups
