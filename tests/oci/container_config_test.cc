#include "oci/container_config.h"

#include <gtest/gtest.h>

namespace hutch::oci {
namespace {

Result<ContainerConfig> Parsed(const char* text) {
  const auto json = ParseJson(text);
  if (!json.has_value()) return json.error();
  return ParseContainerConfig(*json);
}

TEST(ContainerConfig, UnknownMembersAreIgnoredAndTheListenerIsKept) {
  const auto config = Parsed(R"({"ociVersion":"1.2.0","root":{"path":"r","new":1},"x":{},
    "linux":{"resources":{"memory":{"limit":-1}},
             "seccomp":{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/s"}}})");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->root.path, "r");
  EXPECT_EQ(config->linux_.resources.memory->limit, -1);
  EXPECT_EQ(config->linux_.seccomp->listener_path, "/s");
}

TEST(ContainerConfig, AWrongMemberIsNamedByItsPath) {
  const struct {
    const char* text;
    const char* field;
  } rows[] = {
      {R"({"ociVersion":"2.0.0","root":{"path":"r"}})", "ociVersion"},
      {R"({"ociVersion":"1.2.0"})", "root"},
      {R"({"ociVersion":"1.2.0","root":{"path":"r"},"process":{"args":["a"],"cwd":"b"}})",
       "process.cwd"},
      {R"({"ociVersion":"1.2.0","root":{"path":"r"},
           "linux":{"resources":{"memory":{"limit":"1"}}}})",
       "linux.resources.memory.limit"},
      {R"({"ociVersion":"1.2.0","root":{"path":"r"},"mounts":[{"type":"tmpfs"}]})",
       "mounts[0].destination"},
      {R"({"ociVersion":"1.2.0","root":{"path":"r"},
           "linux":{"uidMappings":[{"hostID":4294967296}]}})",
       "linux.uidMappings[0].hostID"},
  };
  for (const auto& row : rows) {
    const auto config = Parsed(row.text);
    ASSERT_FALSE(config.has_value()) << row.text;
    EXPECT_EQ(config.error().field, row.field);
  }
}

Result<ContainerConfig> WithProcess(const std::string& members) {
  const std::string text = R"({"ociVersion":"1.3.0","root":{"path":"r"},
      "process":{"args":["a"],"cwd":"/",)" +
                           members + "}}";
  return Parsed(text.c_str());
}
Result<ContainerConfig> WithLinux(const std::string& members) {
  const std::string text = R"({"ociVersion":"1.3.0","root":{"path":"r"},
      "linux":{"namespaces":[{"type":"network"}],)" +
                           members + "}}";
  return Parsed(text.c_str());
}

TEST(ContainerConfig, ListsOfCpusAndNodesAreRead) {
  using List = std::vector<uint32_t>;
  const auto process = WithProcess(R"("execCPUAffinity":{"initial":"0-1,3","final":""})");
  ASSERT_TRUE(process.has_value()) << process.error().ToString();
  EXPECT_EQ(process->process->exec_cpu_affinity.initial, (List{0, 1, 3}));
  EXPECT_TRUE(process->process->exec_cpu_affinity.final.empty());
  const auto policy = WithLinux(R"("memoryPolicy":{"mode":"MPOL_BIND","nodes":"7,1-2",
      "flags":["MPOL_F_STATIC_NODES"]})");
  ASSERT_TRUE(policy.has_value()) << policy.error().ToString();
  EXPECT_EQ(policy->linux_.memory_policy->mode, "MPOL_BIND");
  EXPECT_EQ(policy->linux_.memory_policy->nodes, (List{1, 2, 7}));
  EXPECT_EQ(policy->linux_.memory_policy->flags, std::vector<std::string>{"MPOL_F_STATIC_NODES"});
}

TEST(ContainerConfig, NetworkDevicesHaveNames) {
  const auto config = WithLinux(R"("netDevices":{"eth0":{"name":"a%d"},"eth1":{}})");
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  const std::vector<NetDevice>& devices = config->linux_.net_devices;
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].host_name, "eth0");
  EXPECT_EQ(devices[0].name, "a%d");
  EXPECT_EQ(devices[1].host_name, "eth1");
  EXPECT_EQ(devices[1].name, "");
}

TEST(ContainerConfig, WhatMeansNothingIsNamedByItsPath) {
  const struct {
    Result<ContainerConfig> config;
    const char* field;
  } rows[] = {
      {WithProcess(R"("execCPUAffinity":{"initial":"1-0"})"), "process.execCPUAffinity.initial"},
      {WithProcess(R"("execCPUAffinity":{"final":"8192"})"), "process.execCPUAffinity.final"},
      {WithProcess(R"("execCPUAffinity":{"final":1})"), "process.execCPUAffinity.final"},
      {WithProcess(R"("scheduler":{"nice":1})"), "process.scheduler.policy"},
      {WithProcess(R"("ioPriority":{"priority":1})"), "process.ioPriority.class"},
      {WithProcess(R"("rlimits":[{"type":"RLIMIT_NOFILE","hard":1}])"), "process.rlimits[0].soft"},
      {WithLinux(R"("memoryPolicy":{"nodes":"0"})"), "linux.memoryPolicy.mode"},
      {WithLinux(R"("memoryPolicy":{"mode":"MPOL_BIND","nodes":"1024"})"),
       "linux.memoryPolicy.nodes"},
      {WithLinux(R"("personality":{"domain":"LINUX","flags":["X"]})"), "linux.personality.flags"},
      {WithLinux(R"("personality":{})"), "linux.personality.domain"},
      {WithLinux(R"("netDevices":{"a/b":{}})"), "linux.netDevices.a/b"},
      {WithLinux(R"("netDevices":{"e%d":{}})"), "linux.netDevices.e%d"},
      {WithLinux(R"("netDevices":{"e":{"name":"sixteen-letters-"}})"), "linux.netDevices.e.name"},
      {WithLinux(R"("netDevices":{"e":{"name":"a%d%d"}})"), "linux.netDevices.e.name"},
      {WithLinux(R"("netDevices":{"e":{},"f":{"name":"e"}})"), "linux.netDevices.f.name"},
  };
  for (const auto& row : rows) {
    ASSERT_FALSE(row.config.has_value()) << row.field;
    EXPECT_EQ(row.config.error().field, row.field);
  }
}

}  // namespace
}  // namespace hutch::oci
