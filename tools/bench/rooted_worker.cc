#include "tools/bench/rooted_worker.h"

#include <sched.h>
#include <unistd.h>

#include <cerrno>

namespace hutch::tools {
namespace {

Status EnterRoot(const std::string& root) {
  if (::unshare(CLONE_FS) != 0) return SysError(errno, "unshare");
  if (::chroot(root.c_str()) != 0) return SysError(errno, "chroot " + root);
  if (::chdir("/") != 0) return SysError(errno, "chdir /");
  return OkStatus();
}

}  // namespace

RootedWorker::RootedWorker(std::string root)
    : root_(std::move(root)), thread_([this] { Loop(); }) {}

RootedWorker::~RootedWorker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<double> RootedWorker::Run(Job job) {
  std::unique_lock<std::mutex> lock(mutex_);
  job_ = std::move(job);
  done_.reset();
  changed_.notify_all();
  changed_.wait(lock, [this] { return done_.has_value(); });
  return *done_;
}

void RootedWorker::Loop() {
  const Status entered = EnterRoot(root_);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || job_; });
    if (stop_) return;
    const Job job = std::exchange(job_, nullptr);
    lock.unlock();
    Result<double> result = entered ? job() : Result<double>(entered.error());
    lock.lock();
    done_ = std::move(result);
    changed_.notify_all();
  }
}

}  // namespace hutch::tools
