// Pulls under way: each image is pulled once, whoever waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/progress_events.h"
#include "daemon/worker.h"
#include "rootfs/registry/registry.h"

namespace hutch::daemon {

class Pulls {
 public:
  // Runs on a thread of ours; rootfs::Pull but for tests.
  using Run = std::function<Result<rootfs::Image>(const rootfs::PullRequest& request,
                                                  const rootfs::ProgressFn& progress,
                                                  const std::atomic<bool>& cancelled)>;
  // Both are called on the loop's thread, `done` last and once.
  struct Listener {
    Progress progress;
    std::function<void(const Result<rootfs::Image>&)> done;
  };
  using Ticket = uint64_t;

  // Borrows the loop.
  Pulls(Loop& loop, Run run);
  ~Pulls();  // cancels what is under way and waits for it; nobody is told

  // Joins the pull of the same image that is under way, hearing at once how far it is, or begins
  // one. A request with credentials of its own never joins: another's pull says nothing about what
  // they may have. kUnavailable when too many wait.
  Result<Ticket> Join(const rootfs::PullRequest& request, const Listener& listener);
  // The listener is told nothing more, also when it leaves, or others do, while it is told. A pull
  // without listeners is cancelled, or taken back where it has not begun; what it has downloaded is
  // gone on with by the next.
  void Leave(Ticket ticket);

  size_t under_way() const { return pulls_.size(); }

 private:
  struct Pull;
  Result<std::shared_ptr<Pull>> Begin(const rootfs::PullRequest& request);
  void Finish(const std::shared_ptr<Pull>& pull, const Result<rootfs::Image>& image);

  Loop& loop_;
  Run run_;
  Ticket last_ticket_ = 0;
  std::map<uint64_t, std::shared_ptr<Pull>> pulls_;  // by number
  uint64_t last_number_ = 0;
  Worker worker_;  // last: its threads end before the rest goes
};

}  // namespace hutch::daemon
