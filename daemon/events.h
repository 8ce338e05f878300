// What happens in the daemon, as numbered events: a bounded part of them is kept, so that a client
// can go on from where it was, and is told when it cannot. On the loop's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "daemon/create_request.h"
#include "oci/json.h"

namespace hutch::daemon {

enum class EventKind : uint8_t {
  kSandboxCreating,
  kSandboxRunning,
  kSandboxPaused,
  kSandboxResumed,
  kSandboxExpiring,  // it will end soon, unless something is done
  kSandboxDestroyed,
  kSandboxExpired,
  kSandboxFailed,  // it never ran, or ended unasked
  kSandboxOom,     // the kernel killed something in it for memory
  kProcessStarted,
  kProcessExited,
  kExecFinished,
  kImagePulled,
  kImageImported,
  kImageDeleted,
  kNetworkDenied,
  kNetworkChanged,
  kDaemonStarted,
  kDaemonStopping,
  kDaemonReloaded,
  kSandboxSnapshot,  // its files became an image
  kSandboxForked,
  kSandboxStopped,
};
inline constexpr size_t kEventKinds = 23;
const char* EventKindName(EventKind kind);
std::optional<EventKind> ParseEventKind(std::string_view name);

struct Event {
  EventKind kind = EventKind::kDaemonStarted;
  std::string sandbox = {}, name = {};  // id, and name at that time; may be empty
  std::string detail = "{}";            // text of an object; see EventDetail()
  std::vector<size_t> labels = {};      // of the sandbox, as LabelHash()
  WallTime at = std::chrono::system_clock::now();
  uint64_t number = 0;  // given by the log
};

// The text of `json`, or of an object that says that it was too long.
std::string EventDetail(const oci::Json& json);
size_t LabelHash(std::string_view key_equals_value);
std::vector<size_t> LabelHashes(const StringMap& labels);

// The last event that a client knows of. Numbers are those of one run of the daemon.
struct EventCursor {
  uint64_t run = 0, number = 0;
};
std::string FormatCursor(const EventCursor& cursor);
Result<EventCursor> ParseCursor(std::string_view text);  // kInvalidArgument

struct EventFilter {
  std::set<EventKind> kinds = {};           // none: all
  std::vector<std::string> sandboxes = {};  // any of these ids or names; none: all
  std::vector<size_t> labels = {};          // all of these
  std::optional<WallTime> since = {};
  bool Fits(const Event& event) const;
};

// Told of what comes; unsubscribes before it goes.
class EventListener {
 public:
  virtual ~EventListener() = default;
  virtual void OnEvent() = 0;  // there is more; not to be acted upon from within
  virtual void OnStop() = 0;   // nothing more will come
};

class EventLog {
 public:
  EventLog();

  void Append(Event event);
  // Nothing more is appended; listeners are told.
  void Stop();
  void Resume() { stopped_ = false; }
  bool stopped() const { return stopped_; }

  uint64_t run() const { return run_; }
  uint64_t last() const { return last_; }  // number of the latest event; 0: there was none
  // The first one kept with a higher number; nullptr when there is none.
  const Event* After(uint64_t number) const;
  // How many of those behind `number` are gone, if one that the filter might want is among them.
  uint64_t LostAfter(uint64_t number, const EventFilter& filter) const;
  uint64_t last_lost() const { return std::max(rare_.last_dropped, frequent_.last_dropped); }

  // kLimit beyond kMaxEventFollowers.
  Status Subscribe(EventListener& listener);
  void Unsubscribe(EventListener& listener) { listeners_.erase(&listener); }
  size_t listeners() const { return listeners_.size(); }
  uint64_t count(EventKind kind) const { return counts_[static_cast<size_t>(kind)]; }

 private:
  struct Kept {
    std::deque<Event> events;  // by number
    uint64_t last_dropped = 0;
  };
  // What a tenant or a busy client can cause without end does not push out the rest.
  Kept& KeptOf(EventKind kind);

  uint64_t run_;
  uint64_t last_ = 0;
  Kept rare_, frequent_;
  uint64_t counts_[kEventKinds] = {};
  std::set<EventListener*> listeners_;
  bool stopped_ = false;
};

}  // namespace hutch::daemon
