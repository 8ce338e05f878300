#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "base/base64.h"
#include "files/limits.h"
#include "tests/files/files_fixture.h"

namespace hutch::files {
namespace {

using oci::Json;

class ReadWriteTest : public FilesTest {
 protected:
  mode_t ModeOf(const std::string& name) const {
    struct stat st {};
    EXPECT_EQ(::lstat(At(name).c_str(), &st), 0) << name;
    return st.st_mode & 07777;
  }
  void MakeSocket(const std::string& name) const {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    At(name).copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  }
};

TEST_F(ReadWriteTest, WhatWasWrittenIsRead) {
  const auto written = Op("write", "a", {{"mode", "0640"}}, "hello");
  EXPECT_EQ(written.ok()["created"], true);
  EXPECT_EQ(written.ok()["size"], 5);
  EXPECT_EQ(written.ok()["mode"], "0640");
  const auto read = Op("read", "a");
  EXPECT_EQ(read.bytes, "hello");
  EXPECT_EQ(read.ok()["etag"], written.ok()["etag"]);
  EXPECT_EQ(Names(), "a");
}

TEST_F(ReadWriteTest, ReplacingKeepsTheModeUnlessOneIsGiven) {
  Put("a", "old", 0751);
  EXPECT_EQ(Op("write", "a", {}, "new").ok()["created"], false);
  EXPECT_EQ(ModeOf("a"), 0751u);
  Op("write", "a", {{"mode", "0600"}}, "new");
  EXPECT_EQ(ModeOf("a"), 0600u);
}

TEST_F(ReadWriteTest, PathsAndRequestsAreBounded) {
  EXPECT_EQ(Op("read", std::string(kMaxPathBytes, 'x')).code(), "invalid_argument");
  EXPECT_EQ(Op("write", std::string(255, 'n'), {}, "x").code(), "");
  EXPECT_EQ(Op("write", std::string(256, 'n'), {}, "x").code(), "invalid_argument");
  EXPECT_EQ(Ask({{"op", "read"}, {"path", "relative"}}).code(), "invalid_argument");
  EXPECT_EQ(Ask({{"op", "read"}, {"path", std::string("/a\0b", 4)}}).code(), "invalid_argument");
  EXPECT_EQ(Ask({{"op", "read"}}).code(), "invalid_argument");
  EXPECT_EQ(Ask({{"op", "nothing"}}).code(), "invalid_argument");
  EXPECT_EQ(Op("read", "a", {{"unknown", 1}}).code(), "invalid_argument");
  const std::string long_request = "{\"op\":\"" + std::string(kMaxRequestBytes, 'x') + "\"}";
  EXPECT_EQ(Ask("not an object").code(), "invalid_argument");
  EXPECT_EQ(Ask(Json(long_request)).code(), "too_large");
}

TEST_F(ReadWriteTest, ARequestMayComeWithTheBytes) {
  UniqueFd reply(::open(At("reply").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  Put("request", Json{{"op", "stat"}, {"path", dir_.path()}}.dump());
  const UniqueFd in(::open(At("request").c_str(), O_RDONLY | O_CLOEXEC));
  ReplyStream stream(reply.get());
  Io io{.in = in.get(), .out = -1, .reply = stream};
  EXPECT_EQ(RunRequest("-", io), 0);
  EXPECT_NE(Get("reply").find("\"directory\""), std::string::npos);
}

TEST_F(ReadWriteTest, NamesThatAreNoTextComeAsBase64) {
  const std::string name = At("a\xff\n");
  const Json path = Base64Encode(name);
  EXPECT_EQ(Ask({{"op", "write"}, {"path_base64", path}}, "x").ok()["path_base64"], path);
  EXPECT_EQ(Ask({{"op", "read"}, {"path_base64", path}}).bytes, "x");
  EXPECT_EQ(Op("list", ".").One("entry")["path_base64"], Base64Encode(At("./a\xff\n")));
}

TEST_F(ReadWriteTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(At("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(At("dir").c_str(), 0700), 0);
  MakeSocket("socket");
  for (const char* op : {"read", "write", "edit", "grep"}) {
    Json more = Json::object();
    if (std::string_view(op) == "edit") more = {{"old", "a"}, {"new", "b"}};
    if (std::string_view(op) == "grep") more = {{"pattern", "a"}};
    EXPECT_EQ(Op(op, "fifo", more, "x").code(), "not_a_file") << op;
    EXPECT_EQ(Op(op, "socket", more, "x").code(), "not_a_file") << op;
    if (std::string_view(op) != "grep") {
      EXPECT_EQ(Op(op, "dir", more, "x").code(), "is_directory") << op;
    }
    more["op"] = op;
    more["path"] = "/dev/null";
    EXPECT_EQ(Ask(more, "x").code(), "not_a_file") << op;
  }
}

TEST_F(ReadWriteTest, SymlinksAreFollowedDanglingOnesToo) {
  Put("file", "old");
  ASSERT_EQ(::symlink("file", At("link").c_str()), 0);
  ASSERT_EQ(::symlink("new", At("dangling").c_str()), 0);
  ASSERT_EQ(::symlink("loop", At("loop").c_str()), 0);
  EXPECT_EQ(Op("read", "link").bytes, "old");
  EXPECT_EQ(Op("write", "link", {}, "through").code(), "");
  EXPECT_EQ(Get("file"), "through");
  EXPECT_EQ(Op("read", "dangling").code(), "not_found");
  EXPECT_EQ(Op("write", "dangling", {}, "made").code(), "");
  EXPECT_EQ(Get("new"), "made");
  EXPECT_EQ(Op("read", "loop").code(), "invalid_argument");
  EXPECT_EQ(Op("write", "loop", {}, "x").code(), "invalid_argument");
  EXPECT_EQ(Op("stat", "loop").ok()["target"], "loop");
  EXPECT_EQ(Op("stat", "link").ok()["type"], "symlink");
}

TEST_F(ReadWriteTest, RangesAreOfTheFileThatTheClientKnows) {
  Put("a", "0123456789");
  const auto whole = Op("read", "a");
  const Json tag = whole.ok()["etag"];
  const auto part = Op("read", "a", {{"offset", 2}, {"length", 3}});
  EXPECT_EQ(part.bytes, "234");
  EXPECT_EQ(part.ok()["outcome"], "partial");
  EXPECT_EQ(Op("read", "a", {{"offset", 8}, {"length", 100}}).bytes, "89");
  EXPECT_EQ(Op("read", "a", {{"suffix", 4}}).bytes, "6789");
  EXPECT_EQ(Op("read", "a", {{"suffix", 400}}).bytes, "0123456789");
  EXPECT_EQ(Op("read", "a", {{"offset", 10}}).ok()["outcome"], "unsatisfiable");
  EXPECT_EQ(Op("read", "a", {{"offset", 1}, {"if_range", tag}}).bytes, "123456789");
  EXPECT_EQ(Op("read", "a", {{"offset", 1}, {"if_range", "other"}}).bytes, "0123456789");
  const auto same = Op("read", "a", {{"if_none_match", {tag}}});
  EXPECT_EQ(same.ok()["outcome"], "not_modified");
  EXPECT_EQ(same.bytes, "");
  EXPECT_EQ(Op("read", "a", {{"if_match", {"other"}}}).code(), "precondition_failed");
  EXPECT_EQ(Op("read", "a", {{"if_match", {tag}}}).bytes, "0123456789");
}

TEST_F(ReadWriteTest, AHugeHoleIsReadWhereItIsAskedFor) {
  Put("hole", "x");
  ASSERT_EQ(::truncate(At("hole").c_str(), 1ll << 40), 0);
  const auto read = Op("read", "hole", {{"offset", (1ll << 40) - 3}});
  EXPECT_EQ(read.bytes, std::string(3, '\0'));
  EXPECT_EQ(read.ok()["size"], 1ll << 40);
}

TEST_F(ReadWriteTest, AReaderThatIsGoneEndsAnEndlessRead) {
  Put("hole", "x");
  ASSERT_EQ(::truncate(At("hole").c_str(), 1ll << 40), 0);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  ::signal(SIGPIPE, SIG_IGN);
  ReplyStream reply(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  Io io{.in = -1, .out = writer.get(), .reply = reply};
  std::thread client([&] {
    char byte;
    EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
    reader.reset();
  });
  EXPECT_EQ(RunRequest(Json{{"op", "read"}, {"path", At("hole")}}.dump(), io), 1);
  client.join();
}

TEST_F(ReadWriteTest, FilesWithoutASizeAreReadToTheirEnd) {
  const auto read = Ask({{"op", "read"}, {"path", "/proc/self/status"}});
  EXPECT_NE(read.bytes.find("Name:"), std::string::npos);
  EXPECT_FALSE(read.ok().contains("length"));
}

TEST_F(ReadWriteTest, AFailedWriteLeavesNothing) {
  Put("a", "old");
  EXPECT_EQ(Op("write", "a", {{"expected_bytes", 4}}, "new").code(), "corrupt");
  EXPECT_EQ(Op("write", "a", {{"sha256", std::string(64, '0')}}, "new").code(), "corrupt");
  EXPECT_EQ(Op("write", "b", {{"expected_bytes", 4}}, "new").code(), "corrupt");
  EXPECT_EQ(Op("write", "a", {{"how", "append"}, {"expected_bytes", 4}}, "new").code(), "corrupt");
  EXPECT_EQ(Op("write", "b", {{"how", "append"}, {"expected_bytes", 4}}, "new").code(), "corrupt");
  EXPECT_EQ(Names(), "a");
  EXPECT_EQ(Get("a"), "old");
  // Of "new".
  const char* digest = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437";
  EXPECT_EQ(Op("write", "a", {{"expected_bytes", 3}, {"sha256", digest}}, "new").code(), "");
  EXPECT_EQ(Get("a"), "new");
}

TEST_F(ReadWriteTest, CreatingReplacingAndAppendingAreTold) {
  EXPECT_EQ(Op("write", "a", {{"how", "create"}}, "1").ok()["created"], true);
  EXPECT_EQ(Op("write", "a", {{"how", "create"}}, "2").code(), "exists");
  EXPECT_EQ(Op("write", "a", {{"how", "append"}}, "3").ok()["created"], false);
  EXPECT_EQ(Op("write", "b", {{"how", "append"}}, "4").ok()["created"], true);
  EXPECT_EQ(Get("a") + Get("b"), "134");
  const Json tag = Op("stat", "a").ok()["etag"];
  EXPECT_EQ(Op("write", "a", {{"if_match", "other"}}, "5").code(), "precondition_failed");
  EXPECT_EQ(Op("write", "c", {{"if_match", "*"}}, "5").code(), "precondition_failed");
  EXPECT_EQ(Op("write", "a", {{"if_match", tag}}, "6").code(), "");
  EXPECT_EQ(Op("write", "a", {{"if_match", tag}}, "7").code(), "precondition_failed");
  EXPECT_EQ(Get("a"), "6");
}

TEST_F(ReadWriteTest, ParentsAreMadeWhenAskedFor) {
  EXPECT_EQ(Op("write", "x/y/z", {}, "1").code(), "not_found");
  EXPECT_EQ(Op("write", "x/y/z", {{"parents", true}}, "1").code(), "");
  EXPECT_EQ(Get("x/y/z"), "1");
  Put("file", "");
  EXPECT_EQ(Op("write", "file/y/z", {{"parents", true}}, "1").code(), "not_directory");
}

TEST_F(ReadWriteTest, EditsCountWhatTheyReplace) {
  Put("a", "one two one");
  EXPECT_EQ(Op("edit", "a", {{"old", "one"}, {"new", "1"}}).code(), "ambiguous");
  EXPECT_EQ(Op("edit", "a", {{"old", "three"}, {"new", "3"}, {"all", true}}).code(), "ambiguous");
  EXPECT_EQ(Op("edit", "a", {{"old", "two"}, {"new", "2"}}).ok()["replacements"], 1);
  EXPECT_EQ(Op("edit", "a", {{"old", "one"}, {"new", "1"}, {"count", 2}}).ok()["replacements"], 2);
  EXPECT_EQ(Get("a"), "1 2 1");
  EXPECT_EQ(Op("edit", "a", {{"old", "1"}, {"new", ""}, {"all", true}}).code(), "");
  EXPECT_EQ(Get("a"), " 2 ");
  EXPECT_EQ(Op("edit", "a", {{"old", ""}, {"new", "x"}}).code(), "invalid_argument");
  EXPECT_EQ(Op("edit", "b", {{"old", "1"}, {"new", "x"}}).code(), "not_found");
}

TEST_F(ReadWriteTest, LargeFilesAreNotEdited) {
  Put("a", "x");
  ASSERT_EQ(::truncate(At("a").c_str(), kMaxEditBytes + 1), 0);
  EXPECT_EQ(Op("edit", "a", {{"old", "x"}, {"new", "y"}}).code(), "too_large");
  Put("b", std::string(1024, 'x'));
  const std::string text(kMaxEditBytes / 1024 + 1, 'y');
  EXPECT_EQ(Op("edit", "b", {{"old", "x"}, {"new", text}, {"all", true}}).code(), "too_large");
}

TEST_F(ReadWriteTest, BatchesAnswerForEachFile) {
  const auto written =
      Ask({{"op", "batch_write"},
           {"files",
            {{{"path", At("a")}, {"content", "A"}},
             {{"path", At("no/b")}, {"content", "B"}},
             {{"path", At("c")}, {"content_base64", Base64Encode("\xff")}, {"mode", "0600"}}}}});
  EXPECT_EQ(written.ok()["failed"], 1);
  EXPECT_EQ(written.All("result")[1]["error"]["code"], "not_found");
  const auto read =
      Ask({{"op", "batch_read"},
           {"files", {{{"path", At("a")}}, {{"path", At("no/b")}}, {{"path", At("c")}}}}});
  const auto results = read.All("result");
  EXPECT_EQ(results[0]["content"], "A");
  EXPECT_EQ(results[1]["error"]["code"], "not_found");
  EXPECT_EQ(results[2]["content_base64"], Base64Encode("\xff"));
  EXPECT_EQ(results[2]["mode"], "0600");
}

TEST_F(ReadWriteTest, BatchesAreBounded) {
  Json files = Json::array();
  for (size_t i = 0; i <= kMaxBatchFiles; ++i) files.push_back({{"path", At("a")}});
  EXPECT_EQ(Ask({{"op", "batch_read"}, {"files", files}}).code(), "invalid_argument");
  Put("big", std::string(kMaxBatchBytes / 2 + 1, 'x'));
  const auto read =
      Ask({{"op", "batch_read"}, {"files", {{{"path", At("big")}}, {{"path", At("big")}}}}});
  EXPECT_EQ(read.ok()["failed"], 1);
  EXPECT_EQ(read.All("result")[1]["error"]["code"], "too_large");
  const std::string half(kMaxBatchBytes / 2 + 1, 'x');
  EXPECT_EQ(
      Ask({{"op", "batch_write"},
           {"files",
            {{{"path", At("x")}, {"content", half}}, {{"path", At("y")}, {"content", half}}}}})
          .code(),
      "too_large");
}

}  // namespace
}  // namespace hutch::files
