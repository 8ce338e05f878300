// A small pool of threads for work that blocks: hashing, unpacking, building. Jobs hand their
// results back with Loop::Post().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "daemon/limits.h"

namespace hutch::daemon {

class Worker {
 public:
  explicit Worker(size_t threads, size_t max_queued = kMaxQueuedJobs);
  ~Worker();  // waits for the jobs under way; those queued are dropped

  // kUnavailable when `max_queued` wait already. `number` is what Withdraw() takes.
  Status Submit(std::function<void()> job, uint64_t* number = nullptr);
  // Takes back a job that no thread has begun; false when one has.
  bool Withdraw(uint64_t number);
  bool idle() const;

 private:
  struct Job {
    uint64_t number;
    std::function<void()> call;
  };
  void Run();

  const size_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  uint64_t last_number_ = 0;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hutch::daemon
