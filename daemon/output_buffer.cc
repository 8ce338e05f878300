#include "daemon/output_buffer.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hutch::daemon {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Drops the rest of a sequence whose start was cut away.
void TrimTail(std::string& tail) {
  size_t count = 0;
  while (count < std::min<size_t>(3, tail.size()) && IsContinuation(tail[count])) ++count;
  tail.erase(0, count);
}

}  // namespace

void OutputBuffer::Append(std::string_view bytes) {
  total_ += bytes.size();
  const size_t to_head = std::min(head_max_ - head_.size(), bytes.size());
  head_.append(bytes.substr(0, to_head));
  bytes.remove_prefix(to_head);
  if (bytes.size() > tail_max_) bytes.remove_prefix(bytes.size() - tail_max_);
  const size_t to_grow = std::min(tail_max_ - ring_.size(), bytes.size());
  ring_.append(bytes.substr(0, to_grow));
  bytes.remove_prefix(to_grow);
  while (!bytes.empty()) {
    const size_t part = std::min(tail_max_ - ring_next_, bytes.size());
    bytes.copy(ring_.data() + ring_next_, part);
    ring_next_ = (ring_next_ + part) % tail_max_;
    bytes.remove_prefix(part);
  }
}

std::string OutputBuffer::Tail() const {
  std::string tail;
  tail.reserve(ring_.size());
  tail.append(ring_, ring_next_);
  tail.append(ring_, 0, ring_next_);
  return tail;
}

CapturedOutput OutputBuffer::Take(Encoding encoding) {
  CapturedOutput out{
      .text = {}, .encoding = {}, .replaced = {}, .total_bytes = total_, .truncated = truncated()};
  std::string kept = std::move(head_);
  std::string tail = Tail();
  if (out.truncated && encoding != Encoding::kBase64) {
    // The cut makes no bytes of what were characters.
    std::string head = kept.substr(0, kept.size() - UnfinishedBytes(kept));
    std::string rest = tail;
    TrimTail(rest);
    if (encoding == Encoding::kUtf8 || (IsUtf8(head) && IsUtf8(rest))) {
      kept = std::move(head);
      tail = std::move(rest);
    }
  }
  kept += tail;
  EncodedText text = EncodeBytes(std::move(kept), encoding);
  out.text = std::move(text.text);
  out.encoding = text.encoding;
  out.replaced = text.replaced;
  return out;
}

std::string Base64Encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out += i <= count ? kAlphabet[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

bool Base64Decode(std::string_view text, std::string* bytes) {
  static const std::array<int8_t, 256> values = [] {
    std::array<int8_t, 256> table;
    table.fill(-1);
    for (size_t i = 0; i < kAlphabet.size(); ++i)
      table[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
    return table;
  }();
  bytes->clear();
  if (text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  bytes->reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_padding = at >= text.size() - padding;
    const int8_t value = is_padding ? 0 : values[static_cast<unsigned char>(text[at])];
    if (value < 0) return false;
    group = group << 6 | static_cast<uint32_t>(value);
    if (at % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) *bytes += static_cast<char>(group >> shift & 0xff);
    group = 0;
  }
  bytes->erase(bytes->size() - padding);
  return true;
}

}  // namespace hutch::daemon
