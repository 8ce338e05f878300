// The event loop: one thread that owns all sandbox state. Everything but Post() is for that thread
// only. Boost.Asio stays in loop.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/limits.h"
#include "daemon/timers.h"

namespace boost::asio {
class io_context;
}

namespace hutch::daemon {

enum class Ready {
  kReadable,
  kWritable,
  kPriority
};  // kPriority: POLLPRI, or the peer is gone altogether (POLLHUP)

// Watches a borrowed descriptor. Destroy it before the descriptor is closed (declare it after the
// owner). Safe to destroy from its own callback. At most one watch for a descriptor. A callback may
// come without cause (an event meant for a descriptor closed in the same turn): look before you
// believe.
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

class Loop;

// One deadline; destroying or resetting it cancels the callback.
class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { Cancel(); }
  void Start(Loop& loop, Milliseconds delay, std::function<void()> callback);
  void StartAt(Loop& loop, SteadyTime deadline, std::function<void()> callback);
  void Cancel();
  bool running() const { return loop_ != nullptr; }

 private:
  Loop* loop_ = nullptr;
  Timers::Id id_;
};

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Registers a descriptor; `callback` gets what Arm() asked for. Regular files cannot be watched:
  // the result is inactive then.
  Watch Add(int fd, std::function<void(Ready)> callback);
  void Post(std::function<void()>
                task);  // thread-safe; runs on the loop's thread, never from within the call
  void Run();           // until Stop()
  void Stop();          // thread-safe
  void RunPending();    // after Stop(): what has been posted, and no more
  static SteadyTime Now() { return std::chrono::steady_clock::now(); }
  boost::asio::io_context& context();

 private:
  friend class Timer;
  Timers::Id AddTimer(SteadyTime deadline, std::function<void()> callback);
  void CancelTimer(const Timers::Id& id);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hutch::daemon
