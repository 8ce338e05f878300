// Waiting for states, renewals, and time-outs that change; pausing needs a kernel: tests/e2e.
#include <gmock/gmock.h>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;

class SandboxLifeTest : public DaemonTest {
 protected:
  oci::Json Get(const std::string& id) { return Call("GET", "/v1/sandboxes/" + id)->json(); }
  void Pass(Milliseconds time) {
    RunUntil([start = Loop::Now(), time] { return Loop::Now() - start > time; });
  }
  std::vector<std::string> Kinds() {
    std::vector<std::string> kinds;
    for (uint64_t at = 0; const Event* event = watching_.events().After(at); at = event->number)
      kinds.emplace_back(EventKindName(event->kind));
    return kinds;
  }
};

TEST_F(SandboxLifeTest, EveryMoveIsRememberedWithItsCause) {
  const std::string id = Create();
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->status(), 204);
  const oci::Json ended = Get(id);
  ASSERT_EQ(ended["history"].size(), 3u);
  const char* const wanted[][2] = {
      {"creating", "requested"}, {"running", "ready"}, {"destroyed", "deleted"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ended["history"][i]["state"], wanted[i][0]);
    EXPECT_EQ(ended["history"][i]["cause"], wanted[i][1]);
  }
  EXPECT_EQ(ended["history"][2]["at"], ended["ended_at"]);
}

TEST_F(SandboxLifeTest, ARecordHasTheHistoryToo) {
  const std::string id = Create();
  const Result<SandboxFacts> facts = LoadFacts(id, runtime_.saved.at(id), config_);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(HistoryJson(facts->history), Get(id)["history"]);
  EXPECT_FALSE(facts->paused_idle_ms);
}

TEST_F(SandboxLifeTest, OfALongErrorTheBeginningIsKept) {
  runtime_.ready_at_once = false;
  const auto making = Begin("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  const std::string id = Last().id();
  Last().Say({.kind = AgentEvent::Kind::kFailed,
              .error = Error{.code = Code::kKernel, .what = std::string(1 << 20, 'x')}});
  RunUntil([&] { return making->done(); });
  EXPECT_EQ(Get(id)["error"]["message"].get<std::string>().size(), kMaxKeptErrorBytes);
}

TEST_F(SandboxLifeTest, AWaitIsAnsweredByTheMove) {
  runtime_.ready_at_once = false;
  const auto making = Begin("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  const std::string id = Last().id();
  const auto runs = Begin("GET", "/v1/sandboxes/" + id + "?wait=running,paused");
  const auto ends = Begin("GET", "/v1/sandboxes/" + id + "?wait=expired");
  EXPECT_FALSE(runs->done());
  Last().Say({.kind = AgentEvent::Kind::kReady});
  RunUntil([&] { return runs->done(); });
  EXPECT_EQ(runs->json()["state"], "running");
  EXPECT_FALSE(ends->done());
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->status(), 204);
  EXPECT_EQ(ends->json()["state"], "destroyed") << "another end is an answer, too";
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id + "?wait=paused")->json()["state"], "destroyed");
}

TEST_F(SandboxLifeTest, AWaitThatFindsWhatItWantsIsAnsweredAtOnce) {
  const std::string id = Create();
  EXPECT_TRUE(Begin("GET", "/v1/sandboxes/" + id + "?wait=running")->done());
}

TEST_F(SandboxLifeTest, WaitsThatCannotBeAreRefused) {
  const std::string id = Create();
  for (const char* query : {"?wait=halted", "?wait=creating", "?wait=", "?timeout_seconds=1"})
    EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id + query)->code(), "invalid_argument") << query;
}

TEST_F(SandboxLifeTest, AStopWaitsSoLongAndNoLonger) {
  static_assert(kMaxStopSeconds == 3600);
  const std::string path = "/v1/sandboxes/" + Create() + "/stop";
  EXPECT_EQ(Call("POST", path, R"({"timeout_seconds": 3601})")->code(), "invalid_argument");
  EXPECT_EQ(Call("POST", path, R"({"timeout_seconds": -1})")->code(), "invalid_argument");
}

TEST_F(SandboxLifeTest, AClientThatHangsUpWaitsNoMore) {
  const std::string id = Create();
  const auto wait = Begin("GET", "/v1/sandboxes/" + id + "?wait=destroyed");
  EXPECT_EQ(sandboxes_.Find(id).value()->move_watchers.size(), 1u);
  std::exchange(wait->hangup, nullptr)();  // as a session does: it holds what holds it
  EXPECT_TRUE(sandboxes_.Find(id).value()->move_watchers.empty());
}

TEST_F(SandboxLifeTest, TimeoutsChangeLiveAndAreRemembered) {
  const std::string id = Create(R"(,"timeouts":{"idle_seconds":1})");
  const std::string path = "/v1/sandboxes/" + id;
  const auto changed =
      Call("PATCH", path, R"({"timeouts":{"idle_seconds":0,"lifetime_seconds":3600}})");
  ASSERT_EQ(changed->status(), 200) << changed->reply->body;
  EXPECT_TRUE(changed->json()["idle_expires_at"].is_null());
  EXPECT_FALSE(changed->json()["expires_at"].is_null());
  EXPECT_EQ(LoadFacts(id, runtime_.saved.at(id), config_)->fields.timeouts.lifetime_seconds, 3600u);
  Pass(Milliseconds(1300));
  EXPECT_EQ(Get(id)["state"], "running");
  EXPECT_EQ(Call("PATCH", path, R"({"timeouts":{"lifetime_seconds":1}})")->json()["error"]["field"],
            "timeouts.lifetime_seconds")
      << "it is older than that";
  EXPECT_EQ(Call("PATCH", path, R"({"timeouts":{"on_expiry":"freeze"}})")->code(),
            "invalid_argument");
  EXPECT_EQ(Call("PATCH", path, R"({})")->code(), "invalid_argument");
  EXPECT_EQ(Call("PATCH", path, R"({"timeouts":{"idle_seconds":1}})")->status(), 200);
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
  EXPECT_EQ(Call("PATCH", path, R"({"timeouts":{"idle_seconds":0}})")->code(), "bad_state");
}

TEST_F(SandboxLifeTest, AChangeThatCannotBeSavedIsNone) {
  const std::string id = Create();
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "full"};
  EXPECT_EQ(Call("PATCH", "/v1/sandboxes/" + id, R"({"timeouts":{"idle_seconds":7}})")->code(),
            "no_space");
  EXPECT_EQ(Get(id)["timeouts"]["idle_seconds"], 0);
}

TEST_F(SandboxLifeTest, OnlyWhatCountsKeepsASandbox) {
  const std::string id = Create(R"(,"timeouts":{"idle_seconds":1,"activity":["heartbeat"]})");
  const auto exec = Begin("POST", "/v1/sandboxes/" + id + "/exec", R"({"command":"sleep"})");
  RunUntil([&] { return exec->done(); });
  EXPECT_EQ(exec->json()["cause"], "sandbox_ended") << "a command does not count here";
  const std::string other = Create(R"(,"timeouts":{"idle_seconds":1,"activity":["process"]})");
  EXPECT_EQ(Call("POST", "/v1/sandboxes/" + other + "/heartbeat")->code(), "bad_state")
      << "what would do nothing is not acknowledged";
}

TEST_F(SandboxLifeTest, ARenewalIsNotedForALaterDaemonBeforeItIsAnswered) {
  const std::string id = Create();
  Pass(Milliseconds(5));
  const auto before = runtime_.noted.at(id);
  EXPECT_EQ(Call("POST", "/v1/sandboxes/" + id + "/heartbeat")->status(), 204);
  EXPECT_GT(runtime_.noted.at(id), before);
}

TEST_F(SandboxLifeTest, AnExpiryIsAnnouncedOnce) {
  config_.expiry_warning_seconds = 60;
  const std::string id = Create(R"(,"timeouts":{"idle_seconds":1})");
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
  EXPECT_THAT(Kinds(), testing::ElementsAre("sandbox.creating", "sandbox.running",
                                            "sandbox.expiring", "sandbox.expired"));
}

TEST_F(SandboxLifeTest, EndedOnesStayForTheRetention) {
  config_.retention_seconds = 1;
  const std::string id = Create();
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->status(), 204);
  EXPECT_EQ(Get(id)["state"], "destroyed");
  RunUntil([&] { return Call("GET", "/v1/sandboxes/" + id)->code() == "not_found"; });
  config_.retention_seconds = 0;
  const std::string other = Create();
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + other)->status(), 204);
  RunUntil([&] { return Call("GET", "/v1/sandboxes/" + other)->code() == "not_found"; });
}

TEST_F(SandboxLifeTest, WhatDoesNotFreezeIsNotPaused) {  // the fake has no cgroup
  const std::string id = Create();
  const std::string path = "/v1/sandboxes/" + id;
  EXPECT_NE(Call("POST", path + "/pause", "{}")->status(), 200);
  EXPECT_EQ(Get(id)["state"], "running");
  EXPECT_EQ(Call("POST", path + "/resume")->status(), 200) << "it runs";
  EXPECT_EQ(Call("POST", path + "/pause", R"({"reclaim":true})")->code(), "unsupported");
}

}  // namespace
}  // namespace hutch::daemon
