#include "daemon/chunk_scanner.h"

#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

// How many bytes belong to the body, fed in pieces; nothing for what is malformed.
std::optional<size_t> Length(std::string_view text, size_t piece) {
  ChunkScanner scanner;
  size_t length = 0;
  for (size_t at = 0; at < text.size() && !scanner.done(); at += piece) {
    const std::string_view bytes = text.substr(at, piece);
    const Result<size_t> taken = scanner.Take(bytes);
    if (!taken.has_value()) return std::nullopt;
    length += *taken;
  }
  return scanner.done() ? std::optional<size_t>(length) : std::nullopt;
}

TEST(ChunkScanner, TheEndIsFoundHoweverTheBytesArrive) {
  for (const char* body :
       {"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n", "00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\n",
        "1 \r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", "2\r\n\r\n\r\n000\r\n\r\n"})
    for (const size_t piece : {1u, 2u, 3u, 1000u}) {
      const std::string with_more = std::string(body) + "HTTP/1.1 200 OK\r\n";
      EXPECT_EQ(Length(with_more, piece), std::string_view(body).size()) << body << " " << piece;
    }
}

TEST(ChunkScanner, TheContentIsWhatTheChunksHold) {
  for (const size_t piece : {1u, 2u, 3u, 1000u}) {
    ChunkScanner scanner;
    std::string content;
    const std::string_view body = "3;x=y\r\nabc\r\n2\r\n\r\n\r\n0\r\nX: y\r\n\r\nmore";
    for (size_t at = 0; at < body.size() && !scanner.done(); at += piece)
      ASSERT_TRUE(scanner.Take(body.substr(at, piece), &content).has_value());
    EXPECT_EQ(content, "abc\r\n") << piece;
  }
}

TEST(ChunkScanner, WhatIsMalformedIsRefused) {
  for (const char* body :
       {"\r\n", "x\r\n", "-1\r\n", "+1\r\n", "0x1\r\na\r\n", "3\nabc", "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n", "0\n\n", "0\r\n\n", "1\rX", "0\r\nX: \x01\r\n\r\n", ";a\r\n",
        "1111111111111111\r\n", "1;\x7f\r\n", "0\r\nX\rY\r\n\r\n"})
    for (const size_t piece : {1u, 1000u}) {
      ChunkScanner scanner;
      bool failed = false;
      const std::string_view text = body;
      for (size_t at = 0; at < text.size() && !failed; at += piece)
        failed = !scanner.Take(text.substr(at, piece)).has_value();
      EXPECT_TRUE(failed) << body << " " << piece;
    }
}

TEST(ChunkScanner, ExtensionsAndTrailersAreBounded) {
  const std::string much(kMaxChunkOverheadBytes, 'x');
  EXPECT_FALSE(ChunkScanner().Take("1;" + much).has_value());
  EXPECT_FALSE(ChunkScanner().Take("0\r\nX: " + much).has_value());
  ChunkScanner scanner;
  for (size_t i = 0; i <= kMaxChunkOverheadBytes; ++i)
    ASSERT_TRUE(scanner.Take("1;x\r\na\r\n").has_value());
}

}  // namespace
}  // namespace hutch::daemon
