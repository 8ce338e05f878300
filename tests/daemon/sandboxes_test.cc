#include "daemon/sandboxes.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;

using SandboxesTest = DaemonTest;

TEST_F(SandboxesTest, ACreatedSandboxIsSavedShownAndFoundByIdAndName) {
  const auto made = Call("POST", "/v1/sandboxes",
                         R"({"image":"busybox","name":"one","labels":{"a":"b"},"env":{"X":"y"}})");
  ASSERT_EQ(made->status(), 201) << made->reply->body;
  const oci::Json json = made->json();
  const std::string id = json["id"];
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["image"], "busybox:latest");
  EXPECT_EQ(json["env"]["X"], "y");
  EXPECT_EQ(json["env"]["FROM_IMAGE"], "1");
  EXPECT_EQ(json["user"], "1000:1000");
  EXPECT_EQ(json["timings_ms"]["mounts"], 1.5);
  EXPECT_TRUE(runtime_.saved.contains(id));
  EXPECT_EQ(Call("GET", "/v1/sandboxes/one")->json()["id"], id);
  EXPECT_EQ(Call("GET", "/v1/sandboxes?label=a=b")->json()["sandboxes"].size(), 1u);
  EXPECT_EQ(Call("GET", "/v1/sandboxes?label=a=c")->json()["sandboxes"].size(), 0u);
  EXPECT_EQ(Call("GET", "/v1/sandboxes?state=failed")->json()["sandboxes"].size(), 0u);
  EXPECT_EQ(Call("GET", "/v1/sandboxes?state=dead")->code(), "invalid_argument");
}

TEST_F(SandboxesTest, OneSpawnedLaterBecomesReadyAllTheSame) {
  runtime_.spawns_later = true;
  StartSandboxes();
  const auto answer = Begin("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  EXPECT_FALSE(answer->done());
  Last().spawned = true;
  runtime_.Say({.kind = RuntimeEvent::Kind::kSpawned, .id = Last().id()});
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 201);
}

TEST_F(SandboxesTest, TheDefaultRequestGivesTheDefaultSpec) {
  Create();
  const oci::Spec& spec = runtime_.requests.back().spec;
  EXPECT_TRUE(spec.root.readonly);
  EXPECT_EQ(spec.linux_.resources.memory_limit_bytes, 512u << 20);
  EXPECT_EQ(spec.linux_.resources.memory_swap_bytes, 0u);
  EXPECT_EQ(spec.linux_.resources.pids_limit, 256u);
  EXPECT_EQ(runtime_.requests.back().scratch_bytes, 1u << 30);
  EXPECT_EQ(runtime_.requests.back().layers.size(), 1u);
}

TEST_F(SandboxesTest, NamesAreUniqueAmongLivingOnes) {
  const std::string first = Create(R"(,"name":"n")");
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox","name":"n"})")->code(), "exists");
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/n")->status(), 204);
  EXPECT_NE(Create(R"(,"name":"n")"), first);
}

TEST_F(SandboxesTest, WhatCannotBeAdmittedNamesTheField) {
  config_.max_sandboxes = 1;
  auto answer = Call("POST", "/v1/sandboxes",
                     R"({"image":"busybox","limits":{"memory_bytes":99000000000000}})");
  EXPECT_EQ(answer->code(), "limit");
  EXPECT_EQ(answer->json()["error"]["field"], "limits.memory_bytes");
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox","limits":{"cpus":3}})")
                ->json()["error"]["field"],
            "limits.cpus");
  answer = Call("POST", "/v1/sandboxes", R"({"image":"nothing"})");
  EXPECT_EQ(answer->code(), "not_found");
  EXPECT_EQ(answer->json()["error"]["field"], "image");
  Create();
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->code(), "limit");
}

TEST_F(SandboxesTest, MemoryOfAllTogetherIsBounded) {
  config_.memory_overcommit = 0.1;  // of 8 GiB
  Create();
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->code(), "unavailable");
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + Last().id())->status(), 204);
  Create();
}

TEST_F(SandboxesTest, AFailedCreationIsUndoneBeforeItIsAnswered) {
  runtime_.ready_at_once = false;
  const auto answer = Begin("POST", "/v1/sandboxes", R"({"image":"busybox","name":"n"})");
  Last().Say({.kind = AgentEvent::Kind::kFailed,
              .error = Error{.code = Code::kKernel, .sys = EPERM, .step = "mounts", .what = "no"}});
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 500);
  EXPECT_EQ(answer->json()["error"]["step"], "mounts");
  EXPECT_EQ(answer->json()["error"]["errno"], "EPERM");
  EXPECT_EQ(runtime_.removed_ids.size(), 1u);
  const oci::Json kept = Call("GET", "/v1/sandboxes")->json()["sandboxes"];
  ASSERT_EQ(kept.size(), 1u) << "with its error";
  EXPECT_EQ(kept[0]["state"], "failed");
  EXPECT_EQ(kept[0]["cause"], "not_made");
  EXPECT_EQ(kept[0]["error"]["message"], "no");
  runtime_.ready_at_once = true;
  Create(R"(,"name":"n")");
}

TEST_F(SandboxesTest, OneThatCannotBeSavedIsNotShown) {
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "full"};
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->code(), "no_space");
  EXPECT_EQ(runtime_.removed_ids.size(), 1u);
}

TEST_F(SandboxesTest, OneThatWasNeverSpawnedIsRemoved) {
  runtime_.spawns_later = true;
  runtime_.ready_at_once = false;
  StartSandboxes();
  const auto answer = Begin("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  runtime_.Say({.kind = RuntimeEvent::Kind::kSpawnFailed,
                .id = Last().id(),
                .error = Error{.code = Code::kKernel, .what = "clone"}});
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "kernel");
  EXPECT_EQ(runtime_.removed_ids.size(), 1u);
}

TEST_F(SandboxesTest, AClientThatHangsUpLeavesNoHalfMadeSandbox) {
  runtime_.ready_at_once = false;
  const auto answer = Begin("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  answer->hangup();
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
}

TEST_F(SandboxesTest, DeleteWaitsUntilAllIsGone) {
  const std::string id = Create();
  FakeSandbox& sandbox = Last();
  sandbox.ends_when_killed = false;
  runtime_.busy_removals = 3;
  const auto first = Begin("DELETE", "/v1/sandboxes/" + id),
             second = Begin("DELETE", "/v1/sandboxes/" + id);
  EXPECT_TRUE(sandbox.sandbox_killed);
  EXPECT_FALSE(first->done());
  EXPECT_EQ(Call("POST", "/v1/sandboxes/" + id + "/exec", R"({"command":"true"})")->code(),
            "bad_state");
  sandbox.EndInit();
  RunUntil([&] { return first->done() && second->done(); });
  EXPECT_EQ(first->status(), 204);
  EXPECT_EQ(second->status(), 204);
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->code(), "not_found");
  const oci::Json ended = Call("GET", "/v1/sandboxes/" + id)->json();
  EXPECT_EQ(ended["state"], "destroyed");
  EXPECT_EQ(ended["cause"], "deleted");
}

TEST_F(SandboxesTest, AnAgentThatDiesTakesItsSandboxWithIt) {
  const std::string id = Create();
  Last().EndInit();
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
  loop_.RunPending();
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id)->json()["cause"], "agent_died");
  EXPECT_THAT(Call("POST", "/v1/sandboxes/" + id + "/heartbeat")->json()["error"]["message"],
              HasSubstr("agent_died"));
}

TEST_F(SandboxesTest, IdleOnesEndAndHeartbeatsMoveThat) {
  const std::string id = Create(R"(,"timeouts":{"idle_seconds":1})");
  RunUntil([start = Loop::Now()] { return Loop::Now() - start > Milliseconds(700); });
  EXPECT_EQ(Call("POST", "/v1/sandboxes/" + id + "/heartbeat")->status(), 204);
  RunUntil([start = Loop::Now()] { return Loop::Now() - start > Milliseconds(700); });
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id)->json()["state"], "running");
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
  loop_.RunPending();
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id)->json()["cause"], "idle_timeout");
}

TEST_F(SandboxesTest, ARunningCommandKeepsASandboxFromIdlingOut) {
  const std::string id = Create(R"(,"timeouts":{"idle_seconds":1})");
  const auto answer = Begin("POST", "/v1/sandboxes/" + id + "/exec", R"({"command":"sleep"})");
  RunUntil([start = Loop::Now()] { return Loop::Now() - start > Milliseconds(1300); });
  EXPECT_TRUE(runtime_.removed_ids.empty());
  Last().Exit(1, 0);
  RunUntil([&] { return answer->done(); });
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
}

TEST_F(SandboxesTest, ALifetimeEndsEvenABusyOne) {
  const std::string id = Create(R"(,"timeouts":{"lifetime_seconds":1})");
  const auto answer = Begin("POST", "/v1/sandboxes/" + id + "/exec", R"({"command":"sleep"})");
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->json()["cause"], "sandbox_ended");
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
  loop_.RunPending();
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id)->json()["cause"], "lifetime");
}

TEST_F(SandboxesTest, PoolsAreToppedUpAfterACreate) {
  Create();
  RunUntil([&] { return runtime_.refills == 1; });
}

TEST_F(SandboxesTest, ARestartTakesUpWhatRunsAndKillsOrphanedCommands) {
  const std::string id = Create(R"(,"name":"kept","timeouts":{"lifetime_seconds":3600})");
  const oci::Json before = Call("GET", "/v1/sandboxes/kept")->json();
  auto sandbox = std::make_unique<FakeSandbox>(id);
  FakeSandbox& kept = *sandbox;
  kept.started[7];
  kept.started[8];
  kept.busy = {7, 8};
  FakeRuntime second_runtime;
  second_runtime.to_recover.push_back({std::move(sandbox), runtime_.saved[id]});
  Sandboxes second({.loop = loop_,
                    .config = config_,
                    .runtime = second_runtime,
                    .store = store_,
                    .mode = cgroups::Mode::kV2,
                    .host_memory_bytes = 8ull << 30,
                    .host_cpus = 2});
  ASSERT_TRUE(second.Recover().has_value());
  Result<SandboxEntry*> found = second.FindRunning("kept");
  ASSERT_TRUE(found.has_value());
  oci::Json after = second.ToJson(**found);
  EXPECT_EQ(after["processes"], 2);
  for (const char* field : {"id", "name", "labels", "env", "user", "workdir", "limits",
                            "created_at", "expires_at", "timings_ms", "image_id"})
    EXPECT_EQ(after[field], before[field]) << field;
  // The agent names 7 as running; 8 has only children left.
  kept.Say({.kind = AgentEvent::Kind::kStarted, .process = 7, .pid = 12});
  RunUntil([&] { return !kept.killed.empty(); });
  EXPECT_EQ(kept.killed, std::vector<uint32_t>{7});
  kept.busy = {};
  RunUntil([&] { return second.ToJson(**found)["processes"] == 0; });
}

TEST_F(SandboxesTest, AnUnreadableStateIsRemovedNotTakenUp) {
  runtime_.to_recover.push_back({std::make_unique<FakeSandbox>("sb-x"), "{}"});
  ASSERT_TRUE(sandboxes_.Recover().has_value());
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
}

TEST_F(SandboxesTest, ImagesOfLivingOnesAreInUse) {
  Create();
  const auto removed = Call("DELETE", "/v1/images/busybox");
  EXPECT_EQ(removed->status(), 200) << removed->reply->body;
  EXPECT_EQ(store_.in_use_seen, std::vector<std::string>{store_.image.id});
  Create();  // unblocked again
}

TEST_F(SandboxesTest, NoSandboxBeginsWithAnImageThatIsBeingRemoved) {
  const auto removal = Begin("DELETE", "/v1/images/busybox");
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->code(), "unavailable");
  RunUntil([&] { return removal->done(); });
}

TEST_F(SandboxesTest, ImportsReportProgressAsEventsToThoseWhoAsk) {
  store_.import = [&](const rootfs::ProgressFn& progress) -> Result<rootfs::Image> {
    progress({.stage = "unpack", .subject = "sha256:1", .done = 1, .total = 2});
    return store_.image;
  };
  EXPECT_EQ(Call("POST", "/v1/images/import", R"({"path":"/x.tar","reference":"busybox:latest"})")
                ->status(),
            201);
  EXPECT_EQ(Call("POST", "/v1/images/import", R"({"path":"x.tar"})")->json()["error"]["field"],
            "path");
  wants_events_ = true;
  const auto answer = Call("POST", "/v1/images/import", R"({"path":"/x.tar"})");
  ASSERT_EQ(answer->events.size(), 2u);
  EXPECT_EQ(answer->events[0].first, "progress");
  EXPECT_EQ(answer->events[1].first, "result");
  store_.import = [](const rootfs::ProgressFn&) {
    return Error{.code = Code::kCorrupt, .what = "bad digest"};
  };
  EXPECT_EQ(Call("POST", "/v1/images/import", R"({"path":"/x.tar"})")->events[0].first, "error");
}

TEST_F(SandboxesTest, OneThatCannotBeRemovedIsQuarantinedAndShown) {
  const std::string id = Create();
  runtime_.busy_removals = 1000000;
  const auto answer = Begin("DELETE", "/v1/sandboxes/" + id);
  // The patience is ten seconds; an entry that began to end long ago stands for one that waited so
  // long.
  sandboxes_.Find(id).value()->removal_begun -= kRemoveDeadline + Milliseconds(1);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "bad_state");
  EXPECT_EQ(Call("GET", "/v1/info")->json()["quarantined"][0]["id"], id);
  runtime_.busy_removals = 0;
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->status(), 204);
  EXPECT_EQ(Call("GET", "/v1/info")->json()["quarantined"].size(), 0u);
}

TEST_F(SandboxesTest, EndedOnesAreRememberedUpToABound) {
  const std::string first = Create();
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + first)->status(), 204);
  for (size_t i = 0; i < kMaxTombstones; ++i)
    EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + Create())->status(), 204);
  loop_.RunPending();
  EXPECT_EQ(Call("GET", "/v1/sandboxes")->json()["sandboxes"].size(), kMaxTombstones);
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + first)->code(), "not_found");
}

TEST_F(SandboxesTest, MoreImageJobsThanMayWaitAreRefused) {
  std::mutex hold;
  hold.lock();
  store_.import = [&](const rootfs::ProgressFn&) -> Result<rootfs::Image> {
    const std::lock_guard wait(hold);
    return store_.image;
  };
  std::vector<std::shared_ptr<Answer>> answers;
  for (size_t i = 0; i < kMaxQueuedJobs + 2; ++i)
    answers.push_back(Begin("POST", "/v1/images/import", R"({"path":"/x.tar"})"));
  EXPECT_EQ(answers.back()->code(), "unavailable");
  hold.unlock();
  for (const auto& answer : answers) RunUntil([&] { return answer->done(); });
}

TEST_F(SandboxesTest, WhatALaterDaemonCouldNotReadIsNotMade) {
  const auto with_profile = [&](size_t names) {
    std::string list;
    for (size_t i = 0; i < names; ++i)
      list += (i == 0 ? "\"" : ",\"") + std::string(1000, 'x') + std::to_string(i) + "\"";
    return Call("POST", "/v1/sandboxes",
                R"({"image":"busybox","relax":{"seccomp":{"defaultAction":"SCMP_ACT_ALLOW",)"
                R"("syscalls":[{"action":"SCMP_ACT_ERRNO","names":[)" +
                    list + "]}]}}}");
  };
  const auto made = with_profile(900);
  ASSERT_EQ(made->status(), 201) << made->reply->body.substr(0, 200);
  const std::string id = made->json()["id"];
  const Result<SandboxFacts> facts = LoadFacts(id, runtime_.saved.at(id), config_);
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(with_profile(1100)->code(), "limit");
  EXPECT_EQ(runtime_.saved.size(), 1u);
}

TEST_F(SandboxesTest, ImagesAreKeptFromUseOnlyWhileTheyArePruned) {
  StartSandboxes();
  std::atomic<bool> first_may_end = false, prune_may_end = false;
  std::atomic<int> pruning = 0;
  store_.image.references.clear();  // nothing holds it but its use
  store_.prune = [&](const rootfs::Store::PruneRequest& request) {
    store_.in_use_seen = request.in_use;
    ++pruning;
    while (!prune_may_end) ::usleep(1000);
    return rootfs::Store::Pruned{};
  };
  ASSERT_TRUE(worker_
                  .Submit([&] {
                    while (!first_may_end) ::usleep(1000);
                  })
                  .has_value());
  const auto queued = Begin("POST", "/v1/images/prune", R"({"all":true})");
  const std::string early = Create();  // the prune waits for its turn
  first_may_end = true;
  RunUntil([&] { return pruning == 1; });
  EXPECT_EQ(store_.in_use_seen, std::vector<std::string>{store_.image.id});
  prune_may_end = true;
  RunUntil([&] { return queued->done(); });
  Call("DELETE", "/v1/sandboxes/" + early);
  prune_may_end = false;
  const auto dry = Begin("POST", "/v1/images/prune", R"({"all":true,"dry_run":true})");
  RunUntil([&] { return pruning == 2; });
  Create();  // a dry run hinders nobody
  prune_may_end = true;
  RunUntil([&] { return dry->done(); });
  Call("DELETE", "/v1/sandboxes/" + Call("GET", "/v1/sandboxes?state=running")
                                        ->json()["sandboxes"][0]["id"]
                                        .get<std::string>());
  prune_may_end = false;
  const auto real = Begin("POST", "/v1/images/prune", R"({"all":true})");
  RunUntil([&] { return pruning == 3; });
  EXPECT_NE(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->status(), 201);
  prune_may_end = true;
  RunUntil([&] { return real->done(); });
  Create();
}

}  // namespace
}  // namespace hutch::daemon
