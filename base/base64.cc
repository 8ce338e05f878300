#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace hutch {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

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

}  // namespace hutch
