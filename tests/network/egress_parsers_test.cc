// What comes from sandboxes, as the egress program reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/egress/client_hello.h"
#include "network/egress/dns_message.h"
#include "network/egress/http_body.h"
#include "network/egress/http_head.h"
#include "network/egress/limits.h"

namespace hutch::network {
namespace {

using ::testing::HasSubstr;
using State = ClientHello::State;

std::string Number(size_t value, size_t size) {
  std::string text;
  for (size_t i = size; i-- > 0;) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return text;
}
std::string Vector(const std::string& body, size_t size) {
  return Number(body.size(), size) + body;
}
std::string Name(const std::string& name) {
  return Number(0, 2) + Vector(Vector(Number(0, 1) + Vector(name, 2), 2), 2);
}
std::string Message(const std::string& extensions) {
  const std::string body = Number(0x0303, 2) + std::string(32, 'r') + Vector("", 1) +
                           Vector("ab", 2) + Vector(std::string(1, '\0'), 1) +
                           Vector(extensions, 2);
  return Number(1, 1) + Vector(body, 3);
}
std::string Record(const std::string& payload) { return Number(0x160301, 3) + Vector(payload, 2); }

TEST(ClientHelloTest, TheNameIsFoundHoweverTheHelloIsCut) {
  const std::string message = Message(Name("good.test"));
  const std::string whole = Record(message);
  EXPECT_EQ(ReadClientHello(whole).name, "good.test");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(ReadClientHello(whole.substr(0, size)).state, State::kNeedMore) << size;
  std::string records;
  for (const char c : message) records += Record(std::string(1, c));
  EXPECT_EQ(ReadClientHello(records).name, "good.test");
  EXPECT_EQ(ReadClientHello(records).state, State::kWhole);
}

TEST(ClientHelloTest, WhatHidesOrDoublesANameIsSeen) {
  EXPECT_TRUE(ReadClientHello(Record(Message(Name("a.test") + Number(0xfe0d, 2) + Vector("x", 2))))
                  .encrypted);
  EXPECT_EQ(ReadClientHello(Record(Message(""))).name, "");
  for (const std::string& extensions :
       {Name("a.test") + Name("b.test"), Name(""), Name(std::string("a\0b", 3)),
        Number(0, 2) + Vector("", 2), Number(0, 2) + Vector("\xff\xff", 2), std::string("\0", 1)})
    EXPECT_EQ(ReadClientHello(Record(Message(extensions))).state, State::kMalformed);
}

TEST(ClientHelloTest, OtherBytesAreNoTls) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "SSH-2.0-x\r\n", "\x16\x02", "\x05\x01"})
    EXPECT_EQ(ReadClientHello(text).state, State::kNotTls) << text;
  EXPECT_EQ(ReadClientHello(Record(Number(2, 1) + Vector("x", 3))).state, State::kNotTls);
}

TEST(ClientHelloTest, ItsLengthIsBounded) {
  const std::string header = Number(1, 1) + Number(0xffffff, 3);
  EXPECT_EQ(ReadClientHello(Record(header)).state, State::kMalformed);
  std::string drip = Record(Number(1, 1));
  while (drip.size() < kMaxHelloBytes) drip += Number(0x160301, 3) + Number(0, 2);
  EXPECT_EQ(ReadClientHello(drip).state, State::kMalformed);
}

std::string Question(const std::string& labels, uint16_t type, uint16_t count = 1,
                     uint16_t flags = 0x0100) {
  return Number(7, 2) + Number(flags, 2) + Number(count, 2) + Number(0, 6) + labels +
         Number(type, 2) + Number(1, 2);
}
const std::string kLabels = Vector("Good", 1) + Vector("test", 1) + std::string(1, '\0');

TEST(DnsMessage, AQuestionIsRead) {
  const DnsQuestion question = ReadQuestion(Question(kLabels, kTypeA));
  EXPECT_EQ(question.code, DnsCode::kOk);
  EXPECT_EQ(question.name, "Good.test");
  EXPECT_EQ(question.type, kTypeA);
  EXPECT_EQ(question.max_bytes, 512u);
}

TEST(DnsMessage, WhatIsNoQuestionGetsNoAnswerOrAnError) {
  EXPECT_FALSE(ReadQuestion("short").answerable);
  EXPECT_FALSE(ReadQuestion(Question(kLabels, 1, 1, 0x8000)).answerable);  // an answer
  EXPECT_EQ(ReadQuestion(Question(kLabels, 1, 2)).code, DnsCode::kFormat);
  EXPECT_EQ(ReadQuestion(Question(kLabels, 1, 1, 0x2800)).code, DnsCode::kNotImplemented);
  const std::string pointer("\xc0\x0c", 2);
  EXPECT_EQ(ReadQuestion(Question(pointer, 1)).code, DnsCode::kFormat);
  std::string endless;
  for (int i = 0; i < 100; ++i) endless += Vector("label", 1);
  EXPECT_EQ(ReadQuestion(Question(endless + std::string(1, '\0'), 1)).code, DnsCode::kFormat);
  EXPECT_EQ(ReadQuestion(Question(Vector("a.b", 1) + std::string(1, '\0'), 1)).name, "a?b");
}

TEST(DnsMessage, AnswersFitWhatTheAskerTakes) {
  DnsQuestion question = ReadQuestion(Question(kLabels, kTypeAaaa));
  const std::vector<Address> many(100);
  const std::string cut = MakeAnswer(question, DnsCode::kOk, many, 60, 512);
  EXPECT_LE(cut.size(), 512u);
  EXPECT_NE(cut[2] & 2, 0);
  const std::string whole = MakeAnswer(question, DnsCode::kOk, many, 60, 65535);
  EXPECT_EQ(whole[7], 100);
  EXPECT_EQ(whole[2] & 2, 0);
  std::string edns = Question(kLabels, kTypeA);
  edns[11] = 1;
  edns += std::string(1, '\0') + Number(41, 2) + Number(65000, 2) + Number(0, 6);
  EXPECT_EQ(ReadQuestion(edns).max_bytes, kMaxDnsMessageBytes);
}

TEST(HttpHeadTest, TheEndIsFoundOnceItIsThere) {
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t size = 0; size < head.size(); ++size)
    EXPECT_EQ(FindHeadEnd(head.substr(0, size)).value(), 0u) << size;
  EXPECT_EQ(FindHeadEnd(head + "body").value(), head.size());
  EXPECT_FALSE(FindHeadEnd("GET / HTTP/1.1\n\n"));
  EXPECT_EQ(FindHeadEnd(std::string(kMaxHeadBytes, 'x')).error().code, Code::kTooLarge);
}

TEST(HttpHeadTest, FieldsAreBounded) {
  std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (size_t i = 1; i < kMaxHeadFields; ++i) head += "X: y\r\n";
  EXPECT_TRUE(ReadRequest(head + "\r\n", 80));
  EXPECT_FALSE(ReadRequest(head + "X: y\r\n\r\n", 80));
}

TEST(HttpHeadTest, AuthoritiesAreReadStrictly) {
  EXPECT_EQ(ReadAuthority("A.Test.:80").value().host, "a.test");
  EXPECT_EQ(ReadAuthority("[::1]:80").value().host, "::1");
  for (const char* text : {"", "a:", "a:0", "a:65536", "a:80:80", "a b", "a@b", "a/b", "[::1",
                           "[a]", "a:+80", "a%00b", "a\\b", "ä"})
    EXPECT_FALSE(ReadAuthority(text)) << text;
}

TEST(HttpHeadTest, ASecretReplacesTheClientsOwn) {
  const auto request =
      ReadRequest("GET /x HTTP/1.1\r\nHost: a.test\r\naUTHORIZATION: mine\r\nTE: x\r\n\r\n", 80);
  ASSERT_TRUE(request);
  const std::string text = PrintRequest(*request, "a.test", HttpField{"Authorization", "ours"});
  EXPECT_EQ(text,
            "GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: ours\r\nConnection: "
            "keep-alive\r\n\r\n");
}

// How many bytes belong to the body, and whether it ended.
std::pair<size_t, bool> TakeAll(std::string_view bytes, size_t piece) {
  BodyReader body(BodyKind::kChunked, 0);
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() && !body.done() && !body.bad(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    taken += body.Take(part);
  }
  return {taken, body.done()};
}

TEST(HttpBodyTest, ChunksEndWhereTheySay) {
  const std::string body = "4\r\nwxyz\r\nA;ext=1\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n";
  for (const size_t piece : {1u, 3u, 1000u})
    EXPECT_EQ(TakeAll(body + "NEXT", piece), std::pair(body.size(), true)) << piece;
  for (const char* bad : {"\r\n", "4\nwxyz", "4\r\nwxyzX", "4 \r\nwxyz", "g\r\n", ";a\r\n",
                          "0\r\nA: b\n\r\n", "1111111111111111\r\n"}) {
    BodyReader reader(BodyKind::kChunked, 0);
    reader.Take(bad);
    EXPECT_TRUE(reader.bad()) << bad;
  }
}

TEST(HttpBodyTest, LinesAndTrailersAreBounded) {
  BodyReader line(BodyKind::kChunked, 0), trailer(BodyKind::kChunked, 0);
  line.Take("4;" + std::string(kMaxChunkLineBytes, 'x'));
  EXPECT_TRUE(line.bad());
  std::string many = "0\r\n";
  while (many.size() < 2 * kMaxTrailerBytes) many += "A: b\r\n";
  trailer.Take(many);
  EXPECT_TRUE(trailer.bad());
}

}  // namespace
}  // namespace hutch::network
