// The program's event loop: one thread, descriptors and deadlines. Boost.Asio stays in loop.cc.
#pragma once

#include <functional>
#include <memory>

#include "network/egress/limits.h"

namespace hutch::network {

using SteadyTime = std::chrono::steady_clock::time_point;

enum class Ready { kReadable, kWritable };

// Watches a borrowed descriptor. Destroy it before the descriptor is closed. Safe to destroy from
// its own callback. A callback may come without cause.
class Watch {
 public:
  struct State;
  Watch() = default;
  explicit Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Watch(Watch&&) noexcept = default;
  Watch& operator=(Watch&& other) noexcept;
  ~Watch() { Reset(); }
  // One callback once the descriptor is ready; arming what is armed already does nothing.
  void Arm(Ready ready);
  void Reset();
  bool active() const { return state_ != nullptr; }

 private:
  std::shared_ptr<State> state_;
};

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Inactive when the descriptor cannot be watched.
  Watch Add(int fd, std::function<void(Ready)> callback);
  void Post(std::function<void()> task);  // never from within the call
  void Run();                             // until Stop()
  void Stop();
  void RunPending();  // after Stop(): what has been posted, and no more
  static SteadyTime Now() { return std::chrono::steady_clock::now(); }

 private:
  friend class Timer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One deadline; destroying or restarting it cancels the callback.
class Timer {
 public:
  struct State;
  explicit Timer(Loop& loop) : loop_(loop) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { Cancel(); }
  void Start(Milliseconds delay, std::function<void()> callback);
  void Cancel();
  bool running() const { return state_ != nullptr; }

 private:
  Loop& loop_;
  std::shared_ptr<State> state_;
};

}  // namespace hutch::network
