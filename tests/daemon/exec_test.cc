#include "daemon/exec.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

constexpr int kExit3 = 3 << 8;

class ExecTest : public DaemonTest {
 protected:
  void SetUp() override { id_ = Create(); }

  std::shared_ptr<Answer> Exec(const std::string& body) {
    return Begin("POST", "/v1/sandboxes/" + id_ + "/exec", body);
  }
  FakeSandbox::Started& Process(uint32_t number = 1) { return Last().started.at(number); }
  void Write(const std::string& text, uint32_t number = 1) {
    ASSERT_TRUE(WriteAll(Process(number).out.get(), text).has_value());
  }
  void End(const std::shared_ptr<Answer>& answer, int wait_status, uint32_t number = 1) {
    Last().Exit(number, wait_status);
    RunUntil([&] { return answer->done(); });
  }

  std::string id_;
};

TEST_F(ExecTest, TheAnswerTellsTheEndAndTheOutput) {
  const auto answer =
      Exec(R"({"command":["a","b"],"env":{"X":"1"},"workdir":"/w","user":"1000:1000"})");
  EXPECT_EQ(Process().spec.args, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Process().spec.cwd, "/w");
  EXPECT_EQ(Process().spec.user.uid, 1000u);
  EXPECT_EQ(Process().spec.user.gid, 1000u);
  EXPECT_THAT(Process().spec.env, testing::Contains("X=1"));
  Write("out");
  ASSERT_TRUE(WriteAll(Process().err.get(), "err").has_value());
  End(answer, kExit3);
  const oci::Json json = answer->json();
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_EQ(json["cause"], "exited");
  EXPECT_EQ(json["stdout"], "out");
  EXPECT_EQ(json["stderr"], "err");
  EXPECT_EQ(json["process_id"], "p1");
  EXPECT_TRUE(json["signal"].is_null());
}

TEST_F(ExecTest, APipeSomebodyStillHoldsDelaysNothing) {
  Last().busy = {1};
  const auto answer = Exec(R"({"command":"sleep 300 & echo hi"})");
  Write("hi\n");
  End(answer, 0);
  EXPECT_EQ(answer->json()["stdout"], "hi\n");
  // What a child writes later is thrown away, and it gets no SIGPIPE.
  loop_.RunPending();
  for (int i = 0; i < 40; ++i) Write(std::string(16 * 1024, 'x')), loop_.RunPending();
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + id_)->json()["processes"], 1);
  Last().busy = {};
  RunUntil([&] { return Call("GET", "/v1/sandboxes/" + id_)->json()["processes"] == 0; });
}

TEST_F(ExecTest, ATimeOutKillsAndKeepsWhatWasWritten) {
  const auto answer = Exec(R"({"command":"x","timeout_seconds":0.05})");
  Write("partial");
  RunUntil([&] { return !Last().killed.empty(); });
  EXPECT_FALSE(answer->done());
  End(answer, SIGKILL);
  EXPECT_EQ(answer->json()["timed_out"], true);
  EXPECT_EQ(answer->json()["cause"], "timed_out");
  EXPECT_EQ(answer->json()["stdout"], "partial");
  EXPECT_TRUE(answer->json()["exit_code"].is_null());
  EXPECT_EQ(answer->json()["signal"], "SIGKILL");
}

TEST_F(ExecTest, AClientThatHangsUpKillsTheCommand) {
  const auto answer = Exec(R"({"command":"x"})");
  ASSERT_TRUE(answer->hangup);
  answer->hangup();
  EXPECT_EQ(Last().killed, std::vector<uint32_t>{1});
}

TEST_F(ExecTest, LongOutputIsReadAllTheTimeAndCut) {
  const auto answer = Exec(R"({"command":"x","max_output_bytes":1000})");
  std::atomic<bool> written = false;
  std::thread process([&written, fd = Process().out.get()] {
    const std::string text(32 * 1024, 'x');
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(WriteAll(fd, text).has_value());
    written = true;
  });
  RunUntil([&] { return written.load(); });
  process.join();
  End(answer, 0);
  EXPECT_EQ(answer->json()["stdout_bytes"], 100 * 32 * 1024);
  EXPECT_EQ(answer->json()["stdout"].get<std::string>().size(), 1000u);
  EXPECT_EQ(answer->json()["stdout_truncated"], true);
}

TEST_F(ExecTest, StdinIsFedAsTheCommandReadsIt) {
  const std::string text(300 * 1024, 'i');
  const auto answer = Exec(R"({"command":"cat","stdin":")" + text + "\"}");
  const int in = Process().in.get();
  ASSERT_EQ(::fcntl(in, F_SETFL, O_NONBLOCK), 0);  // this one thread is the reader as well
  std::string got;
  RunUntil([&] {
    char buffer[64 * 1024];
    const ssize_t count = ::read(in, buffer, sizeof buffer);
    if (count > 0) got.append(buffer, static_cast<size_t>(count));
    return got.size() == text.size();
  });
  char end;
  EXPECT_EQ(::read(in, &end, 1), 0);
  End(answer, 0);
}

TEST_F(ExecTest, ACommandThatClosesItsStdinIsNoError) {
  const auto answer = Exec(R"({"command":"true","stdin":")" + std::string(300 * 1024, 'i') + "\"}");
  Process().in.reset();
  loop_.RunPending();
  End(answer, 0);
  EXPECT_EQ(answer->json()["exit_code"], 0);
}

TEST_F(ExecTest, WithoutStdinNothingIsMade) {
  const auto answer = Exec(R"({"command":"cat"})");
  EXPECT_FALSE(Process().in.valid());
  End(answer, 0);
}

TEST_F(ExecTest, ACommandThatCannotStartIsAnError) {
  const auto answer = Exec(R"({"command":["nothing"]})");
  AgentEvent event{.kind = AgentEvent::Kind::kStartFailed, .process = 1};
  event.error =
      Error{.code = Code::kCommandNotFound, .sys = ENOENT, .step = "exec", .what = "nothing"};
  Last().Say(std::move(event));
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 422);
  EXPECT_EQ(answer->code(), "command_not_found");
  EXPECT_EQ(answer->json()["error"]["errno"], "ENOENT");
}

TEST_F(ExecTest, ADeletedSandboxAnswersItsCommands) {
  const auto answer = Exec(R"({"command":"x"})");
  Write("so far");
  loop_.RunPending();
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id_)->status(), 204);
  EXPECT_EQ(answer->json()["cause"], "sandbox_ended");
  EXPECT_EQ(answer->json()["stdout"], "so far");
}

TEST_F(ExecTest, CommandsOfOneSandboxAreIndependent) {
  const auto first = Exec(R"({"command":"a"})"), second = Exec(R"({"command":"b"})");
  Write("second", 2);
  Write("first", 1);
  End(second, kExit3, 2);
  EXPECT_EQ(second->json()["stdout"], "second");
  EXPECT_FALSE(first->done());
  End(first, 0, 1);
  EXPECT_EQ(first->json()["stdout"], "first");
}

TEST_F(ExecTest, TooManyAtOnceAreRefused) {
  config_.max_commands_per_sandbox = 1;
  const auto first = Exec(R"({"command":"a"})");
  EXPECT_EQ(Exec(R"({"command":"b"})")->code(), "limit");
  End(first, 0);
}

TEST_F(ExecTest, AnUnknownUserOfTheImageIsRefused) {
  const auto answer = Exec(R"({"command":"a","user":"no-such-user"})");
  EXPECT_EQ(answer->code(), "invalid_argument");
  EXPECT_EQ(answer->json()["error"]["field"], "user");
}

TEST_F(ExecTest, RootIsRootOfTheSandbox) {
  Last().host_ids = ::getuid();
  const auto answer = Exec(R"({"command":"a","user":"root"})");
  EXPECT_EQ(Process().spec.user.uid, 0u);
  EXPECT_THAT(Process().spec.env, testing::Contains("HOME=/root"));
  End(answer, 0);
}

}  // namespace
}  // namespace hutch::daemon
