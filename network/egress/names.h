// The names that one sandbox has asked for, with the addresses the host resolved them to: the pin.
// Nothing is shared between sandboxes, so none learns what another asks for or takes its room.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "network/egress/resolver.h"

namespace hutch::network {

// Refills with time, holds at most a second's or `burst`.
class TokenBucket {
 public:
  TokenBucket(uint64_t per_second, uint64_t burst)
      : per_second_(per_second), burst_(burst), tokens_(burst) {}
  uint64_t Peek();  // what there is
  // At most `wanted`; 0: later.
  uint64_t Take(uint64_t wanted);

 private:
  uint64_t per_second_, burst_, tokens_;
  SteadyTime last_ = Loop::Now();
};

struct NameAnswer {
  enum class State { kFound, kMissing, kFailed, kTooMany };
  State state = State::kFailed;
  std::vector<Address> addresses;
  std::chrono::seconds left{0};
};

// Shared by all sandboxes: only to bound them together.
struct LookupBudget {
  size_t in_flight = 0;
  std::function<void()> on_failed = [] {};  // the servers may have changed
};

class Names {
 public:
  using Callback = std::function<void(const NameAnswer&)>;
  Names(Resolver& resolver, LookupBudget& budget);
  ~Names();
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  // One call back, maybe before it returns; none once this is gone. `host` is in normal form.
  void Lookup(const std::string& host, Callback callback);
  // Names that were answered with this address, lately.
  std::vector<std::string> NamesOf(const Address& address) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    bool pending = false;
    NameAnswer::State state = NameAnswer::State::kFailed;
    std::vector<Address> addresses;
    SteadyTime until;
    std::vector<Callback> waiting;
  };
  void Store(const std::string& host, Resolved resolved);
  bool MakeRoom();
  static NameAnswer AnswerOf(const Entry& entry);

  Resolver& resolver_;
  LookupBudget& budget_;
  std::map<std::string, Entry, std::less<>> entries_;
  size_t in_flight_ = 0;
  TokenBucket rate_{kMaxNamesPerSecond, kMaxNamesAtOnce};
  std::shared_ptr<Names*> self_;  // what callbacks find us by
};

}  // namespace hutch::network
