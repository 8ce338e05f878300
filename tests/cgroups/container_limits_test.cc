#include "cgroups/container_limits.h"

#include <gtest/gtest.h>

#include "cgroups/hugepages.h"

namespace hutch::cgroups {
namespace {

int AllV2(std::string_view name) { return name == "blkio" ? 0 : 2; }
int AllV1(std::string_view name) { return name == "io" ? 0 : 1; }
int Nothing(std::string_view) { return 0; }

// "file=value" for each write, in order.
std::vector<std::string> Lines(const oci::ContainerResources& r, const VersionOf& version) {
  const auto writes = PlanLimits(r, version);
  if (!writes) return {"error " + writes.error().field};
  std::vector<std::string> lines;
  for (const LimitWrite& write : *writes) lines.push_back(write.file + "=" + write.value);
  return lines;
}
using Texts = std::vector<std::string>;

oci::ContainerResources Memory(std::optional<int64_t> limit, std::optional<int64_t> swap) {
  oci::ContainerResources r;
  r.memory = oci::MemoryResources{};
  r.memory->limit = limit;
  r.memory->swap = swap;
  return r;
}

TEST(ContainerLimits, SharesBecomeWeights) {
  EXPECT_EQ(WeightOfShares(2), 1u);
  EXPECT_EQ(WeightOfShares(1024), 100u) << "default to default";
  EXPECT_EQ(WeightOfShares(262144), 10000u);
  EXPECT_EQ(WeightOfShares(1), 1u);
  EXPECT_EQ(WeightOfShares(1u << 30), 10000u);
  for (uint64_t shares = 2; shares < 262144; shares += 97)
    EXPECT_LE(WeightOfShares(shares), WeightOfShares(shares + 97)) << shares;
}

TEST(ContainerLimits, BlkioWeightsBecomeIoWeights) {
  EXPECT_EQ(IoWeightOf(10), 1u);
  EXPECT_EQ(IoWeightOf(1000), 10000u);
  EXPECT_EQ(IoWeightOf(500), 4950u);
}

TEST(ContainerLimits, SwapIsMemoryAndSwapTogether) {
  EXPECT_EQ(Lines(Memory(100, 300), AllV2), (Texts{"memory.swap.max=200", "memory.max=100"}));
  EXPECT_EQ(Lines(Memory(100, 100), AllV2), (Texts{"memory.swap.max=0", "memory.max=100"}));
  EXPECT_EQ(Lines(Memory(100, -1), AllV2), (Texts{"memory.swap.max=max", "memory.max=100"}));
  EXPECT_EQ(Lines(Memory(-1, {}), AllV2), (Texts{"memory.swap.max=max", "memory.max=max"}));
  EXPECT_EQ(Lines(Memory(100, {}), AllV2), Texts{"memory.max=100"});
  EXPECT_EQ(Lines(Memory(100, 300), AllV1),
            (Texts{"memory.limit_in_bytes=100", "memory.memsw.limit_in_bytes=300"}));
  for (const auto version : {AllV1, AllV2})
    EXPECT_EQ(Lines(Memory(300, 100), version), Texts{"error linux.resources.memory.swap"});
  EXPECT_EQ(Lines(Memory({}, 100), AllV2), Texts{"error linux.resources.memory.swap"});
}

TEST(ContainerLimits, WhatV2CannotDoIsRefusedByItsField) {
  oci::ContainerResources r = Memory({}, {});
  r.memory->swappiness = 10;
  EXPECT_EQ(Lines(r, AllV2), Texts{"error linux.resources.memory.swappiness"});
  EXPECT_EQ(Lines(r, AllV1), Texts{"memory.swappiness=10"});
  r = Memory({}, {});
  r.memory->disable_oom_killer = true;
  EXPECT_EQ(Lines(r, AllV2), Texts{"error linux.resources.memory.disableOOMKiller"});
  r = {};
  r.cpu = oci::CpuResources{};
  r.cpu->realtime_runtime = 1000;
  EXPECT_EQ(Lines(r, AllV2), Texts{"error linux.resources.cpu.realtimeRuntime"});
  r = {};
  r.network = oci::NetworkResources{};
  r.network->class_id = 5;
  EXPECT_EQ(Lines(r, Nothing), Texts{"error linux.resources.network.classID"});
}

TEST(ContainerLimits, NoLimitNeedsNoController) {
  oci::ContainerResources r = Memory({}, {});
  r.cpu = oci::CpuResources{};
  r.block_io = oci::BlockIoResources{};
  r.pids_limit = -1;
  EXPECT_EQ(Lines(r, Nothing), Texts{});
  EXPECT_EQ(Lines(Memory(1, {}), Nothing), Texts{"error linux.resources.memory"});
}

TEST(ContainerLimits, CpuOfBothVersions) {
  oci::ContainerResources r;
  r.cpu = oci::CpuResources{};
  r.cpu->shares = 1024;
  r.cpu->quota = 5000;
  r.cpu->period = 10000;
  r.cpu->burst = 100;
  r.cpu->cpus = "0-1";
  r.cpu->mems = "0";
  EXPECT_EQ(Lines(r, AllV2), (Texts{"cpu.weight=100", "cpu.max=5000 10000", "cpu.max.burst=100",
                                    "cpuset.cpus=0-1", "cpuset.mems=0"}));
  EXPECT_EQ(Lines(r, AllV1),
            (Texts{"cpu.shares=1024", "cpu.cfs_period_us=10000", "cpu.cfs_quota_us=5000",
                   "cpu.cfs_burst_us=100", "cpuset.cpus=0-1", "cpuset.mems=0"}));
  r.cpu = oci::CpuResources{};
  r.cpu->quota = -1;
  EXPECT_EQ(Lines(r, AllV2), Texts{"cpu.max=max"});
  r.cpu = oci::CpuResources{};
  r.cpu->period = 10000;
  EXPECT_EQ(Lines(r, AllV2), Texts{"cpu.max=<keep> 10000"});
  r.cpu = oci::CpuResources{};
  r.cpu->idle = 1;
  r.cpu->shares = 1024;
  EXPECT_EQ(Lines(r, AllV2), Texts{"cpu.idle=1"}) << "an idle group has no weight";
}

TEST(ContainerLimits, BlockIoOfBothVersions) {
  oci::ContainerResources r;
  r.block_io = oci::BlockIoResources{};
  r.block_io->weight = 500;
  r.block_io->weight_devices.push_back({.major = 8, .minor = 0, .weight = 10, .leaf_weight = {}});
  r.block_io->throttle_read_bps.push_back({8, 0, 1024});
  r.block_io->throttle_write_iops.push_back({8, 16, 0});
  EXPECT_EQ(Lines(r, AllV2),
            (Texts{"io.bfq.weight=500", "io.weight=4950", "io.bfq.weight=8:0 10", "io.weight=8:0 1",
                   "io.max=8:0 rbps=1024", "io.max=8:16 wiops=max"}));
  EXPECT_EQ(Lines(r, AllV1),
            (Texts{"blkio.weight=500", "blkio.bfq.weight=500", "blkio.weight_device=8:0 10",
                   "blkio.bfq.weight_device=8:0 10", "blkio.throttle.read_bps_device=8:0 1024",
                   "blkio.throttle.write_iops_device=8:16 0"}));
}

TEST(ContainerLimits, TheRest) {
  oci::ContainerResources r;
  r.pids_limit = 7;
  r.hugepage_limits.push_back({.page_size = "2MB", .limit = 4096});
  r.rdma["mlx"] = {.hca_handles = 3, .hca_objects = 10};
  r.unified["memory.high"] = "5M";
  EXPECT_EQ(Lines(r, AllV2),
            (Texts{"pids.max=7", "hugetlb.2MB.max=4096", "hugetlb.2MB.rsvd.max=4096",
                   "rdma.max=mlx hca_handle=3 hca_object=10", "memory.high=5M"}));
  r = {};
  r.unified["io.max"] = "7:0 rbps=1\n7:1 wbps=2\n";
  EXPECT_EQ(Lines(r, AllV2), (Texts{"io.max=7:0 rbps=1", "io.max=7:1 wbps=2"}));
  r = {};
  r.unified["../memory.max"] = "1";
  EXPECT_EQ(Lines(r, AllV2), Texts{"error linux.resources.unified.../memory.max"});
  r = {};
  r.unified["memory.high"] = "1";
  EXPECT_EQ(Lines(r, AllV1), Texts{"error linux.resources.unified.memory.high"});
}

TEST(ContainerLimits, MemoryBelowMinusOneIsAnError) {
  for (const char* field : {"limit", "reservation", "swap"}) {
    oci::ContainerResources r;
    r.memory.emplace();
    (field[0] == 'l'   ? r.memory->limit
     : field[0] == 'r' ? r.memory->reservation
                       : r.memory->swap) = -5;
    EXPECT_EQ(Lines(r, AllV2), Texts{std::string("error linux.resources.memory.") + field});
  }
}

TEST(ContainerLimits, DevicesInTheirOwnTerms) {
  oci::ContainerResources r;
  r.devices.push_back({.allow = false, .type = "", .major = {}, .minor = {}, .access = "rwm"});
  r.devices.push_back({.allow = true, .type = "c", .major = 10, .minor = -1, .access = "r"});
  const std::vector<DeviceRule> rules = DeviceRulesOf(r);
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_FALSE(DeviceAllowed(rules, 'b', 1, 1, kDeviceRead));
  EXPECT_TRUE(DeviceAllowed(rules, 'c', 10, 200, kDeviceRead));
  EXPECT_FALSE(DeviceAllowed(rules, 'c', 10, 200, kDeviceWrite));
}

TEST(ContainerLimits, AreTheUnitsPropertiesToo) {
  oci::ContainerResources r = Memory(100, 300);
  r.pids_limit = -1;
  r.cpu = oci::CpuResources{};
  r.cpu->quota = 5000;
  r.cpu->period = 10000;
  r.cpu->cpus = "0,9";
  const std::vector<UnitProperty> properties = PropertiesOfLimits(*PlanLimits(r, AllV2));
  Texts names;
  for (const UnitProperty& property : properties) names.push_back(property.name);
  EXPECT_EQ(names, (Texts{"MemorySwapMax", "MemoryMax", "TasksMax", "CPUQuotaPeriodUSec",
                          "CPUQuotaPerSecUSec", "AllowedCPUs"}));
  EXPECT_EQ(std::get<uint64_t>(properties[2].value), UINT64_MAX);
  EXPECT_EQ(std::get<uint64_t>(properties[4].value), 500000u);
  EXPECT_EQ(std::get<std::vector<uint8_t>>(properties[5].value), (std::vector<uint8_t>{1, 2}));
}

TEST(ContainerLimits, AnnotationsAreProperties) {
  EXPECT_EQ(std::get<uint64_t>(ParseUnitProperty("TasksMax", "uint64 5")->value), 5u);
  EXPECT_EQ(ParseUnitProperty("CPUQuotaPerSecUSec", "uint64 5")->type, "t");
  EXPECT_EQ(ParseUnitProperty("SendSIGHUP", "true")->type, "b");
  EXPECT_EQ(std::get<std::string>(ParseUnitProperty("KillMode", "'mixed'")->value), "mixed");
  EXPECT_EQ(
      std::get<std::vector<std::string>>(ParseUnitProperty("After", "['a.service', 'b']")->value),
      (Texts{"a.service", "b"}));
  EXPECT_EQ(std::get<int64_t>(ParseUnitProperty("Nice", "-5")->value), -5);
  for (const char* bad : {"", "five", "uint32 5000000000", "['a", "uint64 -1"})
    EXPECT_FALSE(ParseUnitProperty("X", bad)) << bad;
}

TEST(Hugepages, AreNamedAsCgroupFilesNameThem) {
  EXPECT_EQ(HugepageName("hugepages-2048kB"), "2MB");
  EXPECT_EQ(HugepageName("hugepages-1048576kB"), "1GB");
  EXPECT_EQ(HugepageName("hugepages-64kB"), "64KB");
  EXPECT_EQ(HugepageName("hugepages-kB"), "");
}

}  // namespace
}  // namespace hutch::cgroups
