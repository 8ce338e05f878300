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

}  // namespace
}  // namespace hutch::oci
