#include "network/egress/names.h"

#include <algorithm>

namespace hutch::network {

uint64_t TokenBucket::Peek() {
  const SteadyTime now = Loop::Now();
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - last_);
  const auto us = static_cast<uint64_t>(std::min<int64_t>(passed.count(), 1000000));
  // In two steps, so that large rates do not overflow.
  const uint64_t gained = per_second_ / 1000000 * us + per_second_ % 1000000 * us / 1000000;
  if (gained > 0) {
    tokens_ = std::min(burst_, tokens_ + gained);
    last_ = now;
  }
  return tokens_;
}

uint64_t TokenBucket::Take(uint64_t wanted) {
  const uint64_t taken = std::min(wanted, Peek());
  tokens_ -= taken;
  return taken;
}

Names::Names(Resolver& resolver, LookupBudget& budget)
    : resolver_(resolver), budget_(budget), self_(std::make_shared<Names*>(this)) {}

Names::~Names() {
  *self_ = nullptr;
  budget_.in_flight -= in_flight_;
}

NameAnswer Names::AnswerOf(const Entry& entry) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(entry.until - Loop::Now());
  return {entry.state, entry.addresses, std::max(left, std::chrono::seconds(0))};
}

// Expired ones go first, then the one that expires next.
bool Names::MakeRoom() {
  if (entries_.size() < kMaxNamesPerSandbox) return true;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it)
    if (!it->second.pending &&
        (oldest == entries_.end() || it->second.until < oldest->second.until))
      oldest = it;
  if (oldest == entries_.end()) return false;
  entries_.erase(oldest);
  return true;
}

void Names::Lookup(const std::string& host, Callback callback) {
  NameAnswer busy;
  busy.state = NameAnswer::State::kTooMany;
  auto it = entries_.find(host);
  if (it != entries_.end() && it->second.pending) {
    if (it->second.waiting.size() >= kMaxWaitingPerName) return callback(busy);
    it->second.waiting.push_back(std::move(callback));
    return;
  }
  if (it != entries_.end() && Loop::Now() < it->second.until) return callback(AnswerOf(it->second));
  if (in_flight_ >= kMaxLookupsPerSandbox || budget_.in_flight >= kMaxLookups ||
      rate_.Take(1) == 0 || (it == entries_.end() && !MakeRoom()))
    return callback(busy);
  Entry& entry = entries_[host];
  entry.pending = true;
  entry.waiting.push_back(std::move(callback));
  ++in_flight_;
  ++budget_.in_flight;
  resolver_.Lookup(host, [weak = self_, host](Resolved resolved) {
    if (*weak != nullptr) (*weak)->Store(host, std::move(resolved));
  });
}

void Names::Store(const std::string& host, Resolved resolved) {
  --in_flight_;
  --budget_.in_flight;
  const auto it = entries_.find(host);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  const SteadyTime now = Loop::Now();
  entry.pending = false;
  entry.state = resolved.state == Resolved::State::kFound     ? NameAnswer::State::kFound
                : resolved.state == Resolved::State::kMissing ? NameAnswer::State::kMissing
                                                              : NameAnswer::State::kFailed;
  if (resolved.state == Resolved::State::kFound) {
    entry.addresses = std::move(resolved.addresses);
    entry.until = now + std::clamp<std::chrono::seconds>(resolved.ttl, kMinPin, kMaxPin);
  } else {
    entry.addresses.clear();
    entry.until = resolved.state == Resolved::State::kMissing ? now + kMissingPin : now;
  }
  const NameAnswer answer = AnswerOf(entry);
  const std::vector<Callback> waiting = std::move(entry.waiting);
  entry.waiting.clear();
  if (resolved.state == Resolved::State::kFailed) budget_.on_failed();
  const std::shared_ptr<Names*> self = self_;
  for (const Callback& callback : waiting) {
    callback(answer);
    if (*self == nullptr) return;  // the sandbox was forgotten
  }
}

std::vector<std::string> Names::NamesOf(const Address& address) const {
  std::vector<std::string> names;
  const SteadyTime now = Loop::Now();
  for (const auto& [name, entry] : entries_)
    if (now < entry.until + kPinGrace &&
        std::find(entry.addresses.begin(), entry.addresses.end(), address) != entry.addresses.end())
      names.push_back(name);
  return names;
}

}  // namespace hutch::network
