// POST /v1/sandboxes/{id}/exec: the request and the reply as data. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/create_request.h"
#include "daemon/output_buffer.h"
#include "oci/json.h"
#include "rootfs/changes.h"

namespace hutch::daemon {

struct ExecFields {
  std::vector<std::string> args;  // never empty
  StringMap env;
  std::string workdir, user;  // empty: the sandbox's
  bool has_stdin = false;     // else end of file at once
  std::string stdin_bytes;
  double timeout_seconds = 0;  // 0: none
  uint64_t max_output_bytes = 0;
  bool track_files = true;
};

Result<ExecFields> ParseExecFields(const oci::Json& json, const Config& config);

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
};

struct ExecResult {
  EndFacts facts;
  CapturedOutput out, err;
  double duration_ms = 0;
  bool pids_limit_hit = false;
  Usage usage;
  uint32_t process = 0;
  std::optional<rootfs::ChangeSet> files;  // nothing: not tracked, or it could not be told
};
oci::Json ExecJson(ExecResult result);

}  // namespace hutch::daemon
