#include "daemon/http_parser.h"

#include <gtest/gtest.h>

namespace hutch::daemon {
namespace {

using Progress = HttpParser::Progress;

struct Outcome {
  Progress progress = Progress::kNeedMore;
  Request request;
  Error error;
  bool keep_alive = false;
};

// Feeds `text` in pieces of `piece` bytes.
Outcome ParseAll(const std::string& text, size_t piece = 100000) {
  BodyBudget budget;
  HttpParser parser(&budget);
  Outcome outcome;
  for (size_t at = 0; at < text.size(); at += piece) {
    parser.Feed(std::string_view(text).substr(at, piece));
    do outcome.progress = parser.Parse();
    while (outcome.progress == Progress::kSendContinue);
    if (outcome.progress != Progress::kNeedMore) break;
  }
  outcome.keep_alive = parser.keep_alive();
  if (outcome.progress == Progress::kComplete) outcome.request = parser.Take();
  if (outcome.progress == Progress::kFailed) outcome.error = parser.error();
  return outcome;
}

TEST(HttpParser, ReadsARequestHoweverItArrives) {
  const std::string text =
      "POST /v1/x%20y?state=running&label=a%3Db+c HTTP/1.1\r\nHost: h\r\nAccept: "
      "text/event-stream;q=1\r\nContent-Length: 5\r\n\r\nhello";
  for (const size_t piece : {1u, 2u, 7u, 1000u}) {
    const Outcome outcome = ParseAll(text, piece);
    ASSERT_EQ(outcome.progress, Progress::kComplete) << piece << " " << outcome.error.what;
    EXPECT_EQ(outcome.request.method, "POST");
    EXPECT_EQ(outcome.request.path, "/v1/x%20y");
    EXPECT_EQ(outcome.request.body, "hello");
    EXPECT_TRUE(outcome.request.wants_events);
    EXPECT_TRUE(outcome.keep_alive);
    ASSERT_EQ(outcome.request.query.size(), 2u);
    EXPECT_EQ(outcome.request.query[1], (std::pair<std::string, std::string>("label", "a=b c")));
  }
}

TEST(HttpParser, ReadsChunkedBodies) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n "
      "world\r\n0\r\nTrailer: t\r\n\r\n";
  for (const size_t piece : {1u, 3u, 1000u}) {
    const Outcome outcome = ParseAll(text, piece);
    ASSERT_EQ(outcome.progress, Progress::kComplete) << piece << " " << outcome.error.what;
    EXPECT_EQ(outcome.request.body, "hello world");
  }
}

TEST(HttpParser, PipelinedRequestsWaitTheirTurn) {
  BodyBudget budget;
  HttpParser parser(&budget);
  parser.Feed(
      "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxxGET /b HTTP/1.1\r\nHost: "
      "h\r\n\r\nGET /c");
  ASSERT_EQ(parser.Parse(), Progress::kComplete);
  EXPECT_EQ(parser.Take().path, "/a");
  ASSERT_EQ(parser.Parse(), Progress::kComplete);
  EXPECT_EQ(parser.Take().path, "/b");
  EXPECT_EQ(parser.Parse(), Progress::kNeedMore);
  EXPECT_FALSE(parser.idle());
}

TEST(HttpParser, AsksAClientThatWaitsToGoOn) {
  BodyBudget budget;
  HttpParser parser(&budget);
  parser.Feed("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(parser.Parse(), Progress::kSendContinue);
  EXPECT_EQ(parser.Parse(), Progress::kNeedMore);
  parser.Feed("hi");
  EXPECT_EQ(parser.Parse(), Progress::kComplete);
}

TEST(HttpParser, KnowsWhetherTheConnectionStays) {
  EXPECT_FALSE(ParseAll("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(ParseAll("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
  EXPECT_FALSE(ParseAll("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").keep_alive);
}

TEST(HttpParser, AcceptsTheAbsoluteForm) {
  const Outcome outcome = ParseAll("GET http://hutch/v1/health HTTP/1.1\r\nHost: hutch\r\n\r\n");
  ASSERT_EQ(outcome.progress, Progress::kComplete);
  EXPECT_EQ(outcome.request.path, "/v1/health");
}

// Requests that another parser might read differently are refused, not guessed at.
TEST(HttpParser, RefusesWhatSmugglesRequests) {
  const std::string tail = "\r\n\r\n";
  const char* heads[] = {
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
      "POST / HTTP/1.0\r\nTransfer-Encoding: chunked",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked",
      "POST / HTTP/1.1\r\nHost: h\r\n Transfer-Encoding: chunked",
      "POST / HTTP/1.1\r\nHost: h\r\nX: y\r\n folded",
      "POST / HTTP/1.1\r\nHost: h\nX: y",
      "POST / HTTP/1.1\r\nHost: h\r\nX: a\rb",
      "POST / HTTP/1.1\r\nHost: h\r\nX: a\001b",
      "GET / HTTP/1.1",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b",
      "GET / HTTP/2.0\r\nHost: h",
      "GET  / HTTP/1.1\r\nHost: h",
      "GET /a b HTTP/1.1\r\nHost: h",
      "GET h HTTP/1.1\r\nHost: h",
      "* / HTTP/1.1\r\nHost h",
      "\x16\x03\x01\x02",
  };
  for (const char* head : heads) {
    const Outcome outcome = ParseAll(head + tail + "hello");
    EXPECT_EQ(outcome.progress, Progress::kFailed) << head;
    EXPECT_EQ(outcome.error.code, Code::kInvalidArgument) << head << ": " << outcome.error.what;
    EXPECT_FALSE(outcome.keep_alive);
  }
}

TEST(HttpParser, AChunkedBodyWithoutAChunkIsEmpty) {
  for (const size_t piece : {1u, 2u, 3u, 4u, 1000u}) {
    const Outcome outcome = ParseAll(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", piece);
    ASSERT_EQ(outcome.progress, Progress::kComplete) << piece << " " << outcome.error.what;
    EXPECT_EQ(outcome.request.body, "");
  }
}

TEST(HttpParser, RefusesMalformedChunks) {
  for (const char* body :
       {"zz\r\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n"}) {
    const Outcome outcome = ParseAll(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(body));
    EXPECT_EQ(outcome.progress, Progress::kFailed) << body;
  }
}

TEST(HttpParser, ALargeHeadIsRefusedBeforeItsEnd) {
  const Outcome outcome =
      ParseAll("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(kMaxHeaderBytes, 'x'), 1000);
  EXPECT_EQ(outcome.progress, Progress::kFailed);
  EXPECT_EQ(outcome.error.code, Code::kTooLarge);
}

TEST(HttpParser, ALargeBodyIsRefusedBeforeItArrives) {
  const Outcome outcome = ParseAll("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                                   std::to_string(kMaxBodyBytes + 1) + "\r\n\r\n");
  EXPECT_EQ(outcome.progress, Progress::kFailed);
  EXPECT_EQ(outcome.error.code, Code::kTooLarge);
}

TEST(HttpParser, ALargeChunkedBodyIsRefusedOnTheWay) {
  BodyBudget budget;
  HttpParser parser(&budget);
  parser.Feed("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  Progress progress = parser.Parse();
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  for (int i = 0; i < 200 && progress == Progress::kNeedMore; ++i) {
    parser.Feed(chunk);
    progress = parser.Parse();
  }
  EXPECT_EQ(progress, Progress::kFailed);
  EXPECT_EQ(parser.error().code, Code::kTooLarge);
}

TEST(HttpParser, AnEndlessChunkHeaderIsRefused) {
  const Outcome outcome =
      ParseAll("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;" +
                   std::string(4 * kMaxChunkOverheadBytes, 'x'),
               1000);
  EXPECT_EQ(outcome.progress, Progress::kFailed);
}

TEST(HttpParser, BodiesOfAllConnectionsAreBoundedTogether) {
  BodyBudget budget{.max_bytes = 150};
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n";
  HttpParser second(&budget);
  {
    HttpParser first(&budget);
    first.Feed(head);
    EXPECT_EQ(first.Parse(), Progress::kNeedMore);
    second.Feed(head);
    EXPECT_EQ(second.Parse(), Progress::kFailed);
    EXPECT_EQ(second.error().code, Code::kUnavailable);
  }
  EXPECT_EQ(budget.used_bytes, 0u);
  EXPECT_LE(budget.max_bytes, kMaxBodyBytesInFlight);
}

TEST(HttpParser, TooManyQueryParametersAreRefused) {
  std::string query = "a=1";
  for (size_t i = 0; i < kMaxQueryParameters; ++i) query += "&a=1";
  EXPECT_EQ(ParseAll("GET /?" + query + " HTTP/1.1\r\nHost: h\r\n\r\n").progress,
            Progress::kFailed);
}

TEST(PercentDecode, RefusesMalformedEscapes) {
  std::string out;
  EXPECT_TRUE(PercentDecode("a%2Fb", Plus::kLiteral, &out));
  EXPECT_EQ(out, "a/b");
  for (const char* text : {"%", "%4", "%zz", "%00", "%ff"})
    EXPECT_FALSE(PercentDecode(text, Plus::kLiteral, &out)) << text;
}

}  // namespace
}  // namespace hutch::daemon
