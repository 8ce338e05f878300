// The rules of a policy that open ranges of addresses, as what a set of nf_tables takes: boxes of
// addresses and ports that do not overlap. Pure.
#pragma once

#include <vector>

#include "base/result.h"
#include "network/policy.h"

namespace hutch::network {

struct OpenedRange {
  Cidr cidr;
  PortRange ports;
};
// kLimit above kMaxOpenedRanges.
Result<std::vector<OpenedRange>> OpenedRanges(const Policy& policy);

// First and last address.
Address FirstOf(const Cidr& cidr);
Address LastOf(const Cidr& cidr);

}  // namespace hutch::network
