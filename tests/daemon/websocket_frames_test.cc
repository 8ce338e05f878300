#include "daemon/websocket_frames.h"

#include <gtest/gtest.h>

#include "tests/daemon/websocket_client.h"

namespace hutch::daemon {
namespace {

using Kind = WebSocketEvent::Kind;

Request Handshake() {
  Request request;
  request.method = "GET";
  request.headers = {{"upgrade", "h2c, WebSocket"},
                     {"Connection", "keep-alive"},
                     {"Connection", "Upgrade"},
                     {"Sec-WebSocket-Version", "13"},
                     {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}};
  return request;
}

// All events of `bytes`, fed in pieces.
std::vector<WebSocketEvent> Events(const std::string& bytes, size_t piece, size_t max = 1000) {
  WebSocketReader reader(max);
  std::vector<WebSocketEvent> events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Feed(std::string_view(bytes).substr(at, piece));
    for (WebSocketEvent event; (event = reader.Next()).kind != Kind::kNeedMore;)
      events.push_back(event);
  }
  return events;
}

TEST(WebSocketFrames, TheHandshakeIsAnsweredAsInTheStandard) {
  const Result<std::string> accept = AcceptWebSocket(Handshake());
  ASSERT_TRUE(accept.has_value()) << accept.error().what;
  EXPECT_EQ(*accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");  // RFC 6455, 1.3
}

TEST(WebSocketFrames, WhatIsNoHandshakeIsRefused) {
  const auto refused = [](const std::function<void(Request&)>& change) {
    Request request = Handshake();
    change(request);
    return !AcceptWebSocket(request).has_value();
  };
  EXPECT_TRUE(refused([](Request& r) { r.method = "POST"; }));
  for (size_t i : {0u, 2u, 3u, 4u})
    EXPECT_TRUE(refused([i](Request& r) { r.headers[i].second = "8"; })) << i;
  EXPECT_TRUE(refused([](Request& r) { r.headers[4].second = "dGhlIHNhbXBsZQ=="; }));
  EXPECT_TRUE(refused([](Request& r) { r.headers.push_back(r.headers[4]); }));
  EXPECT_TRUE(refused([](Request& r) { r.headers.push_back(r.headers[3]); }));
}

TEST(WebSocketFrames, MessagesComeWholeHoweverTheyArrive) {
  const std::string big(70'000, 'b');
  const std::string bytes =
      ClientFrame(0x81, "hello") + ClientFrame(0x02, "ab") + ClientFrame(0x89, "ping") +
      ClientFrame(0x00, "") + ClientFrame(0x80, "cd") + ClientFrame(0x82, big) +
      ClientFrame(0x88, std::string("\x03\xe8") + "bye") + ClientFrame(0x81, "after");
  for (const size_t piece : {1u, 5u, 4096u, 1000'000u}) {
    const auto events = Events(bytes, piece, big.size());
    ASSERT_EQ(events.size(), 5u) << piece;
    EXPECT_EQ(events[0].data, "hello");
    EXPECT_FALSE(events[0].binary);
    EXPECT_EQ(events[1].kind, Kind::kPing);
    EXPECT_EQ(events[1].data, "ping");
    EXPECT_EQ(events[2].data, "abcd");
    EXPECT_TRUE(events[2].binary);
    EXPECT_EQ(events[3].data, big);
    EXPECT_EQ(events[4].kind, Kind::kClose);
    EXPECT_EQ(events[4].code, kCloseNormal);
    EXPECT_EQ(events[4].data, "bye");
  }
}

TEST(WebSocketFrames, WhatTheStandardForbidsIsClosedWithItsCode) {
  const struct {
    std::string bytes;
    uint16_t code;
  } rows[] = {
      {std::string("\x81\x05hello", 7), kCloseProtocol},  // no mask
      {ClientFrame(0xc1, "x"), kCloseProtocol},           // a reserved bit
      {ClientFrame(0x83, "x"), kCloseProtocol},           // opcodes
      {ClientFrame(0x8b, "x"), kCloseProtocol},
      {ClientFrame(0x09, "x"), kCloseProtocol},  // a fragmented ping
      {ClientFrame(0x89, std::string(126, 'x')), kCloseProtocol},
      {ClientFrame(0x80, "x"), kCloseProtocol},  // continues nothing
      {ClientFrame(0x01, "x") + ClientFrame(0x81, "y"), kCloseProtocol},
      {std::string("\x81\xfe\x00\x05mmmmhello", 13), kCloseProtocol},  // a length too wide
      {std::string("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff....", 14), kCloseProtocol},
      {ClientFrame(0x81, "\xff"), kCloseBadText},
      {ClientFrame(0x01, "\xc3") + ClientFrame(0x80, "("), kCloseBadText},
      {ClientFrame(0x88, "x"), kCloseProtocol},
      {ClientFrame(0x88, std::string("\x03\xed", 2)), kCloseProtocol},  // 1005
      {ClientFrame(0x88, std::string("\x03\xe8\xff", 3)), kCloseBadText},
      {ClientFrame(0x81, std::string(1001, 'x')), kCloseTooLarge},
      {ClientFrame(0x01, std::string(600, 'x')) + ClientFrame(0x80, std::string(401, 'x')),
       kCloseTooLarge},
  };
  for (const auto& row : rows)
    for (const size_t piece : {1u, 10'000u}) {
      const auto events = Events(row.bytes + ClientFrame(0x81, "after"), piece);
      ASSERT_EQ(events.size(), 1u) << HexEncode(row.bytes.substr(0, 20));
      EXPECT_EQ(events[0].kind, Kind::kError);
      EXPECT_EQ(events[0].code, row.code) << HexEncode(row.bytes.substr(0, 20));
    }
}

TEST(WebSocketFrames, OurFramesHaveTheShortestLength) {
  EXPECT_EQ(WebSocketFrame(WebSocketOpcode::kText, "hi"), "\x81\x02hi");
  EXPECT_EQ(WebSocketFrame(WebSocketOpcode::kBinary, std::string(126, 'x')).substr(0, 4),
            std::string("\x82\x7e\x00\x7e", 4));
  EXPECT_EQ(WebSocketFrame(WebSocketOpcode::kBinary, std::string(65'536, 'x')).substr(0, 10),
            std::string("\x82\x7f\0\0\0\0\0\x01\0\0", 10));
  EXPECT_EQ(WebSocketCloseFrame(1001, "").substr(2), "\x03\xe9");
  EXPECT_EQ(WebSocketCloseFrame(1001, std::string(200, 'x')).size(), 127u);
}

}  // namespace
}  // namespace hutch::daemon
