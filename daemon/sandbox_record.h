// What the daemon knows of one sandbox, beside what runtime/ does: states, times, and its two JSON
// forms (the API's, and the one that survives a restart). No effects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "daemon/create_request.h"
#include "daemon/sandbox_states.h"
#include "daemon/timers.h"
#include "oci/json.h"
#include "oci/runtime_spec.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

// The commands of the template it is made from.
struct LifecycleFacts {
  enum class State { kNone, kRunning, kDone, kFailed, kInterrupted };
  State state = State::kNone;
  bool awaited = false;    // the client that asked for the sandbox has no answer yet
  std::string stage = {};  // that runs, or failed: "postCreateCommand"
  std::string error = {};
};

// Survives a restart of the daemon.
struct SandboxFacts {
  std::string id;
  SandboxFields fields;
  std::string image_id, image_reference;
  oci::ProcessSpec process;  // user, env, cwd, args of commands that name none; cpus of all
  std::string user_layer;    // UserLayers' name; empty: none
  LifecycleFacts lifecycle;
  std::vector<PortFacts> ports;  // that are forwarded
  uint32_t caller_uid = 0;       // who asked for it
  WallTime created_at;
  History history;
  // While it is paused: how long it had been without activity.
  std::optional<uint64_t> paused_idle_ms;
  uint64_t stops = 0;                 // how often it was stopped
  std::optional<WallTime> life_from;  // of its lifetime, when it is not created_at
  uint64_t paused_ms = 0;  // all pauses that are over, together: what time-outs of commands skip
  bool from_pool = false;
  std::vector<std::pair<std::string, double>> timings_ms;  // "total" first
  std::vector<std::string> reported;
};

// What changes while it lives.
struct SandboxMoments {
  SandboxState state = SandboxState::kCreating;
  WallTime last_activity;
  SteadyTime last_activity_steady;
  size_t processes = 0;
  pid_t pid = 0;
  uint32_t host_id_start = 0;
  std::optional<uint64_t> stopped_bytes;  // on disk, while it is stopped
};

// The API's form. `mode`: "v2" or "hybrid". `error`: why it failed, or nullptr.
oci::Json SandboxJson(const SandboxFacts& facts, const SandboxMoments& moments,
                      const char* cgroup_mode, const Error* error);

// The request again, as ParseSandboxFields reads it; forwarded ports are not in it.
oci::Json FieldsJson(const SandboxFields& fields);
WallTime LifeBegins(const SandboxFacts& facts);

std::string SaveFacts(const SandboxFacts& facts);
// kLimit for a record that a later daemon would not read: what it is of must not be promised to
// live on.
Status CheckRecord(const std::string& record);
// Those of older versions, too. One of a newer version is kUnsupported with the field "version".
Result<SandboxFacts> LoadFacts(const std::string& id, std::string_view saved, const Config& config);

}  // namespace hutch::daemon
