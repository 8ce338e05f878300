#include "tools/exec_outcome.h"

#include <gtest/gtest.h>

#include <csignal>

namespace hutch::tools {
namespace {

oci::Json Reply(oci::Json changes) {
  oci::Json reply = {{"exit_code", 0},
                     {"signal", nullptr},
                     {"cause", "exited"},
                     {"stdout", ""},
                     {"stderr", ""},
                     {"stdout_encoding", "utf-8"},
                     {"stderr_encoding", "utf-8"},
                     {"duration_ms", 1500.0}};
  reply.update(changes);
  return reply;
}

int CodeOf(const oci::Json& changes) { return ReadExecReply(Reply(changes))->exit_code; }

TEST(ExitCodes, AreMapped) {
  EXPECT_EQ(CodeOf({{"exit_code", 3}}), 3);
  EXPECT_EQ(CodeOf({{"exit_code", nullptr}, {"signal", "SIGKILL"}}), 137);
  EXPECT_EQ(CodeOf({{"exit_code", nullptr}, {"signal", "SIGSEGV"}}), 139);
  EXPECT_EQ(CodeOf({{"exit_code", nullptr}, {"signal", "SIGKILL"}, {"timed_out", true}}), 124);
  EXPECT_EQ(CodeOf({{"exit_code", nullptr}, {"cause", "sandbox_ended"}}), 125);
  EXPECT_EQ(ExitCodeFor({.code = Code::kCommandNotFound, .what = ""}), 127);
  EXPECT_EQ(ExitCodeFor({.code = Code::kCommandNotExecutable, .what = ""}), 126);
  EXPECT_EQ(ExitCodeFor({.code = Code::kNotFound, .what = ""}), 125);
}

TEST(ExitCodes, SignalNames) {
  EXPECT_EQ(SignalNumber("SIGTERM"), SIGTERM);
  EXPECT_EQ(SignalNumber("SIGRTMIN+2"), SIGRTMIN + 2);
  EXPECT_EQ(SignalNumber("SIGNONSENSE"), 0);
  EXPECT_EQ(SignalNumber(""), 0);
}

TEST(ExecReply, StreamsAreBytes) {
  const auto outcome = ReadExecReply(Reply(
      {{"stdout", std::string("a\0b", 3)}, {"stderr", "/wA="}, {"stderr_encoding", "base64"}}));
  EXPECT_EQ(outcome->out, std::string("a\0b", 3));
  EXPECT_EQ(outcome->err, std::string("\xff\0", 2));
}

TEST(ExecReply, EachMishapIsOneLineWithWhatHelps) {
  const std::pair<oci::Json, const char*> mishaps[] = {
      {{{"timed_out", true}}, "--timeout"},
      {{{"oom_killed", true}}, "--memory"},
      {{{"pids_limit_hit", true}}, "--pids"},
      {{{"stdout_truncated", true}, {"stdout_bytes", 5000u}}, "--max-output"},
      {{{"stderr_truncated", true}, {"stderr_bytes", 5000u}}, "stderr"},
      {{{"cause", "sandbox_ended"}}, "hutch inspect"},
  };
  for (const auto& [changes, told] : mishaps) {
    const auto outcome = ReadExecReply(Reply(changes));
    ASSERT_EQ(outcome->notes.size(), 1u);
    EXPECT_NE(outcome->notes[0].find(told), std::string::npos) << outcome->notes[0];
    EXPECT_EQ(outcome->notes[0].find('\n'), std::string::npos);
  }
  EXPECT_TRUE(ReadExecReply(Reply({{"exit_code", 1}}))->notes.empty());
}

TEST(ExecReply, MalformedRepliesAreErrors) {
  EXPECT_FALSE(ReadExecReply(oci::Json::array()));
  EXPECT_FALSE(ReadExecReply(Reply({{"stdout", 1}})));
  EXPECT_FALSE(ReadExecReply(Reply({{"stdout", "*"}, {"stdout_encoding", "base64"}})));
  EXPECT_FALSE(ReadExecReply(Reply({{"timed_out", "yes"}})));
}

}  // namespace
}  // namespace hutch::tools
