#include "cgroups/controllers.h"

#include <fcntl.h>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/temp_dir.h"

namespace hutch::cgroups {
namespace {

// A plain directory in the place of a group.
class FakeGroup {
 public:
  FakeGroup() {
    auto dir = Open(dir_.path(), O_RDONLY | O_DIRECTORY);
    EXPECT_TRUE(dir);
    fd_ = std::move(*dir);
  }
  void Set(const std::string& file, std::string_view text) {
    EXPECT_TRUE(WriteFileAtomic(dir_ / file, text, Durability::kMemory));
  }
  std::string Get(const std::string& file) { return ReadText(fd_.get(), file.c_str()); }
  int fd() const { return fd_.get(); }

 private:
  TempDir dir_;
  UniqueFd fd_;
};

TEST(Controllers, NumbersAndKeysAreStrict) {
  FakeGroup group;
  group.Set("number", "42\n");
  group.Set("max", "max\n");
  group.Set("junk", "12 34\n");
  EXPECT_EQ(ReadNumber(group.fd(), "number"), 42u);
  for (const char* file : {"max", "junk", "absent"})
    EXPECT_EQ(ReadNumber(group.fd(), file), std::nullopt) << file;
  constexpr char kEvents[] = "low 0\noom 3\noom_kill 2\noom_group_kill 1\nbad x\nlast 9";
  EXPECT_EQ(FindKey(kEvents, "oom"), 3u);
  EXPECT_EQ(FindKey(kEvents, "oom_kill"), 2u);
  EXPECT_EQ(FindKey(kEvents, "last"), 9u);
  for (const char* key : {"oo", "bad", "missing", ""})
    EXPECT_EQ(FindKey(kEvents, key), std::nullopt) << key;
}

TEST(Controllers, StatisticsOfAFullV2Group) {
  FakeGroup group;
  group.Set("memory.current", "4096\n");
  group.Set("memory.peak", "8192\n");
  group.Set("memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n");
  group.Set("pids.current", "3\n");
  group.Set("pids.peak", "5\n");
  group.Set("pids.events", "max 4\n");
  group.Set("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\nthrottled_usec 5\n");
  group.Set("io.stat", "8:0 rbytes=1 wbytes=2 rios=9 wios=9\n8:16 rbytes=10 wbytes=20 rios=1\n");
  Stats stats;
  for (const Controller* controller : Controllers()) controller->stats_v2(group.fd(), stats);
  EXPECT_EQ(stats.memory_current_bytes, 4096u);
  EXPECT_EQ(stats.memory_peak_bytes, 8192u);
  EXPECT_EQ(stats.memory_events.limit_hits, 7u);
  EXPECT_EQ(stats.memory_events.oom, 2u);
  EXPECT_EQ(stats.memory_events.oom_kill, 1u);
  EXPECT_EQ(stats.pids_current, 3u);
  EXPECT_EQ(stats.pids_peak, 5u);
  EXPECT_EQ(stats.pids_limit_hits, 4u);
  EXPECT_EQ(stats.cpu_usage_us, 30u);
  EXPECT_EQ(stats.cpu_user_us, 20u);
  EXPECT_EQ(stats.cpu_system_us, 10u);
  EXPECT_EQ(stats.throttled_us, 5u);
  EXPECT_EQ(stats.io_read_bytes, 11u);
  EXPECT_EQ(stats.io_write_bytes, 22u);
}

TEST(Controllers, StatisticsOfAFullV1Group) {
  FakeGroup group;
  group.Set("memory.usage_in_bytes", "4096\n");
  group.Set("memory.max_usage_in_bytes", "8192\n");
  group.Set("memory.failcnt", "1\n");
  group.Set("memory.memsw.failcnt", "2\n");
  group.Set("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
  group.Set("pids.current", "3\n");
  group.Set("pids.events", "max 4\n");
  group.Set("cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 5000999\n");
  group.Set("blkio.throttle.io_service_bytes_recursive",
            "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n8:16 Read 10\nTotal 13\n");
  Stats stats;
  for (const Controller* controller : Controllers()) controller->stats_v1(group.fd(), stats);
  EXPECT_EQ(stats.memory_current_bytes, 4096u);
  EXPECT_EQ(stats.memory_peak_bytes, 8192u);
  EXPECT_EQ(stats.memory_events.limit_hits, 3u);
  EXPECT_EQ(stats.memory_events.oom_kill, 6u);
  EXPECT_EQ(stats.pids_current, 3u);
  EXPECT_EQ(stats.pids_peak, std::nullopt);
  EXPECT_EQ(stats.pids_limit_hits, 4u);
  EXPECT_EQ(stats.throttled_us, 5000u);
  EXPECT_EQ(stats.io_read_bytes, 11u);
  EXPECT_EQ(stats.io_write_bytes, 2u);
}

TEST(Controllers, AbsentFilesAreAbsentStatistics) {
  const FakeGroup group;
  Stats stats;
  for (const Controller* controller : Controllers()) {
    controller->stats_v2(group.fd(), stats);
    controller->stats_v1(group.fd(), stats);
  }
  EXPECT_FALSE(stats.memory_current_bytes || stats.memory_peak_bytes || stats.cpu_usage_us ||
               stats.pids_current || stats.io_read_bytes || stats.throttled_us);
  EXPECT_EQ(stats.memory_events.oom_kill + stats.pids_limit_hits, 0u);
}

oci::LinuxResources AllLimits() {
  oci::LinuxResources all;
  all.memory_limit_bytes = 64u << 20;
  all.pids_limit = 20;
  all.cpu_quota_us = 5000;
  all.cpu_period_us = 50000;
  all.cpu_weight = 1;
  all.io.resize(1);
  all.io[0].major = 8;
  all.io[0].read_bps = 100;
  all.io[0].write_iops = 7;
  return all;
}

TEST(Controllers, EveryFileOfTheTableIsWrittenAndNoOther) {
  for (const bool v2 : {true, false})
    for (const Controller* controller : Controllers()) {
      FakeGroup group;
      const char* files = v2 ? controller->v2_files : controller->v1_files;
      for (const std::string& file : Split(files, ' ')) group.Set(file, "");
      const auto apply = v2 ? controller->apply_v2 : controller->apply_v1;
      oci::LinuxResources all = AllLimits();
      all.io[0].write_bps = all.io[0].read_iops = 1;
      ASSERT_TRUE(controller->wanted(all) && controller->check(all));
      const Status applied = apply(group.fd(), "/g", all);
      ASSERT_TRUE(applied) << controller->name << ": " << applied.error().ToString();
      for (const std::string& file : Split(files, ' ')) EXPECT_NE(group.Get(file), "") << file;
    }
}

TEST(Controllers, ValuesAreTheKernels) {
  FakeGroup group;
  const auto expect = [&](const char* name, bool v2,
                          const std::vector<std::pair<const char*, const char*>>& files) {
    for (const auto& [file, text] : files) group.Set(file, "");
    const Controller& controller = *FindController(name);
    const auto apply = v2 ? controller.apply_v2 : controller.apply_v1;
    const Status applied = apply(group.fd(), "/g", AllLimits());
    EXPECT_TRUE(applied) << applied.error().ToString();
    for (const auto& [file, text] : files) EXPECT_EQ(group.Get(file), text) << file;
  };
  expect("memory", true, {{"memory.max", "67108864"}, {"memory.swap.max", "0"}});
  expect("memory", false,
         {{"memory.limit_in_bytes", "67108864"}, {"memory.memsw.limit_in_bytes", "67108864"}});
  expect("pids", true, {{"pids.max", "20"}});
  expect("cpu", true, {{"cpu.max", "5000 50000"}, {"cpu.weight", "1"}});
  expect("cpu", false,
         {{"cpu.cfs_period_us", "50000"}, {"cpu.cfs_quota_us", "5000"}, {"cpu.shares", "10"}});
  expect("io", true, {{"io.max", "8:0 rbps=100 wiops=7"}});
  expect("io", false,
         {{"blkio.throttle.read_bps_device", "8:0 100"},
          {"blkio.throttle.write_iops_device", "8:0 7"}});
}

TEST(Controllers, OneTaskOfAV1GroupIsTheAgent) {
  FakeGroup group;
  group.Set("pids.max", "");
  ASSERT_TRUE(FindController("pids")->apply_v1(group.fd(), "/g", AllLimits()));
  EXPECT_EQ(group.Get("pids.max"), "21");
}

TEST(Controllers, MissingFileNamesItself) {
  const FakeGroup group;
  for (const Controller* controller : Controllers()) {
    const Status applied = controller->apply_v2(group.fd(), "/g", AllLimits());
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().code, Code::kUnsupported);
    const std::string first = Split(controller->v2_files, ' ')[0];
    EXPECT_NE(applied.error().what.find("/g/" + first), std::string::npos) << applied.error().what;
  }
}

TEST(Controllers, ValuesTheKernelWouldRefuseAreInvalid) {
  const auto refuses = [](const char* name, auto change) {
    oci::LinuxResources bad = AllLimits();
    change(bad);
    const Controller& controller = *FindController(name);
    const Status checked = controller.check(bad);
    EXPECT_TRUE(controller.wanted(bad));
    return !checked && checked.error().code == Code::kInvalidArgument;
  };
  using R = oci::LinuxResources;
  EXPECT_TRUE(refuses("memory", [](R& r) { r.memory_limit_bytes = 0; }));
  EXPECT_TRUE(refuses("pids", [](R& r) { r.pids_limit = 0; }));
  EXPECT_TRUE(refuses("pids", [](R& r) { r.pids_limit = 4194304; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_quota_us = 999; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_quota_us = UINT64_MAX; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_period_us = 999; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_period_us = 1000001; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_weight = 0; }));
  EXPECT_TRUE(refuses("cpu", [](R& r) { r.cpu_weight = 10001; }));
  EXPECT_TRUE(refuses("io", [](R& r) { r.io[0].read_bps = 0; }));
  for (const Controller* controller : Controllers()) {
    EXPECT_TRUE(controller->check(AllLimits())) << controller->name;
    EXPECT_FALSE(controller->wanted(oci::LinuxResources())) << controller->name;
  }
}

TEST(Controllers, MemoryBelowWhatCannotBeReclaimedIsBadState) {
  FakeGroup group;
  group.Set("memory.max", "");
  group.Set("memory.current", "200000000\n");
  group.Set("memory.stat", "anon 60000000\nfile 130000000\nshmem 1000\npagetables 10000000\n");
  const Controller& memory = *FindController("memory");
  const Status below = memory.apply_v2(group.fd(), "/g", AllLimits());
  ASSERT_FALSE(below);
  EXPECT_EQ(below.error().code, Code::kBadState);
  EXPECT_EQ(group.Get("memory.max"), "");
  group.Set("memory.stat", "anon 60000000\nfile 140000000\n");
  EXPECT_TRUE(memory.apply_v2(group.fd(), "/g", AllLimits())) << "the page cache can go";
}

// The table of docs/cgroups.md: | controller | v2 file | v1 file |.
TEST(Controllers, PageHasTheTable) {
  const auto page = ReadFile(HUTCH_SOURCE_DIR "/docs/cgroups.md", 1u << 20);
  ASSERT_TRUE(page);
  std::vector<std::string> rows;
  for (const std::string& line : Split(*page, '\n'))
    if (line.starts_with("| `")) rows.push_back(line);
  std::vector<std::string> expected;
  const auto quoted = [](const char* files) { return "`" + Join(Split(files, ' '), "` `") + "`"; };
  for (const Controller* controller : Controllers()) {
    const std::vector<std::string> cells = {quoted(controller->name), quoted(controller->v2_files),
                                            quoted(controller->v1_files)};
    expected.push_back("| " + Join(cells, " | ") + " |");
  }
  EXPECT_EQ(rows, expected);
}

}  // namespace
}  // namespace hutch::cgroups
