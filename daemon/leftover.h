// What a command leaves behind after its answer: children in its cgroup, and pipes they may still
// write to. The pipes are emptied so that a child is neither blocked nor killed by SIGPIPE; the
// group is removed once it is empty.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/loop.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

class Leftover {
 public:
  // Calls `gone` (later, never from within) when the process's group is removed.
  Leftover(Loop& loop, runtime::Sandbox& sandbox, uint32_t process, std::vector<UniqueFd> pipes,
           std::function<void()> gone);

 private:
  struct Drain {
    UniqueFd fd;
    Watch watch;
  };
  void WatchPipe(UniqueFd fd);
  void WatchGroup();
  void TryForget();

  Loop& loop_;
  runtime::Sandbox& sandbox_;
  uint32_t process_;
  std::function<void()> gone_;
  std::list<Drain> drains_;
  UniqueFd events_fd_;
  Watch events_watch_;
  Timer timer_;
};

}  // namespace hutch::daemon
