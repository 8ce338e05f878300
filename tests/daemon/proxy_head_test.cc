#include "daemon/proxy_head.h"

#include <gmock/gmock.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

const ProxyAsk kAsk{.prefix = "/v1/sandboxes/sb-x/proxy/3000"};

AnswerHead Read(const std::string& text, const ProxyAsk& ask = kAsk) {
  const Result<std::optional<AnswerHead>> read = ReadAnswerHead(text, ask);
  EXPECT_TRUE(read.has_value()) << read.error().what;
  EXPECT_TRUE(read->has_value());
  return **read;
}

std::string Wrong(const std::string& text, const ProxyAsk& ask = kAsk) {
  const Result<std::optional<AnswerHead>> read = ReadAnswerHead(text, ask);
  return read.has_value() ? "" : read.error().what;
}

TEST(AnswerHead, IsWrittenAnew) {
  const std::string text =
      "HTTP/1.0 404 Nothing here\r\nServer: x\r\nConnection: X-Mine, close\r\nX-Mine: 1\r\n"
      "Keep-Alive: 5\nContent-Length: 3\r\nSet-Cookie:a=b\r\nSet-Cookie: c=d \r\n\r\nabc";
  const AnswerHead head = Read(text);
  EXPECT_EQ(head.text,
            "HTTP/1.1 404 Not Found\r\nServer: x\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
            "Content-Length: 3\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_EQ(head.length, 3u);
  EXPECT_EQ(head.size, text.size() - 3);
}

TEST(AnswerHead, ComesInPieces) {
  const std::string text = "HTTP/1.1 200 OK\r\nX: y\r\n\r\n";
  for (size_t size = 0; size < text.size(); ++size) {
    const Result<std::optional<AnswerHead>> read =
        ReadAnswerHead(std::string_view(text).substr(0, size), kAsk);
    ASSERT_TRUE(read.has_value());
    EXPECT_FALSE(read->has_value()) << size;
  }
  EXPECT_EQ(Read(text).framing, BodyFraming::kUntilClose);
}

TEST(AnswerHead, SomeAnswersHaveNoBody) {
  const ProxyAsk head_only{.head_only = true, .prefix = "/p"};
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", head_only).framing,
            BodyFraming::kNone);
  EXPECT_THAT(Read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", head_only).text,
              HasSubstr("Content-Length: 9\r\n"));
  EXPECT_EQ(Read("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").framing,
            BodyFraming::kNone);
  const AnswerHead none = Read("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(none.framing, BodyFraming::kNone);
  EXPECT_THAT(none.text, Not(HasSubstr("Content-Length")));
  EXPECT_EQ(Wrong("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "its answer has a body where there is none");
}

TEST(AnswerHead, InterimOnesAreNoEnd) {
  const AnswerHead head = Read("HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
  EXPECT_EQ(head.text, "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n");
}

TEST(AnswerHead, AnotherProtocolOnlyWhenAskedFor) {
  const std::string text =
      "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
      "x\r\n\r\n";
  EXPECT_EQ(Wrong(text), "it changes the protocol unasked");
  const ProxyAsk ask{.upgrade = true, .prefix = "/p"};
  EXPECT_EQ(Read(text, ask).text,
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n"
            "Connection: Upgrade\r\n\r\n");
}

TEST(AnswerHead, WhatCouldBeReadTwoWaysIsRefused) {
  for (const char* fields :
       {"Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1, 1\r\n",
        "Content-Length: 0x1\r\n", "Content-Length: -1\r\n", "Content-Length:\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n", "Transfer-Encoding : chunked\r\n",
        " Content-Length: 1\r\n", "X: a\r\n\tb\r\n", "X\r\n", ": x\r\n", "X: a\rb\r\n",
        "Content-Length: 18446744073709551616\r\n"})
    EXPECT_NE(Wrong("HTTP/1.1 200 OK\r\n" + std::string(fields) + "\r\n"), "") << fields;
  EXPECT_NE(Wrong("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), "");
  EXPECT_NE(Wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", {.http_1_0 = true}), "");
  for (const char* line : {"HTTP/1.1 20 OK", "HTTP/1.1 2000", "HTTP/1.1 600 X", "HTTP/1.1  200 OK",
                           "http/1.1 200 OK", "HTTP/1.12 200 OK", "HTTP/1.1 +20", "", "\r"})
    EXPECT_NE(Wrong(std::string(line) + "\r\n\r\n"), "") << line;
}

TEST(AnswerHead, IsBounded) {
  const std::string first = "HTTP/1.1 200 OK\r\n";
  EXPECT_EQ(Wrong(first + "X: " + std::string(kMaxAnswerHeadBytes, 'y')),
            "its answer's head is too long");
  EXPECT_EQ(Wrong(first + "X: " + std::string(kMaxAnswerHeadBytes, 'y') + "\r\n\r\n"),
            "its answer's head is too long");
}

TEST(AnswerHead, FieldsAreBounded) {
  std::string text = "HTTP/1.1 200 OK\r\n";
  for (size_t i = 0; i < kMaxAnswerFields; ++i) text += "X: y\r\n";
  Read(text + "\r\n");
  EXPECT_EQ(Wrong(text + "X: y\r\n\r\n"), "its answer has too many fields");
}

TEST(AnswerHead, PathsOfItsOwnStayBelowThePrefix) {
  const auto location = [](const std::string& value) {
    const std::string text = Read("HTTP/1.1 302 Found\r\nLocation: " + value + "\r\n\r\n").text;
    const size_t at = text.find("Location: ") + 10;
    return text.substr(at, text.find("\r\n", at) - at);
  };
  EXPECT_EQ(location("/login?a"), kAsk.prefix + "/login?a");
  EXPECT_EQ(location(kAsk.prefix + "/there"), kAsk.prefix + "/there");
  EXPECT_EQ(location("//other.example/"), "//other.example/");
  EXPECT_EQ(location("relative"), "relative");
  EXPECT_EQ(location("https://other.example/"), "https://other.example/");
}

TEST(UpstreamHead, IsForOneRequestAndWithoutWhatIsOurs) {
  Request request;
  request.method = "POST";
  request.query_text = "a=%zz";
  request.content_length = 5;
  request.headers = {{"Host", "dev:1"},      {"Authorization", "Bearer x"},
                     {"X-Hutch-Token", "t"}, {"connection", "x-mine"},
                     {"X-Mine", "1"},        {"Content-Length", "5"},
                     {"Accept", "a"},        {"Accept", "b"},
                     {"Upgrade", "h2c"}};
  EXPECT_EQ(UpstreamHead(request, "/a//b", kAsk, BodyFraming::kLength),
            "POST /a//b?a=%zz HTTP/1.1\r\nHost: dev:1\r\nAccept: a\r\nAccept: b\r\n"
            "X-Forwarded-Host: dev:1\r\nX-Forwarded-Proto: http\r\n"
            "X-Forwarded-Prefix: /v1/sandboxes/sb-x/proxy/3000\r\n"
            "Content-Length: 5\r\nConnection: close\r\n\r\n");
}

TEST(UpstreamHead, AnUpgradeIsAskedForAsTheClientDoes) {
  Request request;
  request.method = "GET";
  request.headers = {{"Connection", "keep-alive, Upgrade"}, {"Upgrade", "websocket"}};
  EXPECT_TRUE(AsksForUpgrade(request));
  const ProxyAsk ask{.upgrade = true, .prefix = "/p"};
  EXPECT_THAT(UpstreamHead(request, "/", ask, BodyFraming::kNone),
              HasSubstr("Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"));
  request.headers = {{"Connection", "keep-alive"}, {"Upgrade", "websocket"}};
  EXPECT_FALSE(AsksForUpgrade(request));
}

}  // namespace
}  // namespace hutch::daemon
