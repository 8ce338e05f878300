// Groups as such: made, entered, killed, frozen, found again and removed.
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "cgroups/limits.h"
#include "tests/kernel/cgroups/groups_fixture.h"

namespace hutch::cgroups {
namespace {

int SleepForEver() {
  while (true) ::pause();
}

bool Populated(const ProcessGroup& group) { return Must(group.Populated()); }

TEST_F(GroupsTest, ProcessIsInItsGroupAndEndsThere) {
  SandboxGroup sandbox = MakeSandbox("sb-one");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  const std::string expected = "0::" + tree_->parent() + "/sandboxes/sb-one/work/p1\n";
  EXPECT_EQ(Run(sandbox, group,
                [&] {
                  const auto text = ReadFile("/proc/self/cgroup", 65536);
                  return text && text->find(expected) != std::string::npos ? 0 : 1;
                }),
            0);
  EXPECT_FALSE(Populated(group));
  EXPECT_TRUE(group.Remove());
  EXPECT_TRUE(group.Remove()) << "already gone is success";
}

TEST_F(GroupsTest, KillTakesDescendantsAndLeavesTheOthersAlone) {
  SandboxGroup sandbox = MakeSandbox("sb-kill");
  ProcessGroup victim = Must(sandbox.CreateProcess("p1"));
  ProcessGroup other = Must(sandbox.CreateProcess("p2"));
  const pid_t agent = StartAgent(sandbox, {victim.fd(), other.fd()}, [] {
    if (::fork() == 0) ::setsid();  // a daemon of its own
    return SleepForEver();
  });
  ASSERT_TRUE(Eventually([&] { return Populated(victim) && Populated(other); }));
  ASSERT_TRUE(victim.Kill());
  EXPECT_TRUE(Eventually([&] { return !Populated(victim); }));
  EXPECT_TRUE(Populated(other));
  EXPECT_EQ(Must(sandbox.AgentPids()).size(), 1u) << "the agent survives a kill of a process";
  EXPECT_TRUE(victim.Remove());
  ASSERT_TRUE(sandbox.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
}

TEST_F(GroupsTest, KilledNameComesBackOnlyAfterRemove) {
  SandboxGroup sandbox = MakeSandbox("sb-reuse");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  ASSERT_TRUE(group.Kill());
  const auto again = sandbox.CreateProcess("p1");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kExists);
  ASSERT_TRUE(group.Remove());
  ProcessGroup fresh = Must(sandbox.CreateProcess("p1"));
  EXPECT_EQ(Run(sandbox, fresh, [] { return 0; }), 0) << "not killed at birth";

  ASSERT_TRUE(sandbox.Kill());
  const auto twice = tree_->Create("sb-reuse");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kExists);
  ASSERT_TRUE(sandbox.Remove());
  SandboxGroup reborn = MakeSandbox("sb-reuse");
  ProcessGroup process = Must(reborn.CreateProcess("p1"));
  EXPECT_EQ(Run(reborn, process, [] { return 0; }), 0);
}

TEST_F(GroupsTest, FreezeStopsAndThawGoesOn) {
  SandboxGroup sandbox = MakeSandbox("sb-freeze");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  Pipe beats = Must(MakePipe(O_NONBLOCK));
  const pid_t agent = StartAgent(sandbox, {group.fd()}, [&]() -> int {
    while (true)
      if (::write(beats.write.get(), "b", 1) == 1) ::usleep(1000);
  });
  const auto drain = [&] {
    char buffer[4096];
    ssize_t sum = 0, n;
    while ((n = ::read(beats.read.get(), buffer, sizeof buffer)) > 0) sum += n;
    return sum;
  };
  ASSERT_TRUE(Eventually([&] { return drain() > 0; }));
  ASSERT_TRUE(sandbox.Freeze());
  ASSERT_TRUE(Eventually([&] { return Must(sandbox.Frozen()); }));
  drain();
  ::usleep(50000);
  EXPECT_EQ(drain(), 0) << "a frozen process does nothing";
  ASSERT_TRUE(sandbox.Thaw());
  EXPECT_FALSE(Must(sandbox.Frozen()));
  EXPECT_TRUE(Eventually([&] { return drain() > 0; }));
  ASSERT_TRUE(sandbox.Freeze());
  ASSERT_TRUE(sandbox.Kill()) << "frozen or not";
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
}

TEST_F(GroupsTest, AnAgentGoesOnWhileItsSandboxIsFrozen) {
  SandboxGroup sandbox = MakeSandbox("sb-awake");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  const pid_t agent = StartAgent(sandbox, {group.fd()}, SleepForEver);
  ASSERT_TRUE(Eventually([&] { return Populated(group); }));
  const UniqueFd events = Must(sandbox.OpenFreezeEvents());
  ASSERT_TRUE(sandbox.Freeze());
  ASSERT_TRUE(Eventually([&] { return Must(sandbox.Frozen()); }));
  // It reaps what is killed while frozen, and ends by itself.
  ASSERT_TRUE(group.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL) << "the code of its process";
}

TEST_F(GroupsTest, WhatIsBornInAFrozenSandboxIsFrozen) {
  SandboxGroup sandbox = MakeSandbox("sb-born");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  ASSERT_TRUE(sandbox.Freeze());
  EXPECT_TRUE(Eventually([&] { return Must(sandbox.Frozen()); })) << "empty ones, too";
  const pid_t agent = StartAgent(sandbox, {group.fd()}, [] { return 0; });
  ASSERT_TRUE(Eventually([&] { return Populated(group); }));
  ::usleep(50000);
  EXPECT_TRUE(Must(sandbox.Frozen()));
  EXPECT_TRUE(Populated(group)) << "it would have ended";
  ASSERT_TRUE(sandbox.Thaw());
  EXPECT_EQ(Wait(agent), 0);
}

// A file without a name whose pages can be given back: what is on a tmpfs cannot.
UniqueFd FileOnADisk() {
  for (const char* directory : {"/tmp", "/var/tmp"}) {
    struct statfs kind {};
    if (::statfs(directory, &kind) != 0 || kind.f_type == TMPFS_MAGIC ||
        kind.f_type == OVERLAYFS_SUPER_MAGIC)
      continue;
    return UniqueFd(::open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  }
  return UniqueFd();
}

TEST_F(GroupsTest, ReclaimingGivesPageCacheBack) {
  SandboxGroup sandbox = MakeSandbox("sb-reclaim");
  const auto reclaimer = sandbox.OpenReclaimer();
  if (!reclaimer) {
    EXPECT_EQ(reclaimer.error().code, Code::kUnsupported);
    GTEST_SKIP() << "this kernel reclaims nothing on request";
  }
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 256u << 20}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  const UniqueFd file = FileOnADisk();
  ASSERT_TRUE(file.valid()) << "neither /tmp nor /var/tmp is on a disk";
  constexpr size_t kBytes = 32u << 20;
  const int written = Run(sandbox, group, [&] {
    const std::string block(1u << 20, 'x');
    for (size_t done = 0; done < kBytes; done += block.size())
      if (!WriteAll(file.get(), block)) return 1;
    return ::fsync(file.get()) == 0 ? 0 : 2;
  });
  ASSERT_EQ(written, 0);
  EXPECT_GT(Must(reclaimer->Run()), kBytes / 2);
}

TEST_F(GroupsTest, EventsTellTheEndOfAGroup) {
  SandboxGroup sandbox = MakeSandbox("sb-events");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  Pipe hold = Must(MakePipe());
  const pid_t agent = StartAgent(sandbox, {group.fd()}, [&] {
    char byte;
    return ::read(hold.read.get(), &byte, 1) == 1 ? 0 : 1;
  });
  ASSERT_TRUE(Eventually([&] { return Populated(group); }));
  const UniqueFd events = Must(group.OpenEvents());
  ASSERT_NE(Must(ReadAll(events.get(), 4096)).find("populated 1"), std::string::npos);
  ASSERT_EQ(::write(hold.write.get(), "x", 1), 1);
  EXPECT_EQ(Wait(agent), 0);
  pollfd changed = {events.get(), POLLPRI, 0};
  EXPECT_EQ(::poll(&changed, 1, kPatienceMs), 1);
  EXPECT_FALSE(Populated(group));
}

TEST_F(GroupsTest, RemoveOfALivingSandboxIsBadStateAndOfADeadOneLeavesNothing) {
  SandboxGroup sandbox = MakeSandbox("sb-remove");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  const pid_t agent = StartAgent(sandbox, {group.fd()}, SleepForEver);
  ASSERT_TRUE(Eventually([&] { return Populated(group); }));
  const Status busy = sandbox.Remove();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, Code::kBadState);
  EXPECT_NE(busy.error().what.find("sb-remove/work/p1"), std::string::npos) << busy.error().what;
  ASSERT_TRUE(sandbox.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
  ASSERT_TRUE(Eventually([&] { return sandbox.Remove().has_value(); }));
  EXPECT_FALSE(PathExists(V2Path("sb-remove")));
  for (const std::string& path : V1Paths("sb-remove")) EXPECT_FALSE(PathExists(path)) << path;
  EXPECT_TRUE(Must(tree_->List()).empty());
  EXPECT_TRUE(sandbox.Remove()) << "already gone is success";
  EXPECT_TRUE(sandbox.Kill()) << "already gone is success";
  const auto gone = tree_->OpenExisting("sb-remove");
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
}

TEST_F(GroupsTest, ANewDaemonFindsWhatIsThere) {
  SandboxGroup sandbox = MakeSandbox("sb-found");
  ProcessGroup group = Must(sandbox.CreateProcess("p7"));
  const pid_t agent = StartAgent(sandbox, {group.fd()}, SleepForEver);
  ASSERT_TRUE(Eventually([&] { return Populated(group); }));
  const Tree later = Must(Tree::Open(tree_->layout(), {.parent = tree_->parent()}));
  EXPECT_EQ(Must(later.List()), std::vector<std::string>{"sb-found"});
  SandboxGroup found = Must(later.OpenExisting("sb-found"));
  EXPECT_EQ(Must(found.AgentPids()), std::vector<pid_t>{agent});
  EXPECT_EQ(Must(found.ListProcesses()), std::vector<std::string>{"p7"});
  EXPECT_TRUE(Populated(Must(found.OpenProcess("p7"))));
  EXPECT_EQ(found.OpenProcess("p8").error().code, Code::kNotFound);
  ASSERT_TRUE(found.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
}

TEST_F(GroupsTest, OrphansOfAnyHierarchyAreFoundAndRemoved) {
  std::vector<std::string> roots = V1Paths("sb-orphan");
  roots.push_back(V2Path("sb-orphan"));
  for (const std::string& path : roots) {
    ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
    EXPECT_EQ(Must(tree_->List()), std::vector<std::string>{"sb-orphan"}) << path;
    EXPECT_EQ(tree_->Create("sb-orphan").error().code, Code::kExists) << path;
    EXPECT_TRUE(PathExists(path)) << "a create that fails removes only what it made";
    SandboxGroup orphan = Must(tree_->OpenExisting("sb-orphan"));
    EXPECT_TRUE(orphan.Kill());
    EXPECT_TRUE(orphan.Remove());
    EXPECT_TRUE(Must(tree_->List()).empty()) << path;
  }
}

TEST_F(GroupsTest, SpawnerLeavesAreFreshAndThoseOfTheDeadGo) {
  ino_t seen = 0;
  for (int i = 0; i < 2; ++i) {
    const UniqueFd leaf = Must(tree_->CreateSpawnerLeaf());
    struct stat st {};
    ASSERT_EQ(::fstat(leaf.get(), &st), 0);
    EXPECT_NE(st.st_ino, seen);
    seen = st.st_ino;
  }
  size_t leaves = 0;
  for (const std::string& name : Must(ListDirectory(tree_->layout().v2_root + tree_->parent())))
    leaves += name.starts_with("spawner-");
  EXPECT_EQ(leaves, 1u);
  EXPECT_TRUE(Must(tree_->List()).empty()) << "a leaf is no sandbox";
}

TEST_F(GroupsTest, NamesThatAreNoNamesAreRefused) {
  SandboxGroup sandbox = MakeSandbox("sb-names");
  for (const std::string name : {"", ".", "..", "a/b", "../up"}) {
    EXPECT_EQ(tree_->Create(name).error().code, Code::kInvalidArgument) << name;
    EXPECT_EQ(tree_->OpenExisting(name).error().code, Code::kInvalidArgument) << name;
    EXPECT_EQ(sandbox.CreateProcess(name).error().code, Code::kInvalidArgument) << name;
  }
  for (const std::string parent : {"hutch", "/", "/a/../b", "/a//b", "/a/"})
    EXPECT_EQ(Tree::Open(tree_->layout(), {.parent = parent}).error().code, Code::kInvalidArgument)
        << parent;
}

TEST_F(GroupsTest, DescendantsAndDepthAreBounded) {
  SandboxGroup sandbox = MakeSandbox("sb-bounds");
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  EXPECT_EQ(::mkdir(V2Path("sb-bounds/work/p1/deeper").c_str(), 0755), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_TRUE(WriteExisting(V2Path("sb-bounds/cgroup.max.descendants"), "4"));
  ASSERT_TRUE(sandbox.CreateProcess("p2"));
  EXPECT_EQ(sandbox.CreateProcess("p3").error().code, Code::kLimit);
}

}  // namespace
}  // namespace hutch::cgroups
