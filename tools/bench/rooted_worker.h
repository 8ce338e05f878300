// A thread whose root directory is another one, for posix_spawn(3), which cannot change it. It
// lives for long: a thread made for one run would start with a new task's place in the scheduler's
// queue and look slower than it is.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"

namespace hutch::tools {

class RootedWorker {
 public:
  using Job = std::function<Result<double>()>;

  // unshare(CLONE_FS) and chroot inside the new thread; needs CAP_SYS_CHROOT.
  explicit RootedWorker(std::string root);
  ~RootedWorker();
  RootedWorker(const RootedWorker&) = delete;
  RootedWorker& operator=(const RootedWorker&) = delete;

  // Runs one job inside the root and waits for it; the error of entering the root if that failed.
  Result<double> Run(Job job);

 private:
  void Loop();

  std::string root_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Job job_;
  std::optional<Result<double>> done_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace hutch::tools
