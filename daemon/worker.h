// A small pool of threads for work that blocks: hashing, unpacking, building. Jobs hand their
// results back with Loop::Post().
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace hutch::daemon {

class Worker {
 public:
  explicit Worker(size_t threads);
  ~Worker();  // waits for the jobs under way; those queued are dropped

  // kUnavailable when kMaxQueuedJobs wait already.
  Status Submit(std::function<void()> job);
  bool idle() const;

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hutch::daemon
