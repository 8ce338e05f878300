// Bytes that flow by, shown on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/client.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace hutch::tools {

class Meter {
 public:
  // `total` 0: unknown. Shows nothing where standard error is no terminal, or with --json.
  Meter(const char* stage, std::string subject, uint64_t total, const Options& options);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  void Add(size_t bytes);

 private:
  bool shown_;
  Progress progress_;
  oci::Json event_;
  uint64_t done_ = 0;
  std::chrono::steady_clock::time_point next_;
};

// Reads a descriptor (borrowed) to its end.
BodySource FromFd(int fd, Meter* meter);

}  // namespace hutch::tools
