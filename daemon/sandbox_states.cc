#include "daemon/sandbox_states.h"

#include <iterator>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using S = SandboxState;
using C = MoveCause;

constexpr const char* kStateNames[] = {"creating",  "running", "paused", "stopped",
                                       "destroyed", "expired", "failed"};
static_assert(std::size(kStateNames) == kSandboxStates);

struct CauseRow {
  MoveCause cause;
  const char* name;
};
constexpr CauseRow kCauses[] = {
    {C::kRequested, "requested"},
    {C::kReady, "ready"},
    {C::kExec, "exec"},
    {C::kIdleTimeout, "idle_timeout"},
    {C::kLifetime, "lifetime"},
    {C::kDeleted, "deleted"},
    {C::kAbandoned, "abandoned"},
    {C::kNotMade, "not_made"},
    {C::kTemplateFailed, "template_failed"},
    {C::kAgentDied, "agent_died"},
    {C::kOutOfMemory, "out_of_memory"},
    {C::kHostRestarted, "host_restarted"},
    {C::kUnreadable, "unreadable"},
};

constexpr MoveRow kMoves[] = {
    // from         to             cause
    {S::kCreating, S::kRunning, C::kReady},        {S::kCreating, S::kDestroyed, C::kDeleted},
    {S::kCreating, S::kDestroyed, C::kAbandoned},  {S::kCreating, S::kFailed, C::kNotMade},
    {S::kCreating, S::kFailed, C::kUnreadable},    {S::kRunning, S::kPaused, C::kRequested},
    {S::kRunning, S::kPaused, C::kIdleTimeout},    {S::kRunning, S::kPaused, C::kLifetime},
    {S::kRunning, S::kDestroyed, C::kDeleted},     {S::kRunning, S::kDestroyed, C::kAbandoned},
    {S::kRunning, S::kExpired, C::kIdleTimeout},   {S::kRunning, S::kExpired, C::kLifetime},
    {S::kRunning, S::kFailed, C::kTemplateFailed}, {S::kRunning, S::kFailed, C::kAgentDied},
    {S::kRunning, S::kFailed, C::kOutOfMemory},    {S::kPaused, S::kRunning, C::kRequested},
    {S::kPaused, S::kRunning, C::kExec},           {S::kPaused, S::kDestroyed, C::kDeleted},
    {S::kPaused, S::kDestroyed, C::kAbandoned},    {S::kPaused, S::kExpired, C::kLifetime},
    {S::kPaused, S::kFailed, C::kTemplateFailed},  {S::kPaused, S::kFailed, C::kAgentDied},
    {S::kPaused, S::kFailed, C::kOutOfMemory},     {S::kRunning, S::kStopped, C::kRequested},
    {S::kRunning, S::kStopped, C::kIdleTimeout},   {S::kRunning, S::kStopped, C::kLifetime},
    {S::kPaused, S::kStopped, C::kRequested},      {S::kPaused, S::kStopped, C::kLifetime},
    {S::kStopped, S::kCreating, C::kRequested},    {S::kCreating, S::kStopped, C::kNotMade},
    {S::kStopped, S::kDestroyed, C::kDeleted},     {S::kRunning, S::kFailed, C::kHostRestarted},
    {S::kPaused, S::kFailed, C::kHostRestarted},
};

}  // namespace

const char* StateName(SandboxState state) { return kStateNames[static_cast<size_t>(state)]; }

std::optional<SandboxState> ParseState(std::string_view name) {
  for (size_t i = 0; i < std::size(kStateNames); ++i)
    if (name == kStateNames[i]) return static_cast<SandboxState>(i);
  return std::nullopt;
}

bool HasEnded(SandboxState state) { return state >= SandboxState::kDestroyed; }

std::string StateList() {
  std::string list;
  for (const char* name : kStateNames) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

const char* CauseName(MoveCause cause) {
  for (const CauseRow& row : kCauses)
    if (row.cause == cause) return row.name;
  CHECK(false);
}

std::optional<MoveCause> ParseMoveCause(std::string_view name) {
  for (const CauseRow& row : kCauses)
    if (name == row.name) return row.cause;
  return std::nullopt;
}

std::span<const MoveRow> Moves() { return kMoves; }

bool MayMove(SandboxState from, SandboxState to, MoveCause cause) {
  for (const MoveRow& row : kMoves)
    if (row.from == from && row.to == to && row.cause == cause) return true;
  return false;
}

std::optional<SandboxState> EndOf(SandboxState from, MoveCause cause) {
  for (const MoveRow& row : kMoves)
    if (row.from == from && row.cause == cause && HasEnded(row.to)) return row.to;
  return std::nullopt;
}

void AddToHistory(const HistoryEntry& entry, History* history) {
  if (history->size() >= kMaxHistory) history->erase(history->begin() + 1);
  history->push_back(entry);
}

oci::Json HistoryJson(const History& history) {
  oci::Json list = oci::Json::array();
  for (const HistoryEntry& entry : history)
    list.push_back({{"state", StateName(entry.state)},
                    {"cause", CauseName(entry.cause)},
                    {"at", FormatRfc3339(entry.at)}});
  return list;
}

History LoadHistory(const oci::Json& json) {
  History history;
  if (!json.is_array()) return history;
  for (const oci::Json& item : json) {
    std::string state, cause, at;
    const Status read = oci::ObjectReader(item, "history")
                            .String("state", &state)
                            .String("cause", &cause)
                            .String("at", &at)
                            .Done(oci::ObjectReader::Unknown::kIgnore);
    const auto known_state = ParseState(state);
    const auto known_cause = ParseMoveCause(cause);
    const Result<WallTime> time = ParseRfc3339(at);
    if (!read.has_value() || !known_state || !known_cause || !time.has_value()) continue;
    AddToHistory({*known_state, *known_cause, *time}, &history);
  }
  return history;
}

}  // namespace hutch::daemon
