// Whether a client that sends or fetches much keeps on at it.
#pragma once

#include <chrono>
#include <cstdint>

namespace hutch::daemon {

// Counts the bytes of one stream. No lock: one thread's.
class StreamRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr uint64_t kLeastBytes = 60 * 16384;  // in each window

  explicit StreamRate(Time begin) : begin_(begin) {}
  // False when a window is over in which too little came; else the next one has begun.
  [[nodiscard]] bool Add(uint64_t bytes, Time now) {
    bytes_ += bytes;
    if (now - begin_ < kWindow) return true;
    const bool enough = bytes_ >= kLeastBytes;
    begin_ = now;
    bytes_ = 0;
    return enough;
  }

 private:
  Time begin_;
  uint64_t bytes_ = 0;
};

}  // namespace hutch::daemon
