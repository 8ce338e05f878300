// Other firewalls: netfilter asks every table's chains, and one that drops is enough.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "network/netlink.h"

namespace hutch::network {

struct ForwardChain {
  std::string name;    // as a person finds it: "inet firewalld filter_FORWARD", "iptables FORWARD"
  bool knows_us;       // a rule of its table names links that begin with "hutch"
  std::string remedy;  // commands that would let us pass
};
// Chains at the forward hook whose policy is to drop, of nf_tables (which today's iptables is as
// well) and of the older iptables. In the namespace of the calling thread.
Result<std::vector<ForwardChain>> FindDroppingForwardChains(NetlinkSocket& filter);

}  // namespace hutch::network
