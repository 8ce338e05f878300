// The host's own resolution of names, by c-ares in the program's loop. Files are never read: hutchd
// sends resolv.conf and hosts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/egress/loop.h"
#include "network/policy.h"

namespace hutch::network {

struct Resolved {
  enum class State { kFound, kMissing, kFailed };
  State state = State::kFailed;
  std::vector<Address> addresses;  // of both families, at most kMaxAddressesPerName
  std::chrono::seconds ttl{0};
};

class Resolver {
 public:
  // Before confinement: the library looks at its files once.
  static Result<std::unique_ptr<Resolver>> Make(Loop& loop);
  virtual ~Resolver() = default;
  virtual void Configure(const std::string& resolv_conf, const std::string& hosts) = 0;
  // One call back, maybe before it returns. `host` is in normal form.
  virtual void Lookup(const std::string& host, std::function<void(Resolved)> callback) = 0;
};

// "nameserver" lines as c-ares takes them, for tests as well.
std::string NameServers(const std::string& resolv_conf);

}  // namespace hutch::network
