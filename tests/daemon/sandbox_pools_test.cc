// What pools do when the disk, the kernel or a program fails them; the rest needs a kernel:
// tests/e2e/pools_test.py.
#include "daemon/sandbox_pools.h"

#include <gmock/gmock.h>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;

class SandboxPoolsTest : public DaemonTest {
 protected:
  SandboxPoolsTest() {
    EXPECT_TRUE(MakeDirectories(config_.state_dir, 0700).has_value());
    api_.pools = &pools_;
  }
  ~SandboxPoolsTest() override { loop_.RunPending(); }

  void Start() {
    StartSandboxes();
    pools_.Recover();
    pools_.Start();
  }
  std::string PoolsFile() const { return config_.state_dir + "/pools.json"; }
  oci::Json Counts() { return Call("GET", "/v1/pools/p")->json()["counts"]; }
  // The program that looks whether a sandbox is ready ends so.
  void Check(FakeSandbox& sandbox, int wait_status) {
    RunUntil([&] { return !sandbox.started.empty(); });
    sandbox.Exit(sandbox.started.begin()->first, wait_status);
  }

  SandboxPools pools_{api_};
};

TEST_F(SandboxPoolsTest, TheFileOfPoolsIsBounded) {
  Start();
  const std::string value(1024 * 1024, 'x');
  const std::string body =
      R"({"image":"busybox","ready":0,"request":{"env":{"A":")" + value + "\"}}}";
  int kept = 0;
  std::shared_ptr<Answer> answer;
  do {
    answer = Call("PUT", "/v1/pools/p" + std::to_string(kept), body);
  } while (answer->status() == 200 && ++kept < 64);
  EXPECT_EQ(answer->json()["error"]["code"], "limit");
  EXPECT_LT(static_cast<size_t>(kept) * value.size(), kMaxPoolsFileBytes);
  const Result<std::string> text = ReadFile(PoolsFile(), kMaxPoolsFileBytes);
  EXPECT_TRUE(text.has_value());
}

TEST_F(SandboxPoolsTest, WhatCannotBeReadIsMovedAside) {
  ASSERT_TRUE(WriteFileAtomic(PoolsFile(), "{\"version\":", Durability::kMemory).has_value());
  Start();
  EXPECT_EQ(Call("GET", "/v1/pools")->json()["pools"], oci::Json::array());
  EXPECT_FALSE(PathExists(PoolsFile()));
  EXPECT_TRUE(PathExists(PoolsFile() + ".broken"));
}

TEST_F(SandboxPoolsTest, APoolThatCannotBeKeptIsNotThere) {
  Start();
  ASSERT_TRUE(RemoveTree(config_.state_dir).has_value());
  EXPECT_GE(Call("PUT", "/v1/pools/p", R"({"image":"busybox"})")->status(), 400);
  EXPECT_EQ(Call("GET", "/v1/pools/p")->status(), 404);
}

TEST_F(SandboxPoolsTest, OneIsReadyWhenAProgramHasRun) {
  Start();
  EXPECT_EQ(Call("PUT", "/v1/pools/p", R"({"image":"busybox"})")->status(), 200);
  RunUntil([&] { return !runtime_.begun.empty(); });
  RunUntil([&] { return !Last().started.empty(); });
  EXPECT_EQ(Counts()["ready"], 0);
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->json()["pool"], nullptr);
  Check(*runtime_.begun.front(), 0);
  RunUntil([&] { return Counts()["ready"] == 1; });
  const auto made = Call("POST", "/v1/sandboxes", R"({"image":"busybox","name":"n"})");
  EXPECT_EQ(made->json()["pool"], "p");
  EXPECT_EQ(made->json()["id"], "sb-0");
  const Result<SandboxFacts> facts = LoadFacts("sb-0", runtime_.saved.at("sb-0"), config_);
  ASSERT_TRUE(facts.has_value());
  EXPECT_FALSE(facts->fields.pooled);
  EXPECT_EQ(facts->fields.name, "n");
}

TEST_F(SandboxPoolsTest, OneInWhichNothingRunsIsNotReady) {
  Start();
  EXPECT_EQ(Call("PUT", "/v1/pools/p", R"({"image":"busybox"})")->status(), 200);
  RunUntil([&] { return !runtime_.begun.empty(); });
  Check(Last(), 256);
  RunUntil([&] { return Counts()["failed"] == 1; });
  EXPECT_THAT(Call("GET", "/v1/pools/p")->json()["last_error"]["message"].get<std::string>(),
              HasSubstr("256"));
  EXPECT_EQ(Counts()["ready"], 0);
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
}

TEST_F(SandboxPoolsTest, WhatCannotBeRememberedAsTakenIsNotHandedOut) {
  Start();
  EXPECT_EQ(Call("PUT", "/v1/pools/p", R"({"image":"busybox"})")->status(), 200);
  RunUntil([&] { return !runtime_.begun.empty(); });
  Check(Last(), 0);
  RunUntil([&] { return Counts()["ready"] == 1; });
  runtime_.save_error = Error{.code = Code::kKernel, .what = "no space"};
  EXPECT_GE(Call("POST", "/v1/sandboxes", R"({"image":"busybox"})")->status(), 400);
  runtime_.save_error.reset();
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
  EXPECT_EQ(runtime_.removed_ids.front(), "sb-0");
  EXPECT_EQ(Counts()["hits"], 0);
}

TEST_F(SandboxPoolsTest, ARequestThatNeverFitsTakesNoRoom) {
  Start();
  EXPECT_EQ(Call("PUT", "/v1/pools/p", R"({"image":"busybox"})")->status(), 200);
  RunUntil([&] { return !runtime_.begun.empty(); });
  Check(Last(), 0);
  RunUntil([&] { return Counts()["ready"] == 1; });
  EXPECT_GE(
      Call("POST", "/v1/sandboxes", R"({"image":"busybox","limits":{"cpus":4000}})")->status(),
      400);
  EXPECT_EQ(Counts()["ready"], 1);
  config_.max_sandboxes = 1;
  EXPECT_GE(Call("POST", "/v1/sandboxes", R"({"image":"nothing"})")->status(), 400);
  EXPECT_EQ(Counts()["ready"], 1);
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"busybox","user":"root"})")->status(), 201);
  EXPECT_EQ(Counts()["ready"], 0);
}

}  // namespace
}  // namespace hutch::daemon
