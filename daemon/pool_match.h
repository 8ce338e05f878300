// Which requests a pooled sandbox can answer, and how many are kept. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/create_request.h"
#include "daemon/devcontainer.h"
#include "daemon/pool_spec.h"
#include "daemon/timers.h"

namespace hutch::daemon {

// What cannot be given to a sandbox once it is made, as a digest: equal keys (and the same image)
// are the same sandbox. Not in it: name, labels, owner, keys, time-outs, ports; and environment and
// directory, unless commands of a template have seen them.
std::string PoolKey(const SandboxFields& fields, const std::vector<TemplateStage>& stages);
// kUnsupported for what none can be made ahead of: networks that are joined know their members by
// name.
Status CheckPoolable(const SandboxFields& fields);

// How often something happens, of late: each counts less and less.
class DecayingRate {
 public:
  void Add(SteadyTime now);
  double PerSecond(SteadyTime now) const;

 private:
  double sum_ = 0;
  SteadyTime at_ = {};
};

// As many as are taken while one is made come on top of those that are kept ready.
uint64_t WantedMembers(const PoolSpec& spec, double takes_per_second, double make_seconds);

// How long to leave a pool alone after so many failures in a row.
std::chrono::milliseconds PoolBackoff(uint64_t failures);

}  // namespace hutch::daemon
