// Bytes of processes as JSON strings: UTF-8 where they are, base64 where they are not, and no
// character cut in two.
#pragma once

#include <string>
#include <string_view>

namespace hutch::daemon {

enum class Encoding {
  kAuto,    // text when all of it is UTF-8, else base64
  kUtf8,    // always text: what is not UTF-8 becomes U+FFFD
  kBase64,  // always base64
};

struct EncodedText {
  std::string text;
  const char* encoding = "utf-8";  // or "base64"
  bool replaced = false;           // something became U+FFFD
};
EncodedText EncodeBytes(std::string bytes, Encoding encoding);

// How many bytes at the end are the beginning of a character that could still be completed: 0 to 3.
size_t UnfinishedBytes(std::string_view bytes);

// One stream in pieces.
class PieceEncoder {
 public:
  explicit PieceEncoder(Encoding encoding) : encoding_(encoding) {}
  // What can be told of everything given so far; an unfinished character waits for the next piece.
  EncodedText Next(std::string_view bytes);
  EncodedText Finish();  // what was held back
  size_t held_bytes() const { return held_.size(); }

 private:
  Encoding encoding_;
  std::string held_;
};

}  // namespace hutch::daemon
