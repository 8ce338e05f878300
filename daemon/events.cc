#include "daemon/events.h"

#include <sys/random.h>

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

enum class Frequency { kRare, kFrequent };
struct KindRow {
  EventKind kind;
  const char* name;
  Frequency frequency;
};
constexpr KindRow kKinds[] = {
    {EventKind::kSandboxCreating, "sandbox.creating", Frequency::kRare},
    {EventKind::kSandboxRunning, "sandbox.running", Frequency::kRare},
    {EventKind::kSandboxPaused, "sandbox.paused", Frequency::kRare},
    {EventKind::kSandboxResumed, "sandbox.resumed", Frequency::kRare},
    {EventKind::kSandboxExpiring, "sandbox.expiring", Frequency::kRare},
    {EventKind::kSandboxDestroyed, "sandbox.destroyed", Frequency::kRare},
    {EventKind::kSandboxExpired, "sandbox.expired", Frequency::kRare},
    {EventKind::kSandboxFailed, "sandbox.failed", Frequency::kRare},
    {EventKind::kSandboxOom, "sandbox.oom", Frequency::kFrequent},
    {EventKind::kProcessStarted, "process.started", Frequency::kFrequent},
    {EventKind::kProcessExited, "process.exited", Frequency::kFrequent},
    {EventKind::kExecFinished, "exec.finished", Frequency::kFrequent},
    {EventKind::kImagePulled, "image.pulled", Frequency::kRare},
    {EventKind::kImageImported, "image.imported", Frequency::kRare},
    {EventKind::kImageDeleted, "image.deleted", Frequency::kRare},
    {EventKind::kNetworkDenied, "network.denied", Frequency::kFrequent},
    {EventKind::kNetworkChanged, "network.changed", Frequency::kRare},
    {EventKind::kDaemonStarted, "daemon.started", Frequency::kRare},
    {EventKind::kDaemonStopping, "daemon.stopping", Frequency::kRare},
    {EventKind::kDaemonReloaded, "daemon.reloaded", Frequency::kRare},
    {EventKind::kSandboxSnapshot, "sandbox.snapshot", Frequency::kRare},
    {EventKind::kSandboxForked, "sandbox.forked", Frequency::kRare},
    {EventKind::kSandboxStopped, "sandbox.stopped", Frequency::kRare},
};
static_assert(std::size(kKinds) == kEventKinds);
static_assert([] {
  for (size_t i = 0; i < kEventKinds; ++i)
    if (kKinds[i].kind != static_cast<EventKind>(i)) return false;
  return true;
}());

const KindRow& RowOf(EventKind kind) { return kKinds[static_cast<size_t>(kind)]; }

constexpr int kRunDigits = 16;

std::optional<uint64_t> ParseHex(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

auto FirstAfter(const std::deque<Event>& events, uint64_t number) {
  return std::upper_bound(events.begin(), events.end(), number,
                          [](uint64_t n, const Event& event) { return n < event.number; });
}

}  // namespace

const char* EventKindName(EventKind kind) { return RowOf(kind).name; }

std::optional<EventKind> ParseEventKind(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (name == row.name) return row.kind;
  return std::nullopt;
}

std::string EventDetail(const oci::Json& json) {
  std::string text = oci::PrintJson(json);
  return text.size() <= kMaxEventDetailBytes ? text : R"({"too_long":true})";
}

size_t LabelHash(std::string_view key_equals_value) {
  return std::hash<std::string_view>()(key_equals_value);
}

std::vector<size_t> LabelHashes(const StringMap& labels) {
  std::vector<size_t> hashes;
  for (const auto& [key, value] : labels) hashes.push_back(LabelHash(key + "=" + value));
  return hashes;
}

std::string FormatCursor(const EventCursor& cursor) {
  char run[kRunDigits + 1];
  std::snprintf(run, sizeof run, "%016llx", static_cast<unsigned long long>(cursor.run));
  return std::string(run) + "-" + std::to_string(cursor.number);
}

Result<EventCursor> ParseCursor(std::string_view text) {
  const Error wrong{.code = Code::kInvalidArgument,
                    .what = "must be a cursor of an earlier answer",
                    .field = "cursor"};
  if (text.size() < kRunDigits + 2 || text[kRunDigits] != '-') return wrong;
  const auto run = ParseHex(text.substr(0, kRunDigits));
  const auto number = ParseUint(text.substr(kRunDigits + 1));
  if (!run || !number) return wrong;
  return EventCursor{.run = *run, .number = *number};
}

bool EventFilter::Fits(const Event& event) const {
  if (!kinds.empty() && !kinds.contains(event.kind)) return false;
  if (since && event.at < *since) return false;
  const auto is_of = [&](const std::string& sandbox) {
    return !sandbox.empty() && (sandbox == event.sandbox || sandbox == event.name);
  };
  if (!sandboxes.empty() && std::none_of(sandboxes.begin(), sandboxes.end(), is_of)) return false;
  return std::all_of(labels.begin(), labels.end(), [&](size_t label) {
    return std::find(event.labels.begin(), event.labels.end(), label) != event.labels.end();
  });
}

// A cursor of another run is known as such, whatever its number.
EventLog::EventLog() { CHECK(::getrandom(&run_, sizeof run_, 0) == sizeof run_); }

EventLog::Kept& EventLog::KeptOf(EventKind kind) {
  return RowOf(kind).frequency == Frequency::kRare ? rare_ : frequent_;
}

void EventLog::Append(Event event) {
  if (stopped_) return;
  event.number = ++last_;
  ++counts_[static_cast<size_t>(event.kind)];
  Kept& kept = KeptOf(event.kind);
  kept.events.push_back(std::move(event));
  if (kept.events.size() > kMaxKeptEvents) {
    kept.last_dropped = kept.events.front().number;
    kept.events.pop_front();
  }
  for (EventListener* listener : listeners_) listener->OnEvent();
}

void EventLog::Stop() {
  stopped_ = true;
  for (EventListener* listener : listeners_) listener->OnStop();
}

const Event* EventLog::After(uint64_t number) const {
  const Event* first = nullptr;
  for (const Kept* kept : {&rare_, &frequent_}) {
    const auto it = FirstAfter(kept->events, number);
    if (it != kept->events.end() && (first == nullptr || it->number < first->number)) first = &*it;
  }
  return first;
}

uint64_t EventLog::LostAfter(uint64_t number, const EventFilter& filter) const {
  const auto wants = [&](Frequency frequency) {
    return filter.kinds.empty() ||
           std::any_of(filter.kinds.begin(), filter.kinds.end(),
                       [&](EventKind kind) { return RowOf(kind).frequency == frequency; });
  };
  const bool lost = (wants(Frequency::kRare) && rare_.last_dropped > number) ||
                    (wants(Frequency::kFrequent) && frequent_.last_dropped > number);
  if (!lost) return 0;
  uint64_t kept_behind = 0;
  for (const Kept* kept : {&rare_, &frequent_})
    kept_behind += static_cast<uint64_t>(kept->events.end() - FirstAfter(kept->events, number));
  return last_ - number - kept_behind;
}

Status EventLog::Subscribe(EventListener& listener) {
  if (stopped_) return Error{.code = Code::kUnavailable, .what = "the daemon stops"};
  if (listeners_.size() >= kMaxEventFollowers)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(kMaxEventFollowers) + " clients follow the events already"};
  listeners_.insert(&listener);
  return OkStatus();
}

}  // namespace hutch::daemon
