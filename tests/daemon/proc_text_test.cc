#include "daemon/proc_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/file.h"
#include "daemon/cpu_turns.h"
#include "daemon/limits.h"
#include "daemon/live_proc.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kMiB = 1u << 20;

std::map<std::string, uint64_t> Meminfo(const ProcNumbers& numbers) {
  std::map<std::string, uint64_t> values;
  std::istringstream in(MeminfoText(numbers));
  std::string name, unit;
  for (uint64_t value = 0; in >> name >> value >> unit;) values[name] = value;
  return values;
}

TEST(ProcText, MeminfoIsTheLimitAndAddsUpWhateverTheCountersSay) {
  const cgroups::Usage kCases[] = {
      {},
      {.memory_bytes = 30 * kMiB, .cache_bytes = 12 * kMiB, .shared_bytes = 2 * kMiB},
      // Counters read at different moments, or beyond the limit for one.
      {.memory_bytes = 900 * kMiB, .cache_bytes = 950 * kMiB, .shared_bytes = 999 * kMiB},
      {.memory_bytes = 1 * kMiB, .cache_bytes = 5 * kMiB, .reclaimable_bytes = 5 * kMiB}};
  for (const cgroups::Usage& usage : kCases) {
    auto m = Meminfo({.memory_bytes = 100 * kMiB, .usage = usage});
    EXPECT_EQ(m["MemTotal:"], 100u * 1024);
    EXPECT_LE(m["MemFree:"], m["MemAvailable:"]);
    EXPECT_LE(m["MemAvailable:"], m["MemTotal:"]);
    EXPECT_LE(m["MemFree:"] + m["Cached:"] + m["SReclaimable:"], m["MemTotal:"]);
    EXPECT_EQ(m["SwapTotal:"], 0u);
  }
  auto m = Meminfo({.memory_bytes = 100 * kMiB, .usage = kCases[1]});
  EXPECT_EQ(m["MemFree:"], 70u * 1024);
  EXPECT_EQ(m["MemAvailable:"], 80u * 1024);
}

constexpr char kTwo[] =
    "processor\t: 0\nmodel name\t: X\nsiblings\t: 8\ncore id\t\t: 3\ncpu cores\t: 4\n\n"
    "processor\t: 1\nmodel name\t: Y\nsiblings\t: 8\ncore id\t\t: 5\ncpu cores\t: 4\n\n";

TEST(ProcText, CpuinfoHasAsManyProcessorsAsAskedNumberedAnew) {
  const auto processors = SplitCpuinfo(kTwo);
  ASSERT_EQ(processors.size(), 2u);
  EXPECT_EQ(CpuinfoText(processors, 1),
            "processor\t: 0\nmodel name\t: X\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\n\n");
  EXPECT_EQ(SplitCpuinfo(CpuinfoText(processors, 3)).size(), 3u);
  EXPECT_EQ(SplitCpuinfo(CpuinfoText({}, 2)).size(), 2u) << "a host that says nothing";
}

TEST(ProcText, StatHasALineForEachCpuAndNoMoreTimeThanPassed) {
  ProcNumbers numbers{.cpus = 3, .uptime_ms = 10000, .born_seconds = 77};
  numbers.usage = {.cpu_user_us = 6000000, .cpu_system_us = 3000000, .tasks = 2};
  const std::string expected =
      "cpu  600 0 300 2100 0 0 0 0 0 0\n"
      "cpu0 200 0 100 700 0 0 0 0 0 0\n"
      "cpu1 200 0 100 700 0 0 0 0 0 0\n"
      "cpu2 200 0 100 700 0 0 0 0 0 0\n"
      "intr 0\nctxt 0\nbtime 77\n";
  EXPECT_EQ(StatText(numbers).substr(0, expected.size()), expected);
  EXPECT_EQ(UptimeText(numbers), "10.00 21.00\n");
  numbers.usage.cpu_user_us = 600000000;
  EXPECT_EQ(UptimeText(numbers), "10.00 0.00\n");
}

TEST(ProcText, LoadRisesAndFallsAsTheKernelsDoes) {
  double load[3] = {0, 0, 0};
  AdvanceLoad(load, 2, 60);
  EXPECT_NEAR(load[0], 1.264, 0.001);
  EXPECT_GT(load[0], load[1]);
  EXPECT_GT(load[1], load[2]);
  AdvanceLoad(load, 0, 3600);
  EXPECT_LT(load[0], 0.001);
  EXPECT_EQ(LoadavgText({}), "0.00 0.00 0.00 1/1 1\n");
}

TEST(CpuTurns, QuotasAreRoundedUpAndTakenInTurn) {
  CpuTurns turns({0, 2, 3});
  using Cpus = std::vector<uint32_t>;
  EXPECT_EQ(turns.Take(0.5), Cpus({0}));
  EXPECT_EQ(turns.Take(1), Cpus({2}));
  EXPECT_EQ(turns.Take(1.5), Cpus({0, 3}));
  EXPECT_EQ(turns.Take(3), Cpus()) << "all there are: nothing to say";
  EXPECT_EQ(turns.Shown(8), 3u);
  EXPECT_EQ(CpuTurns({}).Take(1), Cpus()) << "a host that does not say";
}

class LiveProcTest : public testing::Test {
 protected:
  LiveProcTest() {
    for (const char* name : {"cpuinfo", "meminfo", "stat", "uptime", "loadavg"})
      EXPECT_TRUE(WriteFileAtomic(dir_ / name, "", Durability::kMemory).has_value());
    directory_ = *Open(dir_.path(), O_PATH | O_DIRECTORY);
  }
  std::string Read(const char* name) { return *ReadFile(dir_ / name, 1 << 20); }

  TempDir dir_;
  UniqueFd directory_;
};

TEST_F(LiveProcTest, AShorterTextLeavesNothingOfTheLongerOne) {
  const auto born = std::chrono::system_clock::now();
  LiveProc proc(directory_.get(), {.cpus = 1, .memory_bytes = 100 * kMiB, .created_at = born});
  const SteadyTime start = SteadyTime::clock::now();
  ASSERT_TRUE(proc.WriteFirst(SplitCpuinfo(kTwo), start).has_value());
  EXPECT_EQ(SplitCpuinfo(Read("cpuinfo")).size(), 1u);
  ASSERT_TRUE(proc.Refresh({.tasks = 12345}, start + std::chrono::seconds(1)).has_value());
  EXPECT_EQ(Read("loadavg"), "0.00 0.00 0.00 1/12345 12345\n");
  ASSERT_TRUE(proc.Refresh({.tasks = 2}, start + std::chrono::seconds(2)).has_value());
  EXPECT_EQ(Read("loadavg"), "0.00 0.00 0.00 1/2 2\n");
}

TEST_F(LiveProcTest, UptimeGoesOnFromTheCreationAfterARestart) {
  const auto born = std::chrono::system_clock::now() - std::chrono::seconds(1000);
  LiveProc proc(directory_.get(), {.cpus = 1, .memory_bytes = kMiB, .created_at = born});
  ASSERT_TRUE(proc.Refresh({.cpu_user_us = 900000000}, SteadyTime::clock::now()).has_value());
  EXPECT_EQ(Read("uptime").substr(0, 4), "1000");
  EXPECT_EQ(Read("loadavg").substr(0, 4), "0.00") << "the past is no load";
}

TEST(LiveProc, WithoutADirectoryNothingHappens) {
  LiveProc proc(-1, {.cpus = 1, .memory_bytes = kMiB, .created_at = {}});
  EXPECT_FALSE(proc.active());
  EXPECT_TRUE(proc.WriteFirst({}, SteadyTime::clock::now()).has_value());
  EXPECT_TRUE(proc.Refresh({}, SteadyTime::clock::now()).has_value());
}

}  // namespace
}  // namespace hutch::daemon
