#include "daemon/text_encoding.h"

#include <algorithm>

#include "base/text.h"
#include "daemon/output_buffer.h"

namespace hutch::daemon {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Length the first byte of a UTF-8 sequence promises; 1 for bytes that start none.
size_t SequenceLength(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0xf0 && byte <= 0xf4) return 4;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xc2 && byte < 0xe0 ? 2 : 1;
}

std::string Replace(std::string_view bytes, bool* replaced) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = std::min(SequenceLength(bytes[0]), bytes.size());
    if (IsUtf8(bytes.substr(0, length))) {
      text.append(bytes.substr(0, length));
      bytes.remove_prefix(length);
      continue;
    }
    *replaced = true;
    text.append(kReplacement);
    bytes.remove_prefix(1);
  }
  return text;
}

}  // namespace

EncodedText EncodeBytes(std::string bytes, Encoding encoding) {
  EncodedText out;
  if (encoding != Encoding::kBase64 && IsUtf8(bytes)) {
    out.text = std::move(bytes);
  } else if (encoding == Encoding::kUtf8) {
    out.text = Replace(bytes, &out.replaced);
  } else {
    out.text = Base64Encode(bytes);
    out.encoding = "base64";
  }
  return out;
}

size_t UnfinishedBytes(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const char c = bytes[bytes.size() - back];
    if (IsContinuation(c)) continue;
    return SequenceLength(c) > back ? back : 0;
  }
  return 0;
}

EncodedText PieceEncoder::Next(std::string_view bytes) {
  std::string all = std::move(held_);
  held_.clear();
  all.append(bytes);
  if (encoding_ != Encoding::kBase64) {
    const size_t unfinished = UnfinishedBytes(all);
    held_ = all.substr(all.size() - unfinished);
    all.resize(all.size() - unfinished);
  }
  return EncodeBytes(std::move(all), encoding_);
}

EncodedText PieceEncoder::Finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return EncodeBytes(std::move(rest), encoding_);
}

}  // namespace hutch::daemon
