#include "daemon/background.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <csignal>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

constexpr int kExit3 = 3 << 8;

class BackgroundTest : public DaemonTest {
 protected:
  void SetUp() override { id_ = Create(); }

  // The process is there and has executed.
  std::string Start(const std::string& body, uint32_t number = 1) {
    const auto answer = Begin("POST", Path(), body);
    Last().Say({.kind = AgentEvent::Kind::kStarted, .process = number, .pid = 7});
    RunUntil([&] { return answer->done(); });
    EXPECT_EQ(answer->status(), 201) << answer->json();
    return answer->json().value("id", "");
  }
  std::string Path(const std::string& rest = "") {
    return "/v1/sandboxes/" + id_ + "/processes" + rest;
  }
  FakeSandbox::Started& Process(uint32_t number = 1) { return Last().started.at(number); }
  void Write(const std::string& text, uint32_t number = 1) {
    ASSERT_TRUE(WriteAll(Process(number).out.get(), text).has_value());
  }
  oci::Json Get(const std::string& rest) { return Call("GET", Path(rest))->json(); }

  std::string id_;
};

TEST_F(BackgroundTest, OutputIsReadByCursorWhileItRuns) {
  const std::string process = Start(R"({"command":["a"]})");
  Write("hello ");
  RunUntil([&] { return Get("/p1")["stdout_bytes"] == 6; });
  Write("w\xc3");
  RunUntil([&] { return Get("/p1")["stdout_bytes"] == 8; });
  oci::Json output = Get("/p1/output");
  EXPECT_EQ(output["next_cursor"], 7);  // half a character waits
  Write("\xb6rld");
  RunUntil([&] { return Get("/p1")["stdout_bytes"] == 12; });
  output = Get("/p1/output?cursor=7");
  EXPECT_EQ(output["chunks"][0]["data"], "\xc3\xb6rld");
  EXPECT_EQ(output["ended"], false);
}

TEST_F(BackgroundTest, TheEndIsStoredBeforeTheAgentMayForgetIt) {
  Start(R"({"command":["a"]})");
  Last().busy = {1};
  Write("last words");
  Last().Exit(1, kExit3);
  RunUntil([&] { return Get("/p1")["state"] == "exited"; });
  EXPECT_EQ(Get("/p1")["exit_code"], 3);
  EXPECT_EQ(Get("/p1/output")["chunks"][0]["data"], "last words");
  EXPECT_THAT(Last().acknowledged, testing::IsEmpty());  // children of it still live
  EXPECT_EQ(Get("/p1")["streams_open"], true);
  Write(" of a child");
  Last().busy = {};
  RunUntil([&] { return Get("/p1")["streams_open"] == false; });
  EXPECT_THAT(Last().acknowledged, testing::ElementsAre(1u));
  EXPECT_EQ(Get("/p1")["stdout_bytes"], 21);
}

TEST_F(BackgroundTest, WhatCannotExecuteIsAnErrorAndNoProcess) {
  const auto answer = Begin("POST", Path(), R"({"command":["a"]})");
  Last().Say({.kind = AgentEvent::Kind::kStartFailed,
              .process = 1,
              .error = Error{.code = Code::kCommandNotFound, .what = "no such command"}});
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 422);
  RunUntil([&] { return Get("")["processes"].empty(); });
}

TEST_F(BackgroundTest, InputThatNobodyReadsIsBounded) {
  Start(R"({"command":["cat"],"stdin_open":true})");
  const std::string half(kMaxPendingStdinBytes / 2 + 1, 'x');
  const auto first = Begin("POST", Path("/p1/stdin"), oci::PrintJson({{"data", half}}));
  EXPECT_FALSE(first->done());
  EXPECT_EQ(Call("POST", Path("/p1/stdin"), oci::PrintJson({{"data", half}}))->status(), 429);
  ASSERT_EQ(::fcntl(Process().in.get(), F_SETFL, O_NONBLOCK), 0);
  char buffer[65536];
  size_t got = 0;
  RunUntil([&] {
    const ssize_t count = ::read(Process().in.get(), buffer, sizeof buffer);
    got += count > 0 ? static_cast<size_t>(count) : 0;
    return got == half.size();
  });
  RunUntil([&] { return first->done(); });
  EXPECT_EQ(first->json()["written_bytes"], half.size());
}

TEST_F(BackgroundTest, ClosedInputIsTheEndOfFileWhoeverElseHeldIt) {
  Start(R"({"command":["cat"],"stdin_open":true})");
  EXPECT_EQ(Call("POST", Path("/p1/stdin"), R"({"data":"x","close":true})")->status(), 200);
  char buffer[8];
  EXPECT_EQ(::read(Process().in.get(), buffer, sizeof buffer), 1);
  EXPECT_EQ(::read(Process().in.get(), buffer, sizeof buffer), 0);
  EXPECT_EQ(Call("POST", Path("/p1/stdin"), R"({"data":"y"})")->status(), 409);
}

TEST_F(BackgroundTest, WaitsAreBounded) {
  Start(R"({"command":["a"]})");
  EXPECT_EQ(Call("GET", Path("/p1?wait_seconds=3601"))->status(), 400);
  const auto wait = Begin("GET", Path("/p1?wait_seconds=3600"));
  EXPECT_FALSE(wait->done());
  Last().Exit(1, 0);
  RunUntil([&] { return wait->done(); });
  EXPECT_EQ(wait->json()["exit_code"], 0);
}

TEST_F(BackgroundTest, FollowersAreBounded) {
  Start(R"({"command":["a"]})");
  std::vector<std::shared_ptr<Answer>> waits;
  for (size_t i = 0; i < kMaxFollowers; ++i)
    waits.push_back(Begin("GET", Path("/p1?wait_seconds=60")));
  EXPECT_EQ(Call("GET", Path("/p1?wait_seconds=60"))->status(), 429);
  Last().Exit(1, 0);
  RunUntil([&] {
    return std::all_of(waits.begin(), waits.end(), [](const auto& wait) { return wait->done(); });
  });
}

TEST_F(BackgroundTest, ReadsOfALogAreBounded) {
  Start(R"({"command":["a"]})");
  EXPECT_EQ(Call("GET", Path("/p1/output?max_bytes=4194305"))->status(), 400);
  EXPECT_EQ(Call("GET", Path("/p1/output?max_bytes=4194304"))->status(), 200);
  for (const char* query : {"cursor=x", "stream=both", "encoding=latin1", "since=yesterday",
                            "follow=1", "tail_bytes=-1", "unknown=1"})
    EXPECT_EQ(Call("GET", Path(std::string("/p1/output?") + query))->status(), 400) << query;
}

TEST_F(BackgroundTest, EndedOnesAreRememberedUpToABound) {
  const auto count = static_cast<uint32_t>(kMaxEndedProcesses) + 2;
  for (uint32_t number = 1; number <= count; ++number) {
    Start(R"({"command":["a"]})", number);
    Last().Exit(number, 0);
  }
  RunUntil([&] { return Get("")["processes"].size() == kMaxEndedProcesses; });
  EXPECT_EQ(Get("")["processes"][0]["id"], "p3");
}

// A daemon that was killed knows of a removed one only what it wrote.
TEST_F(BackgroundTest, TheNameOfARemovedOneIsNotGivenAgainByTheNextDaemon) {
  Start(R"({"command":["a"]})");
  Last().Exit(1, 0);
  RunUntil([&] { return Get("/p1")["streams_open"] == false; });
  EXPECT_EQ(Call("DELETE", Path("/p1"))->status(), 204);
  Create();  // stands for the same one: its agent is asked by a daemon that knows nothing
  Commands next(loop_, Last(), cgroups::Mode::kHybrid);
  next.TakeUp(config_.state_dir + "/processes/" + id_);
  EXPECT_EQ(*Last().StartProcess({}), 2u);
}

TEST_F(BackgroundTest, ATimeOutKillsAndIsTheCause) {
  Start(R"({"command":["a"],"timeout_seconds":0.05})");
  RunUntil([&] { return !Last().killed.empty(); });
  Last().Exit(1, SIGKILL);
  RunUntil([&] { return Get("/p1")["state"] == "exited"; });
  EXPECT_EQ(Get("/p1")["cause"], "timed_out");
}

TEST_F(BackgroundTest, SignalsAreCheckedAndSent) {
  Start(R"({"command":["a"]})");
  EXPECT_EQ(Call("POST", Path("/p1/signal"), R"({"signal":"TERM"})")->status(), 204);
  EXPECT_EQ(Call("POST", Path("/p1/signal"), R"({"signal":2,"target":"tree"})")->status(), 204);
  EXPECT_THAT(Last().signals, testing::ElementsAre(std::pair(1u, SIGTERM), std::pair(1u, SIGINT)));
  for (const char* body : {R"({"signal":"NOPE"})", R"({"signal":0})", R"({"signal":65})", "{}",
                           R"({"signal":"TERM","target":"x"})"})
    EXPECT_EQ(Call("POST", Path("/p1/signal"), body)->status(), 400) << body;
  EXPECT_EQ(Call("POST", Path("/p1/signal"), R"({"signal":"KILL","target":"tree"})")->status(),
            204);
  EXPECT_THAT(Last().killed, testing::ElementsAre(1u));
}

TEST_F(BackgroundTest, ACallThatYieldsTellsWhatThereIs) {
  const auto answer =
      Begin("POST", "/v1/sandboxes/" + id_ + "/exec", R"({"command":["a"],"wait_seconds":0.1})");
  Last().Say({.kind = AgentEvent::Kind::kStarted, .process = 1, .pid = 7});
  Write("so far");
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->json()["running"], true);
  EXPECT_EQ(answer->json()["stdout"], "so far");
  EXPECT_EQ(answer->json()["process_id"], "p1");
  EXPECT_TRUE(answer->json()["exit_code"].is_null());
  EXPECT_EQ(Get("/p1")["state"], "running");
}

TEST(ProcessFields, LogsAreBounded) {
  const auto parse = [](const std::string& body) {
    return ParseProcessFields(*oci::ParseJson(body, {}), Config());
  };
  EXPECT_TRUE(parse(R"({"command":"x","log_bytes":65536})").has_value());
  EXPECT_EQ(parse(R"({"command":"x","log_bytes":65535})").error().field, "log_bytes");
  EXPECT_EQ(parse(R"({"command":"x","log_bytes":1073741825})").error().field, "log_bytes");
  EXPECT_EQ(parse(R"({"command":"x","terminal":{"rows":0}})").error().field, "terminal");
  EXPECT_EQ(parse(R"({"command":"x","terminal":true,"merge_output":true})").error().field,
            "merge_output");
  EXPECT_TRUE(parse(R"({"command":"x","terminal":{"rows":5}})")->stdin_open);
}

TEST(ProcessFields, AnOperatorMayBoundHowLongTheyLive) {
  Config config;
  config.process_timeout_ceiling_seconds = 10;
  const auto parse = [&](const std::string& body) {
    return ParseProcessFields(*oci::ParseJson(body, {}), config);
  };
  EXPECT_EQ(parse(R"({"command":"x"})")->timeout_seconds, 10);
  EXPECT_EQ(parse(R"({"command":"x","timeout_seconds":11})").error().code, Code::kLimit);
}

TEST(ProcessRecord, SavedIsLoaded) {
  ProcessFacts facts;
  facts.number = 9;
  facts.args = {"a", "b c"};
  facts.terminal = true;
  facts.timeout_seconds = 1.5;
  facts.log_bytes = kDefaultLogBytes;
  facts.started_at = *ParseRfc3339("2026-01-31T09:08:07.006Z");
  facts.ended_at = *ParseRfc3339("2026-01-31T09:08:08.006Z");
  facts.end = ProcessEnd{.facts = {.oom_killed = true, .wait_status = 9}, .usage = {}};
  const Result<ProcessFacts> loaded = LoadProcess(SaveProcess(facts));
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  EXPECT_EQ(SaveProcess(*loaded), SaveProcess(facts));
  EXPECT_FALSE(LoadProcess("{}").has_value());
}

class CommandsTest : public DaemonTest {
 protected:
  static ToolSpec Tool() {
    ToolSpec tool;
    tool.args = {"x"};
    return tool;
  }
};

TEST_F(CommandsTest, ProgramsOfOursAreBounded) {
  Create();
  Commands commands(loop_, Last(), cgroups::Mode::kHybrid);
  std::vector<std::shared_ptr<ToolProcess>> tools;
  for (size_t i = 0; i < kMaxToolsPerSandbox; ++i) {
    auto tool = commands.RunTool(Tool(), {}, [](Result<int>) {});
    ASSERT_TRUE(tool.has_value());
    tools.push_back(*tool);
  }
  EXPECT_EQ(commands.RunTool(Tool(), {}, [](Result<int>) {}).error().code, Code::kLimit);
  EXPECT_EQ(commands.running(), 0u);
  commands.SandboxEnded();
}

}  // namespace
}  // namespace hutch::daemon
