#include "daemon/keyed_create.h"

#include <utility>

#include "daemon/output_events.h"
#include "daemon/sandbox_stop_handlers.h"

namespace hutch::daemon {
namespace {

constexpr const char* kReplayedHeader = "Idempotency-Replayed";

enum class Answered { kFirst, kReplayed };  // as far as the Idempotency-Key goes

void SendAnswer(Responder& responder, bool events, const CreateAnswer& answer, Answered how) {
  if (events) {
    responder.Event(answer.status < 400 ? "result" : "error", oci::PrintJson(*answer.body));
    return responder.End();
  }
  Reply reply = JsonReply(answer.status, *answer.body);
  if (how == Answered::kReplayed) reply.headers.emplace_back(kReplayedHeader, "true");
  responder.Send(std::move(reply));
}

// One request that waits for what another one makes.
class Joined : public std::enable_shared_from_this<Joined> {
 public:
  Joined(Api& api, const Request& request, CreateKeys keys, Responder responder)
      : api_(api),
        keys_(std::move(keys)),
        events_(request.wants_events || request.wants_ndjson),
        responder_(std::move(responder)),
        heartbeat_(api.loop, responder_) {}

  void Begin(const std::shared_ptr<CreateClaim>& claim) {
    const std::string& first = claim->keys().idempotency;
    replays_ = !keys_.idempotency.empty() && keys_.idempotency == first;
    if (events_) {
      responder_.StartEvents();
      heartbeat_.Start();
    }
    const uint64_t number = claim->Wait(
        [self = shared_from_this()](const CreateAnswer& answer) { self->Answer(answer); });
    responder_.OnHangup([weak = weak_from_this(), claim = std::weak_ptr(claim), number] {
      if (const auto self = weak.lock()) self->heartbeat_.Stop();
      if (const auto held = claim.lock()) held->Leave(number);
    });
  }

 private:
  void Answer(CreateAnswer answer) {
    heartbeat_.Stop();
    if (answer.status == 201 && !replays_) {
      answer.status = 200;
      api_.sandboxes.claims().Remember(keys_, 200, *answer.body, std::chrono::system_clock::now());
    }
    const bool again = replays_ && answer.status < 400;
    SendAnswer(responder_, events_, answer, again ? Answered::kReplayed : Answered::kFirst);
  }

  Api& api_;
  CreateKeys keys_;
  bool events_, replays_ = false;
  Responder responder_;
  Heartbeat heartbeat_;
};

void SendNow(Responder& responder, const Request& request, const CreateAnswer& answer,
             Answered how) {
  const bool events = request.wants_events || request.wants_ndjson;
  if (events) responder.StartEvents();
  SendAnswer(responder, events, answer, how);
}

void AnswerWithLiving(Api& api, const Request& request, const CreateKeys& keys, SandboxEntry& entry,
                      Responder& responder);

// The key's sandbox was stopped: it is started again for whoever asks for it.
void AnswerWithStarted(Api& api, const Request& request, const CreateKeys& keys,
                       SandboxEntry& entry, Responder& responder) {
  const auto asked = std::make_shared<const Request>(request);
  const auto shared = std::make_shared<Responder>(std::move(responder));
  StartStopped(api, entry, request.peer,
               [&api, asked, shared, keys](const Result<SandboxEntry*>& started) {
                 if (!started.has_value()) return shared->Send(started.error());
                 AnswerWithLiving(api, *asked, keys, **started, *shared);
               });
}

void AnswerWithLiving(Api& api, const Request& request, const CreateKeys& keys, SandboxEntry& entry,
                      Responder& responder) {
  if (const auto field = FirstDifference(entry.facts.fields.digests, keys.digests, "session_key"))
    return responder.Send(KeyConflict("the session key", *field));
  const bool stopped = entry.moments.state == SandboxState::kStopped;
  if (stopped || (entry.stop != nullptr && entry.moments.state == SandboxState::kCreating))
    return AnswerWithStarted(api, request, keys, entry, responder);
  if (entry.moments.state != SandboxState::kRunning && entry.moments.state != SandboxState::kPaused)
    return responder.Send(Error{.code = Code::kUnavailable,
                                .what = "sandbox " + entry.facts.id + " of the session key is " +
                                        StateName(entry.moments.state),
                                .field = "session_key"});
  api.sandboxes.Touch(entry, Activity::kCall);
  const CreateAnswer answer{.status = 200,
                            .body = std::make_shared<const oci::Json>(api.sandboxes.ToJson(entry))};
  api.sandboxes.claims().Remember(keys, 200, *answer.body, std::chrono::system_clock::now());
  SendNow(responder, request, answer, Answered::kFirst);
}

}  // namespace

Keyed AnswerByKeys(Api& api, const Request& request, const CreateKeys& keys, Responder& responder,
                   std::shared_ptr<CreateClaim>* claim) {
  CreateClaims& claims = api.sandboxes.claims();
  const Result<CreateClaims::Found> found = claims.Find(keys);
  if (!found.has_value()) {
    responder.Send(found.error());
    return Keyed::kAnswered;
  }
  if (found->answer) {
    SendNow(responder, request, *found->answer, Answered::kReplayed);
    return Keyed::kAnswered;
  }
  if (found->under_way != nullptr) {
    std::make_shared<Joined>(api, request, keys, std::move(responder))->Begin(found->under_way);
    return Keyed::kAnswered;
  }
  SandboxEntry* const living =
      keys.session.empty() ? nullptr : api.sandboxes.FindSession({keys.owner, keys.session});
  if (living != nullptr) {
    AnswerWithLiving(api, request, keys, *living, responder);
    return Keyed::kAnswered;
  }
  *claim = claims.Claim(keys);
  return Keyed::kToBeMade;
}

}  // namespace hutch::daemon
