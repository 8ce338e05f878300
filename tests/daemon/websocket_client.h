// What a WebSocket client sends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/text.h"

namespace hutch::daemon {

// A masked frame; `first` is its first byte: 0x80 for the final one, and the opcode.
inline std::string ClientFrame(unsigned char first, const std::string& payload) {
  std::string frame(1, static_cast<char>(first));
  const size_t size = payload.size();
  const int extra = size > 0xffff ? 8 : size > 125 ? 2 : 0;
  frame += static_cast<char>(0x80 | (extra == 8 ? 127u : extra == 2 ? 126u : size));
  for (int shift = (extra - 1) * 8; shift >= 0; shift -= 8)
    frame += static_cast<char>(size >> shift);
  const std::string mask = "mAsK";
  frame += mask;
  for (size_t i = 0; i < size; ++i) frame += static_cast<char>(payload[i] ^ mask[i % 4]);
  return frame;
}

}  // namespace hutch::daemon
