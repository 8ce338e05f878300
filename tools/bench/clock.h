// A stopwatch of milliseconds.
#pragma once

#include <chrono>

namespace hutch::tools {

class Stopwatch {
 public:
  double ElapsedMs() const {
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start_;
    return elapsed.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace hutch::tools
