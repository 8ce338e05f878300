// Limits: written, obeyed, counted, and out of the tenant's reach.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/limits.h"
#include "tests/kernel/cgroups/groups_fixture.h"

namespace hutch::cgroups {
namespace {

constexpr uint64_t kMiB = 1u << 20;

int SleepForEver() {
  while (true) ::pause();
}

class LimitsTest : public GroupsTest {
 protected:
  // A limit file of sandbox `id`, in the group where the mode has it.
  std::string LimitFile(const std::string& id, const char* controller, const char* v2_file,
                        const char* v1_file) const {
    if (tree_->mode() == Mode::kV2) return V2Path(id + "/work/" + v2_file);
    for (const auto& [name, root] : tree_->layout().v1_roots)
      if (name == controller) return root + tree_->parent() + "/sandboxes/" + id + "/" + v1_file;
    return "";
  }
  std::string Content(const std::string& path) const {
    return std::string(Trim(Must(ReadFile(path, 65536))));
  }
  bool hybrid() const { return tree_->mode() == Mode::kHybrid; }
};

// Touches `bytes` of fresh memory.
int Eat(uint64_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  for (uint64_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  return 0;
}

TEST_F(LimitsTest, EveryLimitIsWritten) {
  const SandboxGroup sandbox = MakeSandbox("sb-all");
  ASSERT_TRUE(sandbox.ApplyLimits(
      Limits{.memory_bytes = 64 * kMiB, .pids = 20, .cpu_quota_us = 50000, .cpu_weight = 200}));
  const auto read = [&](const char* controller, const char* v2, const char* v1) {
    return Content(LimitFile("sb-all", controller, v2, v1));
  };
  EXPECT_EQ(read("memory", "memory.max", "memory.limit_in_bytes"), std::to_string(64 * kMiB));
  EXPECT_EQ(read("pids", "pids.max", "pids.max"), hybrid() ? "21" : "20");
  EXPECT_EQ(read("cpu", "cpu.max", "cpu.cfs_quota_us"), hybrid() ? "50000" : "50000 100000");
  EXPECT_EQ(read("cpu", "cpu.weight", "cpu.shares"), hybrid() ? "2048" : "200");
  const std::string swap =
      LimitFile("sb-all", "memory", "memory.swap.max", "memory.memsw.limit_in_bytes");
  if (PathExists(swap)) {
    EXPECT_EQ(Content(swap), hybrid() ? std::to_string(64 * kMiB) : "0");
  }

  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 128 * kMiB})) << "raised";
  EXPECT_EQ(read("memory", "memory.max", "memory.limit_in_bytes"), std::to_string(128 * kMiB));
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 32 * kMiB})) << "lowered";
  EXPECT_EQ(read("memory", "memory.max", "memory.limit_in_bytes"), std::to_string(32 * kMiB));
  EXPECT_EQ(read("pids", "pids.max", "pids.max"), hybrid() ? "21" : "20") << "absent: no change";
}

TEST_F(LimitsTest, AgentHasItsOwnSmallLimits) {
  MakeSandbox("sb-agent");
  if (hybrid()) return;  // v1 has one group, for the sandbox as a whole
  EXPECT_EQ(Content(V2Path("sb-agent/agent/memory.max")), std::to_string(kAgentMemoryBytes));
  EXPECT_EQ(Content(V2Path("sb-agent/agent/pids.max")), std::to_string(kAgentPids));
}

TEST_F(LimitsTest, RefusedValuesChangeNothing) {
  const SandboxGroup sandbox = MakeSandbox("sb-refused");
  const std::string pids = LimitFile("sb-refused", "pids", "pids.max", "pids.max");
  for (const Limits& bad :
       {Limits{.memory_bytes = 0, .pids = 5}, Limits{.pids = 5, .cpu_quota_us = 999},
        Limits{.pids = 5, .cpu_quota_us = 5000, .cpu_period_us = 1},
        Limits{.pids = 5, .cpu_weight = 0}, Limits{.pids = 5, .cpu_weight = 10001},
        Limits{.memory_bytes = 64 * kMiB, .pids = 0}}) {
    const Status applied = sandbox.ApplyLimits(bad);
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().code, Code::kInvalidArgument) << applied.error().ToString();
    EXPECT_TRUE(applied.error().field.starts_with("limits.")) << applied.error().field;
    EXPECT_EQ(Content(pids), "max");
  }
}

TEST_F(LimitsTest, KernelRefusalNamesFileAndValue) {
  const SandboxGroup sandbox = MakeSandbox("sb-text");
  oci::LinuxResources no_such_device;
  no_such_device.io.resize(1);
  no_such_device.io[0].major = 511;
  no_such_device.io[0].minor = 77;
  no_such_device.io[0].read_bps = 1000000;
  const Status applied = sandbox.ApplyLimits(no_such_device);
  ASSERT_FALSE(applied);
  const std::string text = applied.error().ToString();
  const auto& usable = tree_->controllers();
  if (std::find(usable.begin(), usable.end(), "io") == usable.end()) {
    EXPECT_EQ(applied.error().code, Code::kUnsupported);
    EXPECT_NE(text.find(" io "), std::string::npos) << text;
    return;
  }
  EXPECT_EQ(applied.error().code, Code::kInvalidArgument) << text;
  EXPECT_NE(text.find(LimitFile("sb-text", "io", "io.max", "blkio.throttle.read_bps_device")),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("511:77 "), std::string::npos) << text;
  EXPECT_NE(text.find("1000000"), std::string::npos) << text;
}

TEST_F(LimitsTest, ForkBombStopsAtThePidsLimit) {
  SandboxGroup sandbox = MakeSandbox("sb-bomb");
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.pids = 24}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  Pipe report = Must(MakePipe());
  const pid_t agent = StartAgent(sandbox, {group.fd()}, [&] {
    uint32_t made = 1;
    for (; made < 1000; ++made) {
      const pid_t pid = ::fork();
      if (pid == 0) return SleepForEver();
      if (pid < 0) break;
    }
    const bool refused = errno == EAGAIN;
    if (::write(report.write.get(), &made, sizeof made) != sizeof made || !refused) return 1;
    return SleepForEver();
  });
  uint32_t made = 0;
  ASSERT_EQ(::read(report.read.get(), &made, sizeof made), static_cast<ssize_t>(sizeof made));
  EXPECT_EQ(made, 24u) << "the tenant gets exactly what was asked for";
  const Stats stats = sandbox.ReadStats();
  EXPECT_GE(stats.pids_limit_hits, 1u);
  EXPECT_EQ(stats.pids_current, hybrid() ? 25u : 24u);
  ASSERT_TRUE(group.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL) << "the agent outlives the bomb and says how it ended";
  ASSERT_TRUE(Eventually([&] { return !Must(group.Populated()); }));
  EXPECT_TRUE(group.Remove());
}

TEST_F(LimitsTest, OutOfMemoryKillsTheTenantAndIsCounted) {
  SandboxGroup sandbox = MakeSandbox("sb-oom");
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 24 * kMiB}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  ProcessGroup small = Must(sandbox.CreateProcess("p2"));
  EXPECT_EQ(Run(sandbox, small, [] { return Eat(4 * kMiB); }), 0);
  EXPECT_EQ(sandbox.ReadStats().memory_events.oom_kill, 0u);
  EXPECT_EQ(Run(sandbox, group,
                [] {
                  // As processes do it where agent and tenant share a limit: the tenant goes first.
                  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
                  if (fd < 0 || ::write(fd, "1000", 4) != 4) return 3;
                  return Eat(96 * kMiB);
                }),
            128 + SIGKILL);
  const Stats stats = sandbox.ReadStats();
  EXPECT_GE(stats.memory_events.oom_kill, 1u);
  if (!hybrid()) {
    EXPECT_GE(stats.memory_events.limit_hits, 1u);  // Linux 6.18 leaves v1's failcnt at 0
  }
  ASSERT_TRUE(stats.memory_peak_bytes.has_value());
  EXPECT_GE(*stats.memory_peak_bytes, 20 * kMiB);
  EXPECT_LE(*stats.memory_peak_bytes, 25 * kMiB);
  if (hybrid()) return;
  EXPECT_GE(group.ReadStats().memory_events.oom_kill, 1u);
  EXPECT_EQ(small.ReadStats().memory_events.oom_kill, 0u) << "the other process is not blamed";
}

TEST_F(LimitsTest, OutOfMemoryTakesTheWholeGroup) {
  SandboxGroup sandbox = MakeSandbox("sb-group");
  if (hybrid()) return;  // v1 has no memory.oom.group
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 24 * kMiB}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  EXPECT_EQ(Run(sandbox, group,
                [] {
                  if (::fork() == 0) return Eat(96 * kMiB);
                  return SleepForEver();
                }),
            128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Must(group.Populated()); }));
}

TEST_F(LimitsTest, MemoryLimitBelowUseIsRefused) {
  SandboxGroup sandbox = MakeSandbox("sb-below");
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 64 * kMiB}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  Pipe ready = Must(MakePipe());
  const pid_t agent = StartAgent(sandbox, {group.fd()}, [&] {
    if (Eat(32 * kMiB) != 0 || ::write(ready.write.get(), "r", 1) != 1) return 1;
    return SleepForEver();
  });
  char byte;
  ASSERT_EQ(::read(ready.read.get(), &byte, 1), 1);
  const Status lowered = sandbox.ApplyLimits(Limits{.memory_bytes = 8 * kMiB});
  ASSERT_FALSE(lowered);
  EXPECT_EQ(lowered.error().code, Code::kBadState) << lowered.error().ToString();
  EXPECT_TRUE(Must(group.Populated())) << "nobody was killed for it";
  EXPECT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 48 * kMiB}));
  ASSERT_TRUE(sandbox.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
}

TEST_F(LimitsTest, CpuQuotaThrottles) {
  SandboxGroup sandbox = MakeSandbox("sb-cpu");
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.cpu_quota_us = 10000}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  EXPECT_EQ(Run(sandbox, group,
                [] {
                  timespec start = {}, now = {};
                  ::clock_gettime(CLOCK_MONOTONIC, &start);
                  do ::clock_gettime(CLOCK_MONOTONIC, &now);
                  while (now.tv_sec - start.tv_sec < 2);
                  return 0;
                }),
            0);
  const Stats stats = sandbox.ReadStats();
  ASSERT_TRUE(stats.throttled_us && stats.cpu_usage_us && stats.cpu_user_us);
  EXPECT_GT(*stats.throttled_us, 100000u);
  EXPECT_GT(*stats.cpu_usage_us, 10000u);
  EXPECT_LT(*stats.cpu_usage_us, 800000u) << "a tenth of one CPU for 1 to 2 s, with room";
  const Stats process = group.ReadStats();
  ASSERT_TRUE(process.cpu_usage_us.has_value()) << "known for each process in both modes";
  EXPECT_GT(*process.cpu_usage_us, 10000u);
}

// Paths that `kTenantUid` could write, of all files in and below a group.
std::vector<std::string> Writable(const std::string& path) {
  std::vector<std::string> found;
  if (::access(path.c_str(), W_OK) == 0) found.push_back(path);
  const auto names = ListDirectory(path);
  if (!names) return found;
  for (const std::string& name : *names)
    for (std::string& below : Writable(path + "/" + name)) found.push_back(std::move(below));
  return found;
}

TEST_F(LimitsTest, DelegatedUidClonesIntoWorkAndWritesNothingElse) {
  SandboxGroup sandbox = MakeSandbox("sb-uid");
  ProcessGroup denied = Must(sandbox.CreateProcess("p0"));
  EXPECT_EQ(Run(
                sandbox, denied, [] { return 0; }, kTenantUid),
            120 + EACCES / 2)
      << "not before it was delegated";
  ASSERT_TRUE(sandbox.DelegateTo(kTenantUid));
  ASSERT_TRUE(sandbox.ApplyLimits(Limits{.memory_bytes = 64 * kMiB, .pids = 20}));
  ProcessGroup group = Must(sandbox.CreateProcess("p1"));
  EXPECT_EQ(Run(
                sandbox, group, [] { return ::getuid() == kTenantUid ? 0 : 1; }, kTenantUid),
            0);

  std::vector<std::string> roots = V1Paths("sb-uid");
  roots.push_back(V2Path("sb-uid"));
  const std::string expected =
      V2Path("sb-uid/cgroup.procs") + "\n" + V2Path("sb-uid/work/p1/cgroup.procs") + "\n";
  Pipe report = Must(MakePipe());
  const pid_t agent = StartAgent(
      sandbox, {group.fd()},
      [&] {
        std::string lines;
        for (const std::string& root : roots)
          for (const std::string& path : Writable(root)) lines += path + "\n";
        const bool made = ::mkdir((V2Path("sb-uid/work/p1/x")).c_str(), 0755) == 0 ||
                          ::mkdir((V2Path("sb-uid/work/x")).c_str(), 0755) == 0;
        return WriteAll(report.write.get(), lines) && !made ? 0 : 1;
      },
      kTenantUid);
  report.write.reset();
  EXPECT_EQ(Must(ReadAll(report.read.get(), 65536)), expected);
  EXPECT_EQ(Wait(agent), 0);
}

TEST_F(LimitsTest, ThousandProcessesFitTheAgentsMemory) {
  SandboxGroup sandbox = MakeSandbox("sb-many");
  if (hybrid()) return;  // v1 has no limit of the agent's own
  constexpr int kProcesses = 64;
  std::vector<ProcessGroup> groups;
  std::vector<int> fds;
  for (int i = 0; i < kProcesses; ++i) {
    groups.push_back(Must(sandbox.CreateProcess(std::to_string(i))));
    fds.push_back(groups.back().fd());
  }
  const pid_t agent = StartAgent(sandbox, fds, [&] {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    return 1;
  });
  ASSERT_TRUE(Eventually([&] { return sandbox.ReadStats().pids_current == uint64_t{kProcesses}; }));
  const auto executed = [&](const ProcessGroup& group) {
    const std::string pid(Trim(Must(ReadFileAt(group.fd(), "cgroup.procs", 64))));
    return Must(ReadFile("/proc/" + pid + "/comm", 64)) == "sleep\n";
  };
  for (const ProcessGroup& group : groups) ASSERT_TRUE(Eventually([&] { return executed(group); }));
  const auto bytes = ParseUint(Content(V2Path("sb-many/agent/memory.current")));
  ASSERT_TRUE(bytes);
  constexpr uint64_t kRemembered = 1024;  // processes an agent keeps track of
  EXPECT_LT(*bytes / kProcesses * kRemembered, kAgentMemoryBytes) << *bytes;
  RecordProperty("agent_bytes_per_process", static_cast<int>(*bytes / kProcesses));
  ASSERT_TRUE(sandbox.Kill());
  EXPECT_EQ(Wait(agent), 128 + SIGKILL);
}

}  // namespace
}  // namespace hutch::cgroups
