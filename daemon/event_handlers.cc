// GET /v1/events: what happens, and what happened since a cursor or a time.
#include <memory>

#include "daemon/handlers.h"
#include "daemon/info.h"
#include "daemon/limits.h"
#include "daemon/output_events.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

enum class Follow { kNo, kYes };

struct EventsQuery {
  EventFilter filter;
  std::optional<EventCursor> cursor;
  std::optional<Follow> follow;
};

Error Invalid(const std::string& field, std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = field};
}

Status ApplyParameter(const std::string& name, const std::string& value, EventsQuery* query) {
  if (name == "cursor") {
    ASSIGN_OR_RETURN(query->cursor, ParseCursor(value));
  } else if (name == "since") {
    const Result<WallTime> time = ParseRfc3339(value);
    if (!time.has_value()) return Invalid(name, "must be a time as 2026-01-31T09:08:07.000Z");
    query->filter.since = *time;
  } else if (name == "kind") {
    const auto kind = ParseEventKind(value);
    if (!kind) return Invalid(name, "there is no such kind of event");
    query->filter.kinds.insert(*kind);
  } else if (name == "sandbox") {
    query->filter.sandboxes.push_back(value);
  } else if (name == "label") {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) return Invalid(name, "must be KEY=VALUE");
    query->filter.labels.push_back(LabelHash(value));
  } else {
    if (value != "true" && value != "false") return Invalid(name, "must be true or false");
    query->follow = value == "true" ? Follow::kYes : Follow::kNo;
  }
  return OkStatus();
}

// Where to begin, and what came between that and what the client knows.
struct Start {
  uint64_t position = 0;   // the number of the last event that is not told
  bool restarted = false;  // there were events of an earlier daemon, which nobody knows any more
};

Result<Start> FindStart(const EventLog& log, const EventsQuery& query, WallTime daemon_started,
                        bool all) {
  if (query.cursor && query.cursor->run != log.run()) return Start{.restarted = true};
  if (query.cursor && query.cursor->number > log.last())
    return Invalid("cursor", "must be a cursor of an earlier answer");
  if (query.cursor) return Start{.position = query.cursor->number};
  if (query.filter.since) return Start{.restarted = *query.filter.since < daemon_started};
  return Start{.position = all ? 0 : log.last()};
}

std::string OrNull(const std::string& text) { return text.empty() ? "null" : oci::PrintJson(text); }

std::string EventJson(const Event& event, const std::string& cursor) {
  std::string json = "{\"kind\":\"";
  json.append(EventKindName(event.kind)).append("\",\"at\":\"").append(FormatRfc3339(event.at));
  json.append("\",\"sandbox\":").append(OrNull(event.sandbox));
  json.append(",\"name\":").append(OrNull(event.name));
  json.append(",\"detail\":").append(event.detail);
  return json.append(",\"cursor\":\"").append(cursor).append("\"}");
}

// Goes through the log for one client.
class EventReader {
 public:
  EventReader(const EventLog& log, EventFilter filter, Start start)
      : log_(log), filter_(std::move(filter)), start_(start), position_(start.position) {}

  std::string Cursor() const { return FormatCursor({.run = log_.run(), .number = position_}); }
  // What is missing before the next event and has not been told yet.
  std::optional<oci::Json> TakeLoss() {
    const uint64_t events = log_.LostAfter(std::max(position_, lost_told_), filter_);
    lost_told_ = std::max(lost_told_, log_.last_lost());
    const bool restarted = std::exchange(start_.restarted, false);
    if (events == 0 && !restarted) return std::nullopt;
    return oci::Json{{"events", restarted ? oci::Json() : oci::Json(events)},
                     {"restarted", restarted}};
  }
  enum class Step { kEvent, kOther, kEnd };
  // kEvent: *event is one that fits.
  Step Next(const Event** event) {
    *event = log_.After(position_);
    if (*event == nullptr) return Step::kEnd;
    position_ = (*event)->number;
    return filter_.Fits(**event) ? Step::kEvent : Step::kOther;
  }

 private:
  const EventLog& log_;
  EventFilter filter_;
  Start start_;
  uint64_t position_;
  uint64_t lost_told_ = 0;
};

// Tells one client as fast as it takes them. Nothing waits in memory: who is slow is told later, or
// of what was lost.
class EventFeed final : public EventListener, public std::enable_shared_from_this<EventFeed> {
 public:
  EventFeed(Api& api, Responder responder, EventReader reader, Follow follow)
      : log_(api.watching.events()),
        loop_(api.loop),
        responder_(std::move(responder)),
        reader_(std::move(reader)),
        follow_(follow),
        heartbeat_(api.loop, responder_) {}
  ~EventFeed() override { log_.Unsubscribe(*this); }

  void Begin() {
    const Status subscribed = log_.Subscribe(*this);
    if (!subscribed.has_value()) return responder_.Send(subscribed.error());
    responder_.StartEvents();
    responder_.Event("following", oci::PrintJson({{"cursor", reader_.Cursor()}}));
    responder_.OnHangup([self = shared_from_this()] { self->Finish(); });
    if (follow_ == Follow::kYes) heartbeat_.Start();
    Schedule();
  }

  void OnEvent() override { Schedule(); }
  void OnStop() override {
    follow_ = Follow::kNo;
    stopped_ = true;
    draining_ = false;  // who is slow is not waited for
    Schedule();
  }

 private:
  void Schedule() {
    if (scheduled_ || draining_) return;
    scheduled_ = true;
    loop_.Post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Pump();
    });
  }

  void Pump() {
    scheduled_ = false;
    if (finished_) return;
    if (responder_.Congested()) return AwaitDrain();
    if (const auto loss = reader_.TakeLoss()) responder_.Event("lost", oci::PrintJson(*loss));
    for (size_t looked = 0; looked < kEventsPerTurn; ++looked) {
      if (responder_.Congested()) return AwaitDrain();
      const Event* event = nullptr;
      const EventReader::Step step = reader_.Next(&event);
      if (step == EventReader::Step::kEnd) return AtEnd();
      if (step == EventReader::Step::kOther) continue;
      const std::string cursor = reader_.Cursor();
      responder_.Event(EventKindName(event->kind), EventJson(*event, cursor), cursor);
    }
    Schedule();
  }

  void AtEnd() {
    if (follow_ == Follow::kNo) Finish();
  }

  void AwaitDrain() {
    if (stopped_) return Finish();
    draining_ = true;
    responder_.OnDrained([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->draining_ = false;
      self->Pump();
    });
  }

  void Finish() {
    if (std::exchange(finished_, true)) return;
    heartbeat_.Stop();
    log_.Unsubscribe(*this);
    responder_.End();
  }

  EventLog& log_;
  Loop& loop_;
  Responder responder_;
  EventReader reader_;
  Follow follow_;
  bool stopped_ = false, finished_ = false;
  bool scheduled_ = false, draining_ = false;
  Heartbeat heartbeat_;
};

std::string PageJson(EventReader reader) {
  const std::optional<oci::Json> loss = reader.TakeLoss();
  std::string events;
  for (size_t count = 0; count < kMaxEventPage;) {
    const Event* event = nullptr;
    const EventReader::Step step = reader.Next(&event);
    if (step == EventReader::Step::kEnd) break;
    if (step == EventReader::Step::kOther) continue;
    events.append(count++ == 0 ? "" : ",").append(EventJson(*event, reader.Cursor()));
  }
  return "{\"events\":[" + events + "],\"next_cursor\":\"" + reader.Cursor() +
         "\",\"lost\":" + (loss ? oci::PrintJson(*loss) : "null") + "}";
}

}  // namespace

void HandleEvents(Api& api, Request request, Responder responder) {
  EventsQuery query;
  for (const auto& [name, value] : request.query) {
    const Status applied = ApplyParameter(name, value, &query);
    if (!applied.has_value()) return responder.Send(applied.error());
  }
  // What a reader of events saw last is where it goes on (the EventSource standard).
  if (const auto last = ParseCursor(request.Header("Last-Event-ID"))) query.cursor = *last;
  const bool stream = request.wants_events || request.wants_ndjson || query.follow == Follow::kYes;
  const Follow follow = query.follow.value_or(stream ? Follow::kYes : Follow::kNo);
  const EventLog& log = api.watching.events();
  const Result<Start> start = FindStart(log, query, api.info.started_at(), follow == Follow::kNo);
  if (!start.has_value()) return responder.Send(start.error());
  EventReader reader(log, std::move(query.filter), *start);
  if (!stream) return responder.Send(Reply{.status = 200, .body = PageJson(std::move(reader))});
  std::make_shared<EventFeed>(api, std::move(responder), std::move(reader), follow)->Begin();
}

}  // namespace hutch::daemon
