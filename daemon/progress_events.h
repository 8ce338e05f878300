// Progress of work on another thread, and the answer of a request that waits for such work.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "rootfs/store.h"

namespace hutch::daemon {

using Progress = std::function<void(const rootfs::Progress&)>;

// A function for the working thread that hands reports to `progress` on the loop's thread: of each
// stage of each subject the first, the last, and between them one in kProgressInterval. Borrows the
// loop.
rootfs::ProgressFn ToLoop(Loop& loop, Progress progress);

oci::Json ProgressJson(const rootfs::Progress& report);

// Answers with one reply; or, when the client asked for events, with "progress" events and a last
// one, "result" or "error". Answers once.
class JobAnswer {
 public:
  JobAnswer(const Request& request, Responder responder);

  void Report(const rootfs::Progress& report);
  void Finish(int status, const Result<oci::Json>& result);
  // What to do when the client is gone before that; the latest handler counts.
  // Called at once when it is gone already.
  void OnHangup(std::function<void()> handler);

 private:
  struct Hangup {
    bool gone = false;
    std::function<void()> handler = {};
  };
  Responder responder_;
  const bool events_;
  std::shared_ptr<Hangup> hangup_;
};

}  // namespace hutch::daemon
