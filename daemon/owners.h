// How many sandboxes each owner has, and the most that one may have: by the user of the socket, by
// the value of a label, and by the beginning of a session key. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/create_request.h"
#include "oci/json.h"

namespace hutch::daemon {

class OwnerCounts {
 public:
  explicit OwnerCounts(const OwnerLimits& limits) : limits_(limits) {}  // borrowed

  // `uid` is the user who made it. Remove() with what Add() was called with. Labels are counted
  // that have a limit: when the limits change, Clear() and add all again.
  void Add(uint32_t uid, const SandboxFields& fields);
  void Remove(uint32_t uid, const SandboxFields& fields);
  void Clear() { counts_.clear(); }
  // kLimit: one of its owners has as many as it may have. Names the owner, the number and the
  // setting.
  Status Check(uint32_t uid, const SandboxFields& fields) const;
  // The same for a sandbox that is counted and gets other labels: only owners that are new to it.
  Status CheckLabels(const StringMap& before, const StringMap& after) const;

  // For GET /v1/info: those with the most sandboxes first, kMaxOwnersShown of them.
  oci::Json ToJson() const;

 private:
  enum class Kind { kUser, kLabel, kSession };
  struct Owner {
    Kind kind = Kind::kUser;
    std::string key = {};    // the label's key; the user of a session
    std::string value = {};  // the user, the label's value, the beginning of the session key
    auto operator<=>(const Owner&) const = default;
  };
  std::vector<Owner> OwnersOf(uint32_t uid, const SandboxFields& fields) const;
  uint64_t MostOf(const Owner& owner) const;  // 0: no bound
  Status CheckOwner(const Owner& owner) const;
  static const char* KindName(Kind kind);

  const OwnerLimits& limits_;
  std::map<Owner, uint64_t> counts_;
};

// Of the configuration: the section "owner_limits".
Status ApplyOwnerLimits(const oci::Json& json, OwnerLimits* limits);
Status CheckOwnerLimits(const OwnerLimits& limits);
std::vector<std::string> OwnerLimitKeys();  // "owner_limits.labels"
oci::Json OwnerLimitsJson(const OwnerLimits& limits);

}  // namespace hutch::daemon
