#include "daemon/pool_match.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/file.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using std::chrono::seconds;

SandboxFields Parsed(const oci::Json& more = oci::Json::object()) {
  oci::Json json = {{"image", "busybox"}};
  json.update(more);
  // As it comes: numbers that are not negative are unsigned.
  Result<SandboxFields> fields =
      ParseSandboxFields(*oci::ParseJson(oci::PrintJson(json)), Config());
  EXPECT_TRUE(fields.has_value()) << fields.error().ToString();
  return *fields;
}

const std::vector<TemplateStage> kStages = {
    {"onCreateCommand", {{.name = "", .args = {"/bin/sh", "-c", "true"}}}}};

TEST(PoolMatchTest, WhatIsGivenLaterMakesNoDifference) {
  const std::string key = PoolKey(Parsed(), {});
  for (const oci::Json& more : std::vector<oci::Json>{
           {{"image", "another:name"}},
           {{"name", "n"}},
           {{"owner", "o"}},
           {{"session_key", "s"}},
           {{"labels", {{"a", "b"}}}},
           {{"env", {{"A", "b"}}}},
           {{"workdir", "/tmp"}},
           {{"pull", "never"}},
           {{"timeouts", {{"idle_seconds", 1}, {"on_expiry", "pause"}}}},
           {{"ports", {3000}}},
           {{"limits", {{"pids", 256}}}},  // the default, said
       })
    EXPECT_EQ(PoolKey(Parsed(more), {}), key) << more;
}

TEST(PoolMatchTest, EverythingElseDoes) {
  std::set<std::string> keys = {PoolKey(Parsed(), {})};
  for (const oci::Json& more : std::vector<oci::Json>{
           {{"limits", {{"memory_bytes", 256 << 20}}}},
           {{"limits", {{"cpus", 0.5}}}},
           {{"limits", {{"pids", 99}}}},
           {{"limits", {{"disk_bytes", 99 << 20}}}},
           {{"limits", {{"open_files", 99}}}},
           {{"user", "root"}},
           {{"rootfs", {{"readonly", false}}}},
           {{"proc", "pids"}},
           {{"relax", {{"proc", "full"}}}},
           {{"relax", {{"no_new_privileges", false}}}},
           {{"volumes", {{{"name", "v"}, {"target", "/data"}}}}},
           {{"network", {{"mode", "open"}}}},
           {{"network", {{"mode", "allowlist"}, {"allow", {"a.example"}}}}},
           {{"network", {{"mode", "allowlist"}, {"allow", {"b.example"}}}}},
       })
    EXPECT_TRUE(keys.insert(PoolKey(Parsed(more), {})).second) << more;
  SandboxFields fields = Parsed();
  fields.template_name = "t";
  EXPECT_TRUE(keys.insert(PoolKey(fields, {})).second);
  fields.directories = {{.path = "/cache"}};
  EXPECT_TRUE(keys.insert(PoolKey(fields, {})).second);
  EXPECT_TRUE(keys.insert(PoolKey(fields, kStages)).second);
}

TEST(PoolMatchTest, WhatCommandsHaveSeenDoes) {
  std::set<std::string> keys = {PoolKey(Parsed(), kStages)};
  EXPECT_TRUE(keys.insert(PoolKey(Parsed({{"env", {{"A", "b"}}}}), kStages)).second);
  EXPECT_TRUE(keys.insert(PoolKey(Parsed({{"workdir", "/tmp"}}), kStages)).second);
  SandboxFields remote = Parsed();
  remote.remote_env["R"] = "1";
  EXPECT_TRUE(keys.insert(PoolKey(remote, kStages)).second);
  remote.remote_env["R"] = std::nullopt;
  EXPECT_TRUE(keys.insert(PoolKey(remote, kStages)).second);
  EXPECT_EQ(PoolKey(remote, {}), PoolKey(Parsed(), {}));
  std::vector<TemplateStage> other = kStages;
  other[0].commands[0].args[2] = "false";
  EXPECT_TRUE(keys.insert(PoolKey(Parsed(), other)).second);
  EXPECT_FALSE(keys.insert(PoolKey(Parsed({{"labels", {{"a", "b"}}}}), kStages)).second);
}

// A field that is new must be in one of the two tests above: whoever asks for something that the
// pool's sandboxes have not gets none of them.
TEST(PoolMatchTest, EveryFieldOfARequestIsThoughtOf) {
  const std::set<std::string> known = {"image",  "template",    "pull",    "name",    "owner",
                                       "labels", "env",         "workdir", "user",    "limits",
                                       "rootfs", "timeouts",    "relax",   "network", "ports",
                                       "proc",   "session_key", "volumes"};
  const Result<std::string> text =
      ReadFile(HUTCH_SOURCE_DIR "/docs/openapi.json", size_t{8} * 1024 * 1024);
  ASSERT_TRUE(text.has_value());
  const Result<oci::Json> contract = oci::ParseJson(*text, {.max_bytes = text->size()});
  ASSERT_TRUE(contract.has_value());
  const oci::Json& request = (*contract)["components"]["schemas"]["SandboxRequest"];
  for (const auto& [name, schema] : request["properties"].items())
    EXPECT_TRUE(known.contains(name)) << name << ": is it in PoolKey()?";
}

TEST(PoolMatchTest, SandboxesThatJoinNetworksAreNotMadeAhead) {
  SandboxFields fields = Parsed();
  EXPECT_TRUE(CheckPoolable(fields).has_value());
  fields.network.join = {"ws"};
  EXPECT_EQ(CheckPoolable(fields).error().code, Code::kUnsupported);
}

TEST(PoolMatchTest, DemandAddsWhatIsTakenWhileOneIsMade) {
  const PoolSpec still{.name = "p", .ready = 2, .max = 8, .demand = false};
  EXPECT_EQ(WantedMembers(still, 100, 1), 2u);
  const PoolSpec grows{.name = "p", .ready = 2, .max = 8, .demand = true};
  EXPECT_EQ(WantedMembers(grows, 0, 1), 2u);
  EXPECT_EQ(WantedMembers(grows, 2, 0), 2u);
  EXPECT_EQ(WantedMembers(grows, 2, 0.5), 4u);
  EXPECT_EQ(WantedMembers(grows, 2, 10), 8u);
  EXPECT_EQ(WantedMembers(grows, 1e18, 1e18), 8u);
}

TEST(PoolMatchTest, WhatIsLongAgoCountsLess) {
  DecayingRate rate;
  SteadyTime now = SteadyTime() + seconds(1000);
  EXPECT_EQ(rate.PerSecond(now), 0);
  for (int i = 0; i < 400; ++i) rate.Add(now += std::chrono::milliseconds(500));
  EXPECT_NEAR(rate.PerSecond(now), 2, 0.1);
  EXPECT_LT(rate.PerSecond(now + seconds(20)), 1);
  EXPECT_GT(rate.PerSecond(now + seconds(20)), 0.5);
  EXPECT_LT(rate.PerSecond(now + seconds(600)), 1e-6);
}

TEST(PoolMatchTest, FailuresAreTriedEverLater) {
  EXPECT_EQ(PoolBackoff(1), kPoolBackoffFirst);
  EXPECT_EQ(PoolBackoff(2), 2 * kPoolBackoffFirst);
  EXPECT_EQ(PoolBackoff(4), 8 * kPoolBackoffFirst);
  EXPECT_EQ(PoolBackoff(100), kPoolBackoffMax);
  EXPECT_EQ(PoolBackoff(UINT64_MAX), kPoolBackoffMax);
}

}  // namespace
}  // namespace hutch::daemon
