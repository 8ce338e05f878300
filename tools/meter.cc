#include "tools/meter.h"

#include <unistd.h>

#include "base/file.h"
#include "tools/table.h"

namespace hutch::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProgressPause = std::chrono::milliseconds(100);

void Say(const std::string& text) {
  IgnoreError(WriteAll(STDERR_FILENO, text), "nowhere is left to say it");
}

}  // namespace

Meter::Meter(const char* stage, std::string subject, uint64_t total, const Options& options)
    : shown_(::isatty(STDERR_FILENO) == 1 && !options.json),
      progress_(ProgressStyle::kLive, ColoursFor(STDERR_FILENO)),
      event_({{"stage", stage}, {"subject", std::move(subject)}, {"total", total}}),
      next_(Clock::now() + kProgressPause) {}  // what is quick is not shown

Meter::~Meter() {
  if (shown_ && done_ > 0) Say(progress_.Finish());
}

void Meter::Add(size_t bytes) {
  done_ += bytes;
  if (!shown_ || Clock::now() < next_) return;
  next_ = Clock::now() + kProgressPause;
  event_["done"] = done_;
  Say(progress_.Take(event_));
}

BodySource FromFd(int fd, Meter* meter) {
  return [fd, meter](char* bytes, size_t size) -> Result<size_t> {
    for (;;) {
      const ssize_t got = ::read(fd, bytes, size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return SysError(errno, "read");
      meter->Add(static_cast<size_t>(got));
      return static_cast<size_t>(got);
    }
  };
}

}  // namespace hutch::tools
