// When a sandbox ends by itself: what is asked for, and the deadlines that follow. Pure.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/sandbox_states.h"
#include "daemon/timers.h"
#include "oci/json.h"

namespace hutch::daemon {

enum class Activity : uint8_t { kCall = 1, kProcess = 2, kRenewal = 4, kPort = 8 };
inline constexpr uint8_t kAllActivity = 15;
enum class OnExpiry : uint8_t { kDestroy, kPause, kStop };

struct Timeouts {
  uint64_t idle_seconds = 0, lifetime_seconds = 0;  // 0: never
  OnExpiry on_expiry = OnExpiry::kDestroy;
  uint8_t activity = kAllActivity;  // what begins the idle time anew
  bool Counts(Activity what) const { return (activity & static_cast<uint8_t>(what)) != 0; }
};

// Changes what the object names. kInvalidArgument and kUnsupported with the field, kLimit past a
// ceiling.
Status ParseTimeouts(const oci::Json& json, Timeouts* timeouts);
Status KeepCeilings(const Amounts& ceilings, Timeouts* timeouts);
oci::Json TimeoutsJson(const Timeouts& timeouts);

// The two deadlines of one sandbox, and what was said of them.
class Deadlines {
 public:
  // kIdleTimeout or kLifetime. The same deadline again changes nothing; a new one is warned of
  // anew. `period`: the whole time of which it is the end.
  void Set(MoveCause cause, std::optional<SteadyTime> at, std::chrono::seconds period);

  struct Warning {
    MoveCause cause;
    uint64_t seconds_left;
  };
  struct Look {
    std::optional<MoveCause> expired = {};
    std::vector<Warning> warnings = {};
    std::optional<SteadyTime> next = {};  // when to look again
  };
  // What is due. A warning comes `ahead` of a deadline (0: never), but not before half of its
  // period is over; once.
  Look LookAt(SteadyTime now, std::chrono::seconds ahead);

 private:
  struct Row {
    MoveCause cause;
    std::optional<SteadyTime> at = {};
    std::chrono::seconds period{0};
    bool warned = false;
  };
  std::array<Row, 2> rows_{{{MoveCause::kLifetime}, {MoveCause::kIdleTimeout}}};
};

}  // namespace hutch::daemon
