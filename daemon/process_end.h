// Why and how a process of a client's ended: facts, counters, JSON. What exec and background
// processes share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "cgroups/tree.h"
#include "daemon/file_tracker.h"
#include "daemon/loop.h"
#include "daemon/pace.h"
#include "oci/json.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

// Why a command is over.
enum class Cause { kExited, kSignaled, kOutOfMemory, kTimedOut, kKilled, kSandboxEnded };
const char* CauseName(Cause cause);

// What is known about an end; DecideCause() turns it into the one cause.
struct EndFacts {
  bool sandbox_ended = false;
  bool timed_out = false;
  bool kill_asked = false;
  bool oom_killed = false;  // the kernel killed something of it for memory
  int wait_status = 0;
};
Cause DecideCause(const EndFacts& facts);

struct Usage {
  uint64_t memory_peak_bytes = 0;
  double cpu_user_ms = 0, cpu_system_ms = 0;
  uint64_t io_read_bytes = 0, io_write_bytes = 0;  // of block devices
};

struct ProcessEnd {
  EndFacts facts;
  double duration_ms = 0;
  bool pids_limit_hit = false;
  Usage usage;
};

// "SIGTERM"; "SIGRTMIN+3"; "SIG65" for what has no name.
std::string SignalName(int number);
// By name ("SIGTERM", "TERM") or number. kInvalidArgument.
Result<int> ParseSignal(const std::string& text);

// Adds exit_code, signal, cause, timed_out, oom_killed, pids_limit_hit, duration_ms and usage.
void AddEnd(const ProcessEnd& end, oci::Json* json);
// To and from a record: exactly what is in `end`.
oci::Json SaveEnd(const ProcessEnd& end);
Result<ProcessEnd> LoadEnd(const oci::Json& json, const std::string& path);

// Hybrid hosts count out-of-memory kills and refused forks for a sandbox as a whole: what a command
// did is told by the difference.
struct SandboxCounters {
  uint64_t oom_kills = 0;
  uint64_t pids_limit_hits = 0;
};

// What a command needs of the sandbox it runs in; outlives it.
struct ExecPlace {
  Loop& loop;
  runtime::Sandbox& sandbox;
  cgroups::Mode mode;
  SandboxCounters counters;  // as last read
  Pace* pace = nullptr;      // for moving output; without it at once
  // A command is answered later than at its exit: it may be let go of.
  std::function<void(uint32_t process)> finished = {};
  bool paused = false;
  uint64_t paused_ms = 0;  // pauses that are over, together
  FileTracker* tracker = nullptr;
  // Whether anything but this process, whose leader has ended, may still write.
  std::function<Others(uint32_t process)> others = {};
};
// Runs a piece of moving output now, or when it is its turn.
void RunPaced(const ExecPlace& place, std::function<void()> piece);
SandboxCounters ReadCounters(const runtime::Sandbox& sandbox);

// Fills oom_killed, pids_limit_hit and usage from the process's group and its exit event. `before`:
// the sandbox's counters when it started. Before the group is removed.
void ReadEndCounts(ExecPlace& place, const runtime::AgentEvent& event,
                   const SandboxCounters& before, ProcessEnd* end);

}  // namespace hutch::daemon
