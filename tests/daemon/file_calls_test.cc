// File requests against a fake sandbox: what the process inside says is the test's to write.
#include <csignal>
#include <thread>

#include "daemon/file_reply.h"
#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

class FileReply : public DaemonTest {
 protected:
  void SetUp() override {
    StartSandboxes();
    id_ = Create();
  }
  FakeSandbox::Started& Process(uint32_t number = 1) { return Last().started[number]; }
  std::string Path(const std::string& rest) const { return "/v1/sandboxes/" + id_ + rest; }
  // What the process says, and its end.
  std::shared_ptr<Answer> Say(const std::shared_ptr<Answer>& answer, const std::string& text,
                              int wait_status = 0) {
    EXPECT_TRUE(WriteAll(Process().err.get(), text).has_value());
    Process().err.reset();
    Last().Exit(1, wait_status);
    RunUntil([&] { return answer->done(); });
    return answer;
  }

  // The process ends, and all that was kept for it goes.
  void End() {
    Process().err.reset();
    Last().Exit(1, SIGKILL);
    RunUntil([&] { return Call("GET", Path(""))->json()["processes"] == 0; });
  }

  std::string id_;
};

TEST_F(FileReply, TheProcessIsAskedInJsonAndItsAnswerIsPrintedAnew) {
  const auto answer = Begin("GET", Path("/files?path=/workspace"));
  ASSERT_EQ(Process().spec.args[0], "hutch-files");
  EXPECT_EQ(*oci::ParseJson(Process().spec.args[1]),
            (oci::Json{{"op", "list"}, {"path", "/workspace"}}));
  Say(answer, "{\"entry\":{\"path\":\"/a\",\"size\":1,\"evil\":{}}}\n{\"ok\":{\"count\":1}}\n");
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(answer->json(),
            (oci::Json{{"count", 1}, {"entries", {{{"path", "/a"}, {"size", 1}}}}}));
}

TEST_F(FileReply, ErrorsAreBoundedAndKnown) {
  const std::string message(kMaxFileErrorBytes + 1000, 'x');
  const auto answer = Begin("GET", Path("/files?path=/a"));
  Say(answer, "{\"error\":{\"code\":\"not_found\",\"errno\":\"ENOENT\",\"message\":\"" + message +
                  "\"}}\n");
  EXPECT_EQ(answer->status(), 404);
  EXPECT_EQ(answer->json()["error"]["errno"], "ENOENT");
  EXPECT_EQ(answer->json()["error"]["message"].get<std::string>().size(), kMaxFileErrorBytes);
  EXPECT_EQ(FileErrorOf({{"code", "no such code"}}).code, Code::kUnavailable);
}

TEST_F(FileReply, WhatIsNoAnswerIsUnavailable) {
  for (const char* line : {"no json", "{}", "[]", "{\"ok\":1}", "{\"ok\":{},\"more\":{}}",
                           "{\"ok\":{\"size\":\"text\"}}", "{\"ok\":{\"etag\":1}}",
                           "{\"entry\":{\"before\":[1]}}", "{\"unknown\":{}}"})
    EXPECT_FALSE(ParseFileLine(line).has_value()) << line;
  for (const char* tag : {"", "a\r\nSet-Cookie: x", "\"", "ABC"})
    EXPECT_FALSE(EntityTagOf({{"etag", tag}}).has_value()) << tag;
}

TEST_F(FileReply, AProcessThatWasKilledIsUnavailable) {
  EXPECT_EQ(Say(Begin("GET", Path("/files?path=/a")), "", SIGKILL)->code(), "unavailable");
}

TEST_F(FileReply, AnAnswerThatIsTooLongIsRefused) {
  const auto answer = Begin("GET", Path("/files?path=/a"));
  const std::string line(64 * 1024, 'x');
  size_t sent = 0;
  // As fast as it is taken: the pipe holds little.
  std::thread process([&line, &sent, fd = Process().err.get()] {
    while (sent <= kMaxFileReplyBytes && WriteAll(fd, line)) sent += line.size();
  });
  RunUntil([&] { return !Last().killed.empty(); });
  Last().Exit(1, SIGKILL);
  RunUntil([&] { return answer->done(); });
  process.join();
  EXPECT_EQ(answer->code(), "too_large");
}

TEST_F(FileReply, AnAnswerOfTooManyLinesIsRefused) {
  const auto answer = Begin("GET", Path("/files?path=/a"));
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "{\"entry\":{}}\n";
  std::thread process([&lines, fd = Process().err.get()] {
    for (size_t sent = 0; sent <= kMaxFileReplyLines && WriteAll(fd, lines); sent += 1000) continue;
  });
  RunUntil([&] { return !Last().killed.empty(); });
  Last().Exit(1, SIGKILL);
  RunUntil([&] { return answer->done(); });
  process.join();
  EXPECT_EQ(answer->code(), "too_large");
}

TEST_F(FileReply, WhatIsNoObjectIsRefused) {
  for (const char* body : {"[]", "5", R"({"op":"delete","path":"/a"})"})
    EXPECT_EQ(Call("POST", Path("/files:copy"), body)->status(), 400) << body;
}

TEST_F(FileReply, ALongRequestGoesAsAFile) {
  const std::string content(kMaxFileRequestArgBytes, 'x');
  const auto answer = Begin("POST", Path("/files:write"),
                            "{\"files\":[{\"path\":\"/a\",\"content\":\"" + content + "\"}]}");
  ASSERT_EQ(Process().spec.args[1], "-");
  const auto sent = ReadAll(Process().in.get(), 1u << 20);
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ((*oci::ParseJson(*sent))["files"][0]["content"], content);
  EXPECT_EQ(Say(answer, "{\"ok\":{\"files\":1,\"failed\":0}}\n")->status(), 200);
}

TEST_F(FileReply, AClientThatHangsUpEndsTheProcess) {
  const auto answer = Begin("GET", Path("/files?path=/a"));
  answer->hangup();
  EXPECT_EQ(Last().killed, std::vector<uint32_t>{1});
  End();
}

TEST_F(FileReply, AFileIsStreamedUnderTheHeadThatTheProcessGave) {
  const auto answer = Begin("GET", Path("/files/workspace/a%20b"));
  EXPECT_EQ((*oci::ParseJson(Process().spec.args[1]))["path"], "/workspace/a b");
  ASSERT_TRUE(WriteAll(Process().err.get(),
                       "{\"ok\":{\"etag\":\"1-2\",\"size\":5,\"length\":5,\"offset\":0,"
                       "\"outcome\":\"full\"}}\n")
                  .has_value());
  RunUntil([&] { return answer->stream_head.has_value(); });
  EXPECT_EQ(answer->stream_head->length, 5u);
  EXPECT_EQ(answer->stream_head->headers[0].second, "\"1-2\"");
  End();
}

}  // namespace
}  // namespace hutch::daemon
