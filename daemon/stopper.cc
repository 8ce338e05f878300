#include "daemon/stopper.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/config.h"
#include "daemon/listener.h"
#include "daemon/reload.h"
#include "daemon/sandboxes.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kStopPoll{20};
constexpr Milliseconds kAfterKill{2'000};  // for killed commands to be answered

}  // namespace

void Stopper::Follow(int signals) {
  watch_ = parts_.loop.Add(signals, [this, signals](Ready) {
    struct signalfd_siginfo received {};
    if (::read(signals, &received, sizeof received) > 0) OnSignal(received.ssi_signo);
    watch_.Arm(Ready::kReadable);
  });
  watch_.Arm(Ready::kReadable);
}

void Stopper::OnSignal(uint32_t number) {
  if (number == SIGHUP) return stopping_ ? void() : parts_.reloader.Reload();
  if (stopping_) return parts_.loop.Stop();  // asked twice
  IgnoreError(NotifySystemd("STOPPING=1"), "systemd sees the exit anyway");
  parts_.server.StopAccepting(HttpServer::Backlog::kRefused);
  parts_.kept.Release();
  Begin();
}

void Stopper::Leave() {
  if (stopping_) return;
  leaving_ = true;
  parts_.server.StopAccepting(HttpServer::Backlog::kKept);
  Begin();
}

void Stopper::Stay() {
  if (!leaving_) return;
  leaving_ = stopping_ = killed_ = false;
  timer_.Cancel();
  parts_.watching.DaemonGoesOn();
  parts_.server.AcceptAgain();
  goes_on_();
  Log(LogLevel::kWarning, "the successor is gone; this hutchd goes on");
}

void Stopper::Begin() {
  stopping_ = true;
  Log(LogLevel::kInfo, "stopping",
      {{"requests_under_way", std::to_string(parts_.server.requests_under_way())}});
  parts_.watching.DaemonStops();
  begins_();
  begun_ = Loop::Now();
  deadline_ = begun_ + std::chrono::seconds(parts_.config.shutdown_seconds);
  Poll();
}

// Connections that have just been made may still send their request.
bool Stopper::Idle() const {
  if (parts_.server.requests_under_way() > 0 || parts_.sandboxes.ending() > 0) return false;
  return parts_.server.connections() == 0 || Loop::Now() > begun_ + 2 * kLastRequestTime;
}

void Stopper::Poll() {
  if (Idle() || (Loop::Now() >= deadline_ && killed_)) {
    if (leaving_) FaultPoint("drained for a successor");
    return parts_.loop.Stop();
  }
  if (Loop::Now() >= deadline_) {
    killed_ = true;
    deadline_ = Loop::Now() + kAfterKill;
    parts_.sandboxes.KillCommands();
  }
  timer_.Start(parts_.loop, kStopPoll, [this] { Poll(); });
}

}  // namespace hutch::daemon
