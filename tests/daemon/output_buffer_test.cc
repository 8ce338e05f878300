#include "daemon/output_buffer.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hutch::daemon {
namespace {

TEST(OutputBuffer, ShortOutputIsKeptAsItIs) {
  OutputBuffer buffer(10);
  buffer.Append("hello");
  buffer.Append("world");
  const CapturedOutput out = buffer.Take();
  EXPECT_EQ(out.text, "helloworld");
  EXPECT_STREQ(out.encoding, "utf-8");
  EXPECT_EQ(out.total_bytes, 10u);
  EXPECT_FALSE(out.truncated);
}

TEST(OutputBuffer, LongOutputKeepsHeadAndTailAndCountsAll) {
  for (const size_t piece : {1u, 3u, 7u, 1000u}) {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i % 26);
    OutputBuffer buffer(100);
    for (size_t at = 0; at < text.size(); at += piece)
      buffer.Append(std::string_view(text).substr(at, piece));
    const CapturedOutput out = buffer.Take();
    EXPECT_EQ(out.text, text.substr(0, 50) + text.substr(950)) << piece;
    EXPECT_EQ(out.total_bytes, 1000u);
    EXPECT_TRUE(out.truncated);
  }
}

TEST(OutputBuffer, NothingKeptStillCounts) {
  OutputBuffer none(0), one(1);
  none.Append("abc");
  one.Append("abc");
  const CapturedOutput nothing = none.Take(), head = one.Take();
  EXPECT_EQ(nothing.text, "");
  EXPECT_EQ(nothing.total_bytes, 3u);
  EXPECT_TRUE(nothing.truncated);
  EXPECT_EQ(head.text, "a");
}

TEST(OutputBuffer, CutCharactersAreDroppedAndTheRestIsText) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\xe2\x82\xac";  // the euro sign
  for (size_t max = 10; max < 30; ++max) {
    OutputBuffer buffer(max);
    buffer.Append(text);
    const CapturedOutput out = buffer.Take();
    EXPECT_STREQ(out.encoding, "utf-8") << max;
    EXPECT_TRUE(IsUtf8(out.text));
    EXPECT_EQ(out.text.size() % 3, 0u);
    EXPECT_GE(out.text.size() + 4, max);
  }
}

TEST(OutputBuffer, BytesThatAreNotTextComeAsBase64) {
  OutputBuffer buffer(100);
  buffer.Append(std::string_view("\xff\x00\x01", 3));
  const CapturedOutput out = buffer.Take();
  EXPECT_STREQ(out.encoding, "base64");
  EXPECT_EQ(out.text, "/wAB");
}

TEST(OutputBuffer, TruncatedBytesComeWholeAsBase64) {
  OutputBuffer buffer(4);
  buffer.Append(std::string(10, '\xff'));
  const CapturedOutput out = buffer.Take();
  EXPECT_STREQ(out.encoding, "base64");
  std::string bytes;
  ASSERT_TRUE(Base64Decode(out.text, &bytes));
  EXPECT_EQ(bytes, std::string(4, '\xff'));
}

TEST(Base64, ReadsBackWhatItWrote) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    std::string bytes;
    ASSERT_TRUE(Base64Decode(Base64Encode(text), &bytes));
    EXPECT_EQ(bytes, text);
  }
  EXPECT_EQ(Base64Encode("foobar"), "Zm9vYmFy");
}

TEST(Base64, MalformedTextIsRefused) {
  std::string bytes;
  for (const char* text : {"Zg", "Zg=", "Z===", "Zg==Zg==", "Zm 9", "Zm9\n", "====", "Zm-_"})
    EXPECT_FALSE(Base64Decode(text, &bytes)) << text;
}

}  // namespace
}  // namespace hutch::daemon
