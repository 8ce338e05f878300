// Creations under way by their keys, and the answers that are given again for an Idempotency-Key.
// On the loop's thread. docs/api.md, "Asking twice".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/text.h"
#include "daemon/create_keys.h"
#include "oci/json.h"

namespace hutch::daemon {

struct CreateAnswer {
  int status = 0;
  std::shared_ptr<const oci::Json> body = nullptr;  // the sandbox, or {"error": ...}
};

// One creation that goes on. Whoever makes the sandbox owns it; destroyed without Finish() it
// tells those who wait that the creation was given up. Its keys are free afterwards.
class CreateClaim : public std::enable_shared_from_this<CreateClaim> {
 public:
  using Waiter = std::function<void(const CreateAnswer&)>;
  struct State;

  CreateClaim(std::shared_ptr<State> state, CreateKeys keys);
  CreateClaim(const CreateClaim&) = delete;
  CreateClaim& operator=(const CreateClaim&) = delete;
  ~CreateClaim();

  const CreateKeys& keys() const { return keys_; }
  // Another request for the same; the number is for Leave().
  uint64_t Wait(Waiter waiter);
  // When nobody is left, OnAlone()'s handler is called.
  void Leave(uint64_t waiter);
  bool awaited() const { return !waiters_.empty(); }
  void OnAlone(std::function<void()> handler) { alone_ = std::move(handler); }

  // Once. A status of 201 is kept for the Idempotency-Key.
  void Finish(int status, const oci::Json& body);

 private:
  void Free();
  void Tell(const CreateAnswer& answer);

  std::shared_ptr<State> state_;
  CreateKeys keys_;
  bool finished_ = false;
  uint64_t next_waiter_ = 1;
  std::map<uint64_t, Waiter> waiters_;
  std::function<void()> alone_;
};

class CreateClaims {
 public:
  CreateClaims();

  struct Found {
    std::shared_ptr<CreateClaim> under_way = nullptr;  // to wait for
    std::optional<CreateAnswer> answer = {};           // given before
  };
  // What is known of the keys; neither when nothing is. kExists for keys of another request.
  Result<Found> Find(const CreateKeys& keys);
  // After a Find() that found nothing.
  std::shared_ptr<CreateClaim> Claim(CreateKeys keys);
  // What is answered from now on for the Idempotency-Key. Bounded by kMaxKeptAnswers,
  // kMaxKeptAnswerBytes and kKeptAnswerTime: the oldest go.
  void Remember(const CreateKeys& keys, int status, const oci::Json& body, WallTime at);
  size_t remembered() const;

 private:
  std::shared_ptr<CreateClaim::State> state_;  // claims may outlive this
};

}  // namespace hutch::daemon
