// Where the daemon says what happens: each call appends an event and counts. One for the daemon; it
// outlives the loop, whose last tasks may still answer requests. On the loop's thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/events.h"
#include "daemon/exec_request.h"
#include "daemon/metrics.h"
#include "daemon/timeouts.h"

namespace hutch::daemon {

class BackgroundProcess;
struct SandboxEntry;
enum class AuditKind : uint8_t;

class Watching {
 public:
  Watching();

  EventLog& events() { return events_; }
  Metrics& metrics() { return metrics_; }

  void SandboxBegun(const SandboxEntry& entry);
  void SandboxRuns(const SandboxEntry& entry);
  void SandboxTakenUp(const SandboxEntry& entry);  // of an earlier daemon
  void SandboxPaused(const SandboxEntry& entry);
  void SandboxResumed(const SandboxEntry& entry);
  void SandboxSealed(const SandboxEntry& entry, const oci::Json& detail);  // as an image
  void SandboxForked(const SandboxEntry& entry, const oci::Json& detail);
  void SandboxStopped(const SandboxEntry& entry);
  void SandboxExpires(const SandboxEntry& entry, const Deadlines::Warning& warning);
  // With the last move of its history and, where it failed, the error.
  void SandboxEnds(const SandboxEntry& entry);
  // A command that a client waited for; `entry` is nullptr when its sandbox is gone.
  void CommandEnded(const SandboxEntry* entry, const Result<ExecResult>& result);
  void ProcessStarted(const SandboxEntry& entry, const BackgroundProcess& process);
  void ProcessEnded(const SandboxEntry& entry, const BackgroundProcess& process);
  // As GET .../network tells them.
  void NetworkDenied(const SandboxEntry& entry, const oci::Json& denial);
  void NetworkChanged(const SandboxEntry& entry, const oci::Json& policy);
  // Of the kinds kImagePulled, kImageImported, kImageDeleted; failures are only counted.
  void ImageChanged(AuditKind kind, const std::string& subject, const Status& outcome);
  void DaemonStarted();
  void DaemonReloaded(const oci::Json& detail);
  void DaemonStops();                        // the last event
  void DaemonGoesOn() { events_.Resume(); }  // it does not stop after all

  // What the HTTP server knows; zeros until it is there.
  struct Connections {
    size_t open = 0, requests_under_way = 0;
  };
  void SetConnections(std::function<Connections()> ask) { ask_connections_ = std::move(ask); }
  Connections connections() const { return ask_connections_(); }

 private:
  void Tell(EventKind kind, const SandboxEntry& entry, const oci::Json& detail);
  void CountKill(const SandboxEntry& entry, const oci::Json& detail);

  EventLog events_;
  Metrics metrics_;
  std::function<Connections()> ask_connections_ = [] { return Connections{}; };
};

}  // namespace hutch::daemon
