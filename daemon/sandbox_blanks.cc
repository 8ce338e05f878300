#include "daemon/sandbox_blanks.h"

#include "base/log.h"
#include "daemon/sandbox_networks.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kRefillPause{2};
constexpr int kRefillPostponements = 10;  // then even with requests under way

}  // namespace

void SandboxBlanks::ScheduleRefill() {
  if (timer_.running()) return;
  timer_.Start(parts_.loop, kRefillPause, [this] {
    if (busy_() && ++postponed_ < kRefillPostponements) return ScheduleRefill();
    postponed_ = 0;
    parts_.runtime.Refill();
  });
}

void SandboxBlanks::ExpectNetworksLike(network::Mode mode) {
  if (mode == network::Mode::kAllowlist) parts_.runtime.ExpectCatches();
  if (mode == network::Mode::kOpen) links_expected_ = true;
}

// A pair of links costs more than the rest of a network. Blanks that have one are kept apart: a
// sandbox that is to reach nothing has no link.
void SandboxBlanks::Link() {
  if (!links_expected_ || parts_.networks == nullptr) return;
  const runtime::Runtime::PoolState pool = parts_.runtime.pool_state();
  for (size_t count = pool.links_ready + pool.links_in_flight;
       count < parts_.config.network.links_ahead; ++count) {
    std::optional<runtime::Runtime::BlankToLink> blank = parts_.runtime.TakeToLink();
    if (!blank) return;
    parts_.networks->PrepareLink(
        std::move(blank->init), [this, id = blank->id](const Status& linked) {
          parts_.runtime.Linked(id, linked.has_value());
          if (linked.has_value()) return;
          links_expected_ = false;  // until the next sandbox of that mode, which meets the error
          Log(LogLevel::kWarning, "a link could not be made ahead",
              {{"error", linked.error().ToString()}});
        });
    ScheduleRefill();
  }
}

}  // namespace hutch::daemon
