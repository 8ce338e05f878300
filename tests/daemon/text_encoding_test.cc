#include "daemon/text_encoding.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hutch::daemon {
namespace {

TEST(TextEncoding, EachEncodingKeepsItsWord) {
  EXPECT_EQ(EncodeBytes("h\xc3\xa4", Encoding::kAuto).text, "h\xc3\xa4");
  EXPECT_EQ(EncodeBytes("h\xff", Encoding::kAuto).text, "aP8=");
  EXPECT_STREQ(EncodeBytes("h\xff", Encoding::kAuto).encoding, "base64");
  const EncodedText replaced = EncodeBytes("a\xff\xc3(b", Encoding::kUtf8);
  EXPECT_EQ(replaced.text, "a\xef\xbf\xbd\xef\xbf\xbd(b");
  EXPECT_TRUE(replaced.replaced);
  EXPECT_EQ(EncodeBytes("abc", Encoding::kBase64).text, "YWJj");
}

TEST(TextEncoding, UnfinishedCharactersAreCounted) {
  EXPECT_EQ(UnfinishedBytes(""), 0u);
  EXPECT_EQ(UnfinishedBytes("a"), 0u);
  EXPECT_EQ(UnfinishedBytes("a\xc3"), 1u);
  EXPECT_EQ(UnfinishedBytes("\xe2\x82"), 2u);
  EXPECT_EQ(UnfinishedBytes("\xf0\x9f\x98"), 3u);
  EXPECT_EQ(UnfinishedBytes("\xc3\xa4"), 0u);
  EXPECT_EQ(UnfinishedBytes("\xff"), 0u);          // begins nothing
  EXPECT_EQ(UnfinishedBytes("\x82\x82\x82"), 0u);  // no beginning
}

// However a text is cut, its pieces are whole characters and make the text.
TEST(TextEncoding, PiecesNeverCutACharacter) {
  const std::string text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
  for (size_t first = 0; first <= text.size(); ++first)
    for (size_t second = first; second <= text.size(); ++second) {
      PieceEncoder encoder(Encoding::kAuto);
      std::string joined;
      for (const std::string& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        const EncodedText out = encoder.Next(piece);
        EXPECT_STREQ(out.encoding, "utf-8");
        EXPECT_TRUE(IsUtf8(out.text));
        joined += out.text;
      }
      EXPECT_EQ(joined + encoder.Finish().text, text);
    }
}

TEST(TextEncoding, WhatIsNeverFinishedComesAtTheEnd) {
  PieceEncoder encoder(Encoding::kAuto);
  EXPECT_EQ(encoder.Next("ab\xc3").text, "ab");
  EXPECT_EQ(encoder.held_bytes(), 1u);
  const EncodedText rest = encoder.Finish();
  EXPECT_STREQ(rest.encoding, "base64");
  EXPECT_EQ(encoder.held_bytes(), 0u);
}

}  // namespace
}  // namespace hutch::daemon
