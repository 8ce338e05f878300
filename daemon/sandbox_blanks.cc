// What is made ahead learns from what was asked for: Sandboxes' part of the pools
// (runtime/runtime.h).
#include "base/log.h"
#include "daemon/sandboxes.h"

namespace hutch::daemon {

void Sandboxes::ExpectNetworksLike(network::Mode mode) {
  if (mode == network::Mode::kAllowlist) parts_.runtime.ExpectCatches();
  if (mode == network::Mode::kOpen) links_expected_ = true;
}

// A pair of links costs more than the rest of a network. Blanks that have one are kept apart: a
// sandbox that is to reach nothing has no link.
void Sandboxes::LinkBlanks() {
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
