// One sandbox as the egress program knows it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "network/counters.h"
#include "network/egress/client.h"
#include "network/egress/names.h"

namespace hutch::network {

enum class Direction { kSent, kReceived };

// Tells the first of equal denials at once and the rest of a second together; different ones are
// bounded.
class Denials {
 public:
  using Tell = std::function<void(const Denial&)>;
  Denials(Loop& loop, Tell tell) : timer_(loop), tell_(std::move(tell)) {}
  void Add(const Denial& denial);

 private:
  using Key = std::tuple<std::string, std::string, std::string, uint16_t, std::string>;
  void Flush();
  Timer timer_;
  Tell tell_;
  std::map<Key, std::pair<Denial, uint64_t>> kinds_;  // and how often since it was last told
  uint64_t others_ = 0;
};

class Session;

struct Tenant {
  Tenant(Loop& loop, Resolver& resolver, LookupBudget& budget, std::string name, Denials::Tell tell)
      : id(std::move(name)), names(resolver, budget), denials(loop, std::move(tell)) {}

  // Bytes that may be moved now, at most `wanted`; 0: later, or never (see spent).
  size_t Allowance(Direction direction, size_t wanted);
  void Count(Direction direction, size_t bytes);
  bool spent() const;  // the quota of bytes
  void Apply(EgressSettings fresh);
  void Deny(const char* protocol, const std::string& host, const std::string& address,
            uint16_t port, const std::string& reason);

  std::string id;
  EgressSettings settings;
  std::optional<CountersFile> file;
  Counters own{};  // until there is a file
  Counters& counters() { return file ? **file : own; }
  const Counters& counters() const { return file ? **file : own; }
  Names names;
  Denials denials;
  std::optional<TokenBucket> buckets[2];
  std::set<std::shared_ptr<Session>> sessions;
  size_t half_open = 0;  // of them not connected yet
  size_t connected = 0;
};

}  // namespace hutch::network
