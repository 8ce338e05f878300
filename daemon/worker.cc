#include "daemon/worker.h"

#include <algorithm>
#include <csignal>

#include "daemon/limits.h"

namespace hutch::daemon {

Worker::Worker(size_t threads, size_t max_queued) : max_queued_(max_queued) {
  // Signals are the main thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status Worker::Submit(std::function<void()> job, uint64_t* number) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= max_queued_)
      return Error{.code = Code::kUnavailable, .what = "too many jobs wait already"};
    jobs_.push_back({++last_number_, std::move(job)});
    if (number != nullptr) *number = last_number_;
  }
  wake_.notify_one();
  return OkStatus();
}

bool Worker::Withdraw(uint64_t number) {
  Job withdrawn{};  // goes after the lock: what it holds may do anything
  const std::lock_guard lock(mutex_);
  const auto job = std::find_if(jobs_.begin(), jobs_.end(),
                                [number](const Job& one) { return one.number == number; });
  if (job == jobs_.end()) return false;
  withdrawn = std::move(*job);
  jobs_.erase(job);
  return true;
}

bool Worker::idle() const {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && running_ == 0;
}

void Worker::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::function<void()> job = std::move(jobs_.front().call);
    jobs_.pop_front();
    ++running_;
    lock.unlock();
    job();
    lock.lock();
    --running_;
  }
}

}  // namespace hutch::daemon
