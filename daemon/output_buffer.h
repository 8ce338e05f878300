// Keeps the head half and the tail half of a stream of any length, and counts all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/base64.h"
#include "daemon/text_encoding.h"

namespace hutch::daemon {

struct CapturedOutput {
  std::string text = {};           // UTF-8, or base64 of the bytes kept
  const char* encoding = "utf-8";  // or "base64"
  bool replaced = false;           // bytes that are not UTF-8 became U+FFFD
  uint64_t total_bytes = 0;        // all that was written
  bool truncated = false;
};

class OutputBuffer {
 public:
  explicit OutputBuffer(size_t max_bytes)
      : head_max_((max_bytes + 1) / 2), tail_max_(max_bytes / 2) {}

  void Append(std::string_view bytes);
  uint64_t total_bytes() const { return total_; }
  bool truncated() const { return total_ > head_max_ + tail_max_; }

  // What was kept; a character that the cut between head and tail split is dropped, unless bytes
  // are told as bytes. Moves them out: call once.
  CapturedOutput Take(Encoding encoding = Encoding::kAuto);

 private:
  std::string Tail() const;

  size_t head_max_, tail_max_;
  std::string head_;
  std::string ring_;      // grows to tail_max_, then wraps
  size_t ring_next_ = 0;  // where the next byte goes once it has wrapped
  uint64_t total_ = 0;
};

}  // namespace hutch::daemon
