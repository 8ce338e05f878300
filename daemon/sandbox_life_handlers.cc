// Looking at a sandbox, waiting for its states, renewing, pausing and going on with it.
#include <memory>
#include <set>

#include "daemon/audit_records.h"
#include "daemon/handlers.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kDefaultWaitSeconds = 60;

struct StateWish {
  std::set<SandboxState> states;  // none: no waiting
  uint64_t timeout_seconds = kDefaultWaitSeconds;
};

Result<StateWish> ParseWish(const Request& request) {
  StateWish wish;
  bool has_timeout = false;
  for (const auto& [name, value] : request.query) {
    if (name == "wait") {
      if (value.empty())
        return Error{.code = Code::kInvalidArgument, .what = "names no state", .field = "wait"};
      for (const std::string& word : Split(value, ',')) {
        const std::optional<SandboxState> state = ParseState(word);
        if (!state || *state == SandboxState::kCreating)
          return Error{.code = Code::kInvalidArgument,
                       .what = "must be states after creating, of " + StateList(),
                       .field = "wait"};
        wish.states.insert(*state);
      }
      continue;
    }
    const Result<uint64_t> seconds = ParseUint(value, kMaxWaitSeconds);
    if (!seconds.has_value())
      return Error{.code = Code::kInvalidArgument,
                   .what = "must be whole seconds up to " + std::to_string(kMaxWaitSeconds),
                   .field = "timeout_seconds"};
    wish.timeout_seconds = *seconds;
    has_timeout = true;
  }
  if (has_timeout && wish.states.empty())
    return Error{
        .code = Code::kInvalidArgument, .what = "goes with wait", .field = "timeout_seconds"};
  return wish;
}

// One call that waits. It answers from within the move, so that no state is missed however short.
class StateWait : public std::enable_shared_from_this<StateWait> {
 public:
  StateWait(Api& api, StateWish wish, Responder responder, const SandboxEntry& entry)
      : api_(api),
        wish_(std::move(wish)),
        responder_(std::move(responder)),
        entry_(entry),
        id_(entry.facts.id) {}

  void Begin(SandboxEntry& entry) {
    const auto self = shared_from_this();
    if (Try()) return;
    watcher_ = api_.sandboxes.OnMove(entry, [self] {
      if (self->Try()) self->Forget();
    });
    responder_.OnHangup([self] { self->Forget(); });
    timer_.Start(api_.loop, std::chrono::seconds(wish_.timeout_seconds), [self] {
      const std::string state = StateName(self->entry_.moments.state);
      self->Forget();
      self->responder_.Send(Error{.code = Code::kPreconditionFailed,
                                  .what = "sandbox " + self->id_ + " is " + state + " still"});
    });
  }

 private:
  // The entry outlives each move that is told.
  bool Try() {
    const SandboxState state = entry_.moments.state;
    if (!wish_.states.contains(state) && !HasEnded(state)) return false;
    responder_.Send(JsonReply(200, api_.sandboxes.ToJson(entry_)));
    return true;
  }
  void Forget() {
    timer_.Cancel();
    api_.sandboxes.ForgetMove(id_, watcher_);
  }

  Api& api_;
  StateWish wish_;
  Responder responder_;
  const SandboxEntry& entry_;  // while it is watched
  std::string id_;
  uint64_t watcher_ = 0;
  Timer timer_;
};

void AuditMove(Api& api, const Peer& caller, const SandboxEntry& entry, AuditKind kind,
               const Status& status) {
  AuditEntry record{
      .kind = kind, .sandbox = entry.facts.id, .name = entry.facts.fields.name, .caller = caller};
  if (!status.has_value()) record.outcome = CodeName(status.error().code);
  api.audit.Record(std::move(record));
}

void AnswerReclaimed(Api& api, const std::string& id, const Result<uint64_t>& bytes,
                     Responder& responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(id);
  if (!entry.has_value()) return responder.Send(entry.error());
  if (!bytes.has_value()) {
    Error error = bytes.error();
    error.what = "it is paused, but its memory was not reclaimed: " + error.what;
    return responder.Send(error);
  }
  oci::Json json = api.sandboxes.ToJson(**entry);
  json["reclaimed_bytes"] = *bytes;
  responder.Send(JsonReply(200, json));
}

}  // namespace

void HandleGetSandbox(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  Result<StateWish> wish = ParseWish(request);
  if (!wish.has_value()) return responder.Send(wish.error());
  if (wish->states.empty()) return responder.Send(JsonReply(200, api.sandboxes.ToJson(**entry)));
  std::make_shared<StateWait>(api, std::move(*wish), std::move(responder), **entry)->Begin(**entry);
}

void HandleHeartbeat(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindRunning(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  if (!(*entry)->facts.fields.timeouts.Counts(Activity::kRenewal))
    return responder.Send(Error{.code = Code::kBadState,
                                .what = "heartbeats do not count for sandbox " + (*entry)->facts.id,
                                .hint = "timeouts.activity says what does"});
  api.sandboxes.Touch(**entry, Activity::kRenewal);
  responder.Send(Reply{.status = 204, .body = {}});
}

void HandlePause(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  bool reclaim = false;
  oci::ObjectReader reader(request.json, "");
  const Status read = reader.Bool("reclaim", &reclaim).Done(oci::ObjectReader::Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  if (reclaim) {  // before anything is paused
    const auto reclaimer = (*entry)->sandbox->group().OpenReclaimer();
    if (!reclaimer.has_value()) return responder.Send(reclaimer.error());
  }
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto done = [&api, shared, reclaim, peer = request.peer,
                     id = (*entry)->facts.id](const Status& paused) {
    const Result<SandboxEntry*> found = api.sandboxes.Find(id);
    if (!found.has_value()) return shared->Send(found.error());
    AuditMove(api, peer, **found, AuditKind::kSandboxPaused, paused);
    if (!paused.has_value()) return shared->Send(paused.error());
    if (!reclaim) return AnswerReclaimed(api, id, uint64_t{0}, *shared);
    api.sandboxes.Reclaim(**found, [&api, shared, id](const Result<uint64_t>& bytes) {
      AnswerReclaimed(api, id, bytes, *shared);
    });
  };
  api.sandboxes.Pause(**entry, MoveCause::kRequested, done);
}

void HandleResume(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const Status resumed = api.sandboxes.Resume(**entry, MoveCause::kRequested);
  AuditMove(api, request.peer, **entry, AuditKind::kSandboxResumed, resumed);
  if (!resumed.has_value()) return responder.Send(resumed.error());
  responder.Send(JsonReply(200, api.sandboxes.ToJson(**entry)));
}

}  // namespace hutch::daemon
