#include "daemon/watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "daemon/listener.h"

namespace hutch::daemon {
namespace {

std::string Take(const char* name) {
  const char* value = ::getenv(name);
  const std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

}  // namespace

std::optional<Milliseconds> TakeWatchdogInterval(pid_t pid) {
  const std::string limit = Take("WATCHDOG_USEC"), whose = Take("WATCHDOG_PID");
  if (!whose.empty() && whose != std::to_string(pid)) return std::nullopt;
  const Result<uint64_t> microseconds = ParseUint(limit);
  if (!microseconds.has_value() || *microseconds == 0) return std::nullopt;
  const uint64_t half = *microseconds / 2 / 1000;
  return Milliseconds(
      static_cast<int64_t>(std::clamp<uint64_t>(half, 1, uint64_t{24} * 3600 * 1000)));
}

void Watchdog::Start(Loop& loop, Milliseconds interval) {
  loop_ = &loop;
  interval_ = interval;
  Tell();
}

void Watchdog::Tell() {
  const Status told = NotifySystemd("WATCHDOG=1");
  if (!told.has_value() && !failed_)
    Log(LogLevel::kWarning, "cannot notify systemd", {{"error", told.error().ToString()}});
  failed_ = !told.has_value();
  timer_.Start(*loop_, interval_, [this] { Tell(); });
}

}  // namespace hutch::daemon
