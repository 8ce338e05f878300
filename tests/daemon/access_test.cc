#include "daemon/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/file.h"
#include "daemon/limits.h"
#include "daemon/routes.h"
#include "daemon/tcp_listener.h"
#include "daemon/watchdog.h"
#include "rootfs/digest.h"
#include "tests/base/temp_dir.h"
#include "tests/daemon/answer.h"

namespace hutch::daemon {
namespace {

std::string Row(const std::string& name, const std::string& role, const std::string& token) {
  return R"({"name":")" + name + R"(","role":")" + role + R"(","sha256":")" +
         rootfs::DigestOf(token).substr(7) + R"("})";
}

TEST(Tokens, AreFoundByTheirHash) {
  const Result<Tokens> tokens =
      Tokens::Parse("[" + Row("a", "read", "one") + "," + Row("b", "admin", "two") + "]");
  ASSERT_TRUE(tokens.has_value()) << tokens.error().what;
  EXPECT_EQ(tokens->Find("one")->name, "a");
  EXPECT_EQ(tokens->Find("two")->role, Role::kAdmin);
  for (const char* other : {"", "on", "onee", "three", "One"})
    EXPECT_EQ(tokens->Find(other), nullptr) << other;
  EXPECT_EQ(Tokens().Find(""), nullptr);
}

TEST(Tokens, WhatIsWrongInTheFileIsNamed) {
  const std::string good = Row("a", "use", "one");
  const std::pair<std::string, std::string> cases[] = {
      {"{}", ""},
      {"[{}]", "[0].name"},
      {"[" + Row("a b", "use", "x") + "]", "[0].name"},
      {"[" + Row("a", "root", "x") + "]", "[0].role"},
      {R"([{"name":"a","role":"use","sha256":"ab"}])", "[0].sha256"},
      {R"([{"name":"a","role":"use","token":"ab"}])", "[0].token"},
      {"[" + good + "," + Row("a", "use", "two") + "]", "[1].name"},
      {"[" + good + "," + Row("b", "use", "one") + "]", "[1].sha256"},
  };
  for (const auto& [text, field] : cases) {
    const Result<Tokens> tokens = Tokens::Parse(text);
    ASSERT_FALSE(tokens.has_value()) << text;
    EXPECT_EQ(tokens.error().field, field) << text;
  }
}

TEST(Tokens, AreBounded) {
  std::string text = "[" + Row("n", "read", "n");
  for (size_t i = 0; i < kMaxTokens; ++i)
    text += "," + Row("n" + std::to_string(i), "read", std::to_string(i));
  EXPECT_FALSE(Tokens::Parse(text + "]").has_value());
  EXPECT_EQ(Tokens::Parse("[" + std::string(kMaxTokensFileBytes, ' ') + "]").error().code,
            Code::kTooLarge);
}

TEST(Tokens, AFileThatOthersMayReadIsRefused) {
  const TempDir directory;
  const std::string path = directory / "tokens.json";
  EXPECT_EQ(Tokens::Load(path).error().code, Code::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(path, "[" + Row("a", "use", "t") + "]", Durability::kMemory));
  EXPECT_TRUE(Tokens::Load(path).has_value());
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const Result<Tokens> shared = Tokens::Load(path);
  ASSERT_FALSE(shared.has_value());
  EXPECT_EQ(shared.error().code, Code::kForbidden);
  EXPECT_EQ(shared.error().field, "tcp.tokens_file");
}

TEST(Tokens, ANewOneFitsItsRow) {
  const Result<NewToken> made = MakeToken("ci", "use"), other = MakeToken("ci", "use");
  ASSERT_TRUE(made.has_value() && other.has_value());
  EXPECT_NE(made->token, other->token);
  EXPECT_EQ(made->token.size(), 6u + 43u);
  EXPECT_EQ(made->row.find(made->token), std::string::npos);
  const Result<Tokens> tokens = Tokens::Parse("[" + made->row + "]");
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->Find(made->token)->name, "ci");
  EXPECT_FALSE(MakeToken("", "use").has_value());
  EXPECT_FALSE(MakeToken("ci", "root").has_value());
}

TEST(Tokens, EqualTextsAreEqualAndNoOthers) {
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  EXPECT_TRUE(EqualInConstantTime("", ""));
  for (const char* other : {"abd", "bbc", "ab", "abcd",
                            "\xe1"
                            "bc"})
    EXPECT_FALSE(EqualInConstantTime("abc", other)) << other;
}

TEST(TcpListener, ListensOnLoopbackOnly) {
  EXPECT_EQ(ParseTcpListen("127.0.0.1:7788")->port, 7788);
  EXPECT_EQ(ParseTcpListen("127.9.8.7:1")->address, "127.9.8.7");
  EXPECT_EQ(ParseTcpListen("[::1]:65535")->address, "::1");
  for (const char* wrong :
       {"0.0.0.0:7788", "10.0.0.1:7788", "[::]:7788", "[fe80::1]:7788", "[::ffff:127.0.0.1]:7788",
        "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "localhost:7788", "::1:7788",
        "7788", "", "127.0.0.1:7788x", "[127.0.0.1]:7788", "127.1:7788", "[::1]7788"})
    EXPECT_FALSE(ParseTcpListen(wrong).has_value()) << wrong;
}

TEST(TcpListener, OnlyLoopbackIsAHost) {
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:7788", "[::1]:1",
                           "[::1]", "127.1.2.3:9"})
    EXPECT_TRUE(NamesLoopback(host)) << host;
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:7788", "10.0.0.1",
        "[::2]", "localhost:x", "[::1", "0.0.0.0:7788", "127.0.0.1@evil.example", "::1"})
    EXPECT_FALSE(NamesLoopback(host)) << host;
}

class AccessTest : public testing::Test {
 protected:
  AccessTest() {
    access_.SetTokens(*Tokens::Parse("[" + Row("reader", "read", "r") + "," +
                                     Row("user", "use", "u") + "," + Row("boss", "admin", "a") +
                                     "]"));
  }
  static Request Make(const std::string& method, const std::string& path, const std::string& token,
                      Headers more = {{"Host", "127.0.0.1:7788"}}) {
    Request request;
    request.method = method;
    request.path = path;
    request.headers = std::move(more);
    if (!token.empty()) request.headers.emplace_back("authorization", "bearer " + token);
    return request;
  }
  int Status(Request request) {
    auto answer = std::make_shared<Answer>();
    access_.Dispatch(std::move(request), Responder(answer));
    return answer->done() ? answer->status() : 0;
  }

  Loop loop_;
  Audit audit_;
  std::vector<Peer> let_in_;
  Access access_{loop_, audit_, [this](Request request, Responder responder) {
                   let_in_.push_back(request.peer);
                   responder.Send(Reply{.status = 200, .body = "{}"});
                 }};
};

TEST_F(AccessTest, ATokenIsNeededAndNamed) {
  EXPECT_EQ(Status(Make("GET", "/v1/info", "")), 401);
  EXPECT_EQ(Status(Make("GET", "/v1/info", "x")), 401);
  EXPECT_EQ(Status(Make("GET", "/v1/info", "r")), 200);
  ASSERT_EQ(let_in_.size(), 1u);
  EXPECT_EQ(let_in_[0].token, "reader");
  EXPECT_EQ(let_in_[0].uid, kNoUid);
  Request twice = Make("GET", "/v1/info", "r");
  twice.headers.emplace_back("Authorization", "Bearer x");
  EXPECT_EQ(Status(twice), 401);
  Request basic = Make("GET", "/v1/info", "");
  basic.headers.emplace_back("Authorization", "Basic r");
  EXPECT_EQ(Status(basic), 401);
}

TEST_F(AccessTest, BrowsersAreKeptOut) {
  const auto with = [](Headers headers) {
    return Make("GET", "/v1/info", "r", std::move(headers));
  };
  EXPECT_EQ(Status(with({{"Host", "evil.example"}})), 403);
  EXPECT_EQ(Status(with({})), 403);
  EXPECT_EQ(Status(with({{"Host", "localhost"}, {"Host", "evil.example"}})), 403);
  EXPECT_EQ(Status(with({{"Host", "localhost"}, {"Origin", "http://localhost"}})), 403);
  EXPECT_EQ(Status(with({{"host", "localhost"}, {"origin", "null"}})), 403);
  EXPECT_EQ(Status(with({{"Host", "localhost:9"}})), 200);
}

TEST_F(AccessTest, ARefusedBodyIsNotCollected) {
  EXPECT_EQ(access_.BodyFor(Make("POST", "/v1/sandboxes", "")), Body::kStream);
  EXPECT_EQ(access_.BodyFor(Make("POST", "/v1/sandboxes", "r")), Body::kStream);
  EXPECT_EQ(access_.BodyFor(Make("POST", "/v1/sandboxes", "u")), Body::kJson);
}

TEST_F(AccessTest, ManyRefusalsAreAnsweredLate) {
  for (size_t i = 0; i < kMaxRefusalsPerSecond; ++i)
    EXPECT_EQ(Status(Make("GET", "/v1/info", "x")), 401);
  auto late = std::make_shared<Answer>();
  access_.Dispatch(Make("GET", "/v1/info", "x"), Responder(late));
  EXPECT_FALSE(late->done());
  EXPECT_EQ(Status(Make("GET", "/v1/info", "r")), 200);  // who has a token does not wait
  access_.Stop();
  EXPECT_EQ(late->status(), 401);
}

TEST_F(AccessTest, HeldRefusalsAreBounded) {
  for (size_t i = 0; i < kMaxRefusalsPerSecond; ++i) Status(Make("GET", "/v1/info", "x"));
  std::vector<std::shared_ptr<Answer>> late(kMaxHeldRefusals);
  for (auto& answer : late) {
    answer = std::make_shared<Answer>();
    access_.Dispatch(Make("GET", "/v1/info", "x"), Responder(answer));
  }
  EXPECT_EQ(Status(Make("GET", "/v1/info", "x")), 401);
}

// By a caller of each role, against what the page says.
TEST_F(AccessTest, EveryRouteHasTheRoleOfThePage) {
  const Result<std::string> page = ReadFile(HUTCH_SOURCE_DIR "/docs/access.md", 1u << 20);
  ASSERT_TRUE(page.has_value());
  std::map<std::string, std::string> documented;
  for (const std::string& line : Split(*page, '\n')) {
    const std::vector<std::string> cells = Split(line, '|');
    if (cells.size() == 4 && cells[1].starts_with(" `") &&
        cells[1].find(" /v1/") != std::string::npos)
      documented[cells[1].substr(2, cells[1].size() - 4)] = std::string(Trim(cells[2]));
  }
  EXPECT_EQ(documented.size(), Routes().size());
  for (const Route& route : Routes()) {
    const std::string call = std::string(route.method) + " " + route.pattern;
    EXPECT_EQ(documented[call], RoleName(route.role)) << call;
    std::string path = route.pattern;
    for (size_t at; (at = path.find('{')) != std::string::npos;)
      path.replace(at, path.find('}') - at + 1, "x");
    const std::string method = route.method == std::string("ANY") ? "PUT" : route.method;
    for (const auto& [token, role] :
         {std::pair{"r", Role::kRead}, {"u", Role::kUse}, {"a", Role::kAdmin}})
      EXPECT_EQ(access_.Judge(Make(method, path, token)).has_value(), role >= route.role)
          << token << " " << call;
  }
}

TEST(Watchdog, IsForTheProcessNamed) {
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", "77", 1);
  EXPECT_EQ(TakeWatchdogInterval(77), Milliseconds(1500));
  EXPECT_EQ(::getenv("WATCHDOG_USEC"), nullptr);
  EXPECT_EQ(TakeWatchdogInterval(77), std::nullopt);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  ::setenv("WATCHDOG_PID", "78", 1);
  EXPECT_EQ(TakeWatchdogInterval(77), std::nullopt);
  ::setenv("WATCHDOG_USEC", "0", 1);
  EXPECT_EQ(TakeWatchdogInterval(77), std::nullopt);
}

}  // namespace
}  // namespace hutch::daemon
