// The states of a sandbox and the moves between them, as one table: docs/api.md has it, too. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "oci/json.h"

namespace hutch::daemon {

// The last three are ends: nothing leads out of them.
enum class SandboxState : uint8_t {
  kCreating,
  kRunning,
  kPaused,
  kStopped,  // only its files are there, on disk
  kDestroyed,
  kExpired,
  kFailed
};
inline constexpr size_t kSandboxStates = 7;
const char* StateName(SandboxState state);
std::optional<SandboxState> ParseState(std::string_view name);
bool HasEnded(SandboxState state);
std::string StateList();  // "creating, running, ...", for messages

// Why a sandbox came into the state it is in.
enum class MoveCause : uint8_t {
  kRequested,       // a call asked for it
  kReady,           // agent and network are there, and its record is written
  kExec,            // a command was to resume it
  kIdleTimeout,     // nothing counted as activity for so long
  kLifetime,        // it is as old as it may become
  kDeleted,         // a call destroyed it
  kAbandoned,       // nobody waits for it any more, and nobody knows its id
  kNotMade,         // a step of its creation failed: the error says which
  kTemplateFailed,  // a command of its template failed before it was answered
  kAgentDied,
  kOutOfMemory,
  kHostRestarted,
  kUnreadable,  // of an earlier daemon, with a record that this one cannot read
};
const char* CauseName(MoveCause cause);
std::optional<MoveCause> ParseMoveCause(std::string_view name);

struct MoveRow {
  SandboxState from, to;
  MoveCause cause;
};
std::span<const MoveRow> Moves();
// Everything else is a bug of ours.
bool MayMove(SandboxState from, SandboxState to, MoveCause cause);
// The end that a cause leads to; nothing when it leads to none from there.
std::optional<SandboxState> EndOf(SandboxState from, MoveCause cause);

struct HistoryEntry {
  SandboxState state = SandboxState::kCreating;
  MoveCause cause = MoveCause::kRequested;
  WallTime at = {};
};
using History = std::vector<HistoryEntry>;
// Kept are the first and the latest, kMaxHistory together.
void AddToHistory(const HistoryEntry& entry, History* history);
oci::Json HistoryJson(const History& history);
// What HistoryJson() made. Entries that cannot be read are left out.
History LoadHistory(const oci::Json& json);

}  // namespace hutch::daemon
