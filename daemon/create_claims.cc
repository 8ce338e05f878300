#include "daemon/create_claims.h"

#include <deque>
#include <map>
#include <utility>

#include "daemon/limits.h"
#include "daemon/message.h"

namespace hutch::daemon {

struct CreateClaim::State {
  struct Kept {
    RequestDigests digests;
    int status = 0;
    std::string body;
    WallTime at;
    uint64_t number = 0;
  };
  std::map<OwnedKey, CreateClaim*> sessions, idempotency;  // under way
  std::map<OwnedKey, Kept> kept;
  std::deque<std::pair<OwnedKey, uint64_t>> order;  // oldest first; may name what is replaced
  size_t kept_bytes = 0;
  uint64_t next_number = 1;

  void Drop(std::map<OwnedKey, Kept>::iterator it) {
    kept_bytes -= it->second.body.size();
    kept.erase(it);
  }
  // Until all bounds hold.
  void Trim(WallTime now) {
    while (!order.empty()) {
      const auto it = kept.find(order.front().first);
      const bool current = it != kept.end() && it->second.number == order.front().second;
      if (current && kept.size() <= kMaxKeptAnswers && kept_bytes <= kMaxKeptAnswerBytes &&
          it->second.at + kKeptAnswerTime > now)
        return;
      if (current) Drop(it);
      order.pop_front();
    }
  }
  void Keep(const CreateKeys& keys, int status, const oci::Json& body, WallTime at) {
    const OwnedKey key{keys.owner, keys.idempotency};
    if (const auto old = kept.find(key); old != kept.end()) Drop(old);
    Kept one{.digests = keys.digests,
             .status = status,
             .body = oci::PrintJson(body),
             .at = at,
             .number = next_number++};
    kept_bytes += one.body.size();
    order.emplace_back(key, one.number);
    kept.emplace(key, std::move(one));
    Trim(std::chrono::system_clock::now());
  }
};

// --- CreateClaim

CreateClaim::CreateClaim(std::shared_ptr<State> state, CreateKeys keys)
    : state_(std::move(state)), keys_(std::move(keys)) {
  if (!keys_.session.empty()) state_->sessions[{keys_.owner, keys_.session}] = this;
  if (!keys_.idempotency.empty()) state_->idempotency[{keys_.owner, keys_.idempotency}] = this;
}

CreateClaim::~CreateClaim() {
  if (finished_) return;
  Free();
  const Error error{
      .code = Code::kUnavailable, .what = "the creation was given up", .hint = "ask again"};
  Tell({.status = CodeHttpStatus(error.code),
        .body = std::make_shared<const oci::Json>(ErrorJson(error))});
}

uint64_t CreateClaim::Wait(Waiter waiter) {
  waiters_.emplace(next_waiter_, std::move(waiter));
  return next_waiter_++;
}

void CreateClaim::Leave(uint64_t waiter) {
  if (waiters_.erase(waiter) == 0 || !waiters_.empty()) return;
  if (const auto alone = alone_) alone();  // a copy: it may end this
}

void CreateClaim::Finish(int status, const oci::Json& body) {
  if (std::exchange(finished_, true)) return;
  Free();
  if (status == 201 && !keys_.idempotency.empty())
    state_->Keep(keys_, status, body, std::chrono::system_clock::now());
  Tell({.status = status, .body = std::make_shared<const oci::Json>(body)});
}

void CreateClaim::Free() {
  alone_ = nullptr;
  const auto free = [this](std::map<OwnedKey, CreateClaim*>& claims, const std::string& key) {
    const auto it = claims.find({keys_.owner, key});
    if (it != claims.end() && it->second == this) claims.erase(it);
  };
  free(state_->sessions, keys_.session);
  free(state_->idempotency, keys_.idempotency);
}

void CreateClaim::Tell(const CreateAnswer& answer) {
  const auto waiters = std::exchange(waiters_, {});
  for (const auto& [number, waiter] : waiters) waiter(answer);
}

// --- CreateClaims

CreateClaims::CreateClaims() : state_(std::make_shared<CreateClaim::State>()) {}

Result<CreateClaims::Found> CreateClaims::Find(const CreateKeys& keys) {
  Found found;
  state_->Trim(std::chrono::system_clock::now());
  const auto look = [&](const std::map<OwnedKey, CreateClaim*>& claims, const std::string& key,
                        const char* name, std::string_view ignored) -> Status {
    const auto it = claims.find({keys.owner, key});
    if (key.empty() || it == claims.end() || found.under_way != nullptr) return OkStatus();
    if (const auto field = FirstDifference(it->second->keys().digests, keys.digests, ignored))
      return KeyConflict(name, *field);
    found.under_way = it->second->shared_from_this();
    return OkStatus();
  };
  const auto kept = state_->kept.find({keys.owner, keys.idempotency});
  if (!keys.idempotency.empty() && kept != state_->kept.end()) {
    if (const auto field = FirstDifference(kept->second.digests, keys.digests))
      return KeyConflict("the Idempotency-Key", *field);
    ASSIGN_OR_RETURN(oci::Json body,
                     oci::ParseJson(kept->second.body, {.max_bytes = kept->second.body.size()}));
    found.answer = CreateAnswer{.status = kept->second.status,
                                .body = std::make_shared<const oci::Json>(std::move(body))};
    return found;
  }
  RETURN_IF_ERROR(look(state_->idempotency, keys.idempotency, "the Idempotency-Key", {}));
  RETURN_IF_ERROR(look(state_->sessions, keys.session, "the session key", "session_key"));
  return found;
}

std::shared_ptr<CreateClaim> CreateClaims::Claim(CreateKeys keys) {
  return std::make_shared<CreateClaim>(state_, std::move(keys));
}

void CreateClaims::Remember(const CreateKeys& keys, int status, const oci::Json& body,
                            WallTime at) {
  if (!keys.idempotency.empty()) state_->Keep(keys, status, body, at);
}

size_t CreateClaims::remembered() const { return state_->kept.size(); }

}  // namespace hutch::daemon
