// How the daemon ends: at a signal, or because a successor takes its place.
#pragma once

#include <cstdint>
#include <functional>

#include "daemon/http_servers.h"
#include "daemon/kept_sockets.h"
#include "daemon/loop.h"

namespace hutch::daemon {

class Reloader;
class Sandboxes;
class Watching;
struct Config;

// From the first signal on: no new requests, time for those under way and for removals that have
// begun; then commands are killed and answered.
class Stopper {
 public:
  struct Parts {  // all borrowed
    Loop& loop;
    HttpServers& server;
    Sandboxes& sandboxes;
    Watching& watching;
    const Config& config;
    Reloader& reloader;
    KeptSockets& kept;
  };
  explicit Stopper(const Parts& parts) : parts_(parts) {}

  // Called when it begins to stop, and when it goes on after all.
  void SetHandlers(std::function<void()> begins, std::function<void()> goes_on) {
    begins_ = std::move(begins);
    goes_on_ = std::move(goes_on);
  }
  // `signals` is a signalfd(2), borrowed.
  void Follow(int signals);
  // As at a signal, but that connections wait for the successor.
  void Leave();
  // The successor is gone before this one had left.
  void Stay();

 private:
  void OnSignal(uint32_t number);
  void Begin();
  bool Idle() const;
  void Poll();

  Parts parts_;
  std::function<void()> begins_ = [] {}, goes_on_ = [] {};
  SteadyTime begun_, deadline_;
  bool stopping_ = false, leaving_ = false, killed_ = false;
  Timer timer_;
  Watch watch_;
};

}  // namespace hutch::daemon
