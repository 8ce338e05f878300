#include "tools/websocket.h"

#include <gtest/gtest.h>

namespace hutch::tools {
namespace {

using Kind = WebSocketMessage::Kind;

std::string Frame(unsigned char first, const std::string& payload) {
  std::string frame(1, static_cast<char>(first));
  if (payload.size() < 126) return frame + static_cast<char>(payload.size()) + payload;
  frame += static_cast<char>(126);
  frame += static_cast<char>(payload.size() >> 8);
  return frame + static_cast<char>(payload.size() & 0xff) + payload;
}

TEST(WebSocketFrames, MessagesComeWholeFromPiecesOfAnySize) {
  const std::string large(1000, 'x');
  const std::string bytes = Frame(0x81, "text") + Frame(0x82, large) + Frame(0x02, "a") +
                            Frame(0x89, "ping") + Frame(0x80, "b") +
                            Frame(0x88, std::string("\x03\xe8", 2) + "bye");
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    WebSocketFrames frames;
    std::string pongs;
    std::vector<WebSocketMessage> all;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      frames.Feed(std::string_view(bytes).substr(at, piece));
      auto taken = frames.Take(&pongs);
      ASSERT_TRUE(taken);
      for (auto& message : *taken) all.push_back(std::move(message));
    }
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(all[0].kind, Kind::kText);
    EXPECT_EQ(all[0].data, "text");
    EXPECT_EQ(all[1].data, large);
    EXPECT_EQ(all[2].kind, Kind::kBinary);
    EXPECT_EQ(all[2].data, "ab");
    EXPECT_EQ(all[3].kind, Kind::kClose);
    EXPECT_EQ(all[3].code, 1000);
    EXPECT_EQ(all[3].data, "bye");
    EXPECT_EQ(pongs, MaskedFrame(ClientFrame::kPong, "ping"));
  }
}

TEST(WebSocketFrames, WhatTheRfcForbidsIsRefused) {
  const std::string bad[] = {
      Frame(0x80, "goes on"),               // nothing to go on from
      Frame(0x01, "a") + Frame(0x81, "b"),  // a second message inside the first
      Frame(0xc1, "extension"),
      std::string("\x81\x81", 2) + "mask" + "x",  // masked
      Frame(0x09, "ping in pieces"),
      Frame(0x83, "unknown"),
      std::string("\x82\x7f\x7f", 3) + std::string(7, '\xff'),  // endless
  };
  for (const std::string& bytes : bad) {
    WebSocketFrames frames;
    std::string pongs;
    frames.Feed(bytes);
    EXPECT_FALSE(frames.Take(&pongs)) << testing::PrintToString(bytes);
  }
}

TEST(WebSocketFrames, AClientsFramesAreMasked) {
  EXPECT_EQ(MaskedFrame(ClientFrame::kText, "hi"), std::string("\x81\x82\0\0\0\0hi", 8));
  EXPECT_EQ(MaskedFrame(ClientFrame::kBinary, std::string(126, 'x')).substr(0, 4),
            std::string("\x82\xfe\0\x7e", 4));
  EXPECT_EQ(MaskedFrame(ClientFrame::kBinary, std::string(65536, 'x')).substr(0, 10),
            std::string("\x82\xff\0\0\0\0\0\1\0\0", 10));
}

}  // namespace
}  // namespace hutch::tools
