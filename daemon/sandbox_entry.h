// One sandbox of the registry (daemon/sandboxes.h), from its request to its complete removal.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/commands.h"
#include "daemon/forwards.h"
#include "daemon/freeze_wait.h"
#include "daemon/live_proc.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/sandbox_record.h"
#include "daemon/sandbox_stats.h"
#include "rootfs/volume_mount.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

struct SandboxEntry {
  SandboxFacts facts;
  SandboxMoments moments;
  SteadyTime begun;
  std::unique_ptr<runtime::Sandbox> sandbox;
  std::unique_ptr<Commands> commands;        // from kReady on
  std::unique_ptr<LiveProc> live_proc;       // as commands; borrows the sandbox's descriptor
  std::vector<ReservedPort> reserved_ports;  // until kReady

  std::vector<std::shared_ptr<rootfs::VolumeMount>> volumes;  // until it is gone

  CpuWindow cpu_window;

  // Both are needed before anybody hears of it.
  bool agent_ready = false;
  bool network_ready = true;  // false while one is being made
  std::optional<double> network_ms;

  // Its time-outs.
  Deadlines deadlines;
  SteadyTime not_idle_before;  // a later daemon's patience

  // Under way: from the call until all of it is frozen. Commands are not taken meanwhile.
  std::unique_ptr<FreezeWait> pausing;
  std::vector<std::function<void(const Status&)>> pause_waiters;

  bool sealing = false;  // its files are being read: frozen until that is done, whatever its state
  // Being stopped, or started again: daemon/sandbox_stops.h.
  std::shared_ptr<struct StopWork> stop;

  std::map<uint64_t, std::function<void()>> move_watchers;  // called after each move

  // Its end.
  bool ending = false;
  bool init_ended = false;
  bool quarantined = false;
  Peer ended_by;  // who asked for it; pid 0: nobody did
  SteadyTime removal_begun;
  Milliseconds removal_pause{0};
  std::optional<Error> error;  // why it could not be made, or not be removed
  std::vector<std::function<void(const Status&)>> removal_waiters;

  // Once: it runs, or why not (after everything of it has been undone).
  std::function<void(Result<SandboxEntry*>)> created;

  Watch agent_watch, init_watch;
  Timer ready_timer, expiry_timer, removal_timer;
};

using LivingSandboxes = std::map<std::string, std::unique_ptr<SandboxEntry>>;  // by id

// kBadState, saying in what state it is, and why.
Error NotUsable(const SandboxEntry& entry);
// Unless its files are being read: then it is thawed after that, if it is not paused by then.
Status ThawUnlessSealing(const SandboxEntry& entry);
// Whether it is as old as it may become.
bool LifetimeOver(const SandboxEntry& entry);

}  // namespace hutch::daemon
