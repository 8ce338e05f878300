// Mode "open": a routed veth pair into the sandbox, no bridge, and one nftables table of ours on
// the host ("inet hutch") whose chains are written once and whose sets hold what differs.
// Everything is made in the network namespace of the calling thread. Not thread-safe: one thread
// calls it (libnftables). Needs CAP_NET_ADMIN.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/policy.h"

namespace hutch::network {

struct OpenConfig {
  Cidr pool_v4;                 // addresses of sandboxes, e.g. 100.96.0.0/16; one each
  Cidr pool_v6;                 // a ULA prefix
  std::vector<Cidr> reachable;  // private ranges that all may reach; usually none
};

struct OpenLease {
  Address v4, v6;    // v6 is all zeroes where the host does not forward IPv6
  std::string link;  // name on the host
};

struct OpenCounters {
  uint64_t sent_bytes = 0, sent_packets = 0, received_bytes = 0, received_packets = 0;
  uint64_t denied_packets = 0;
};

class OpenNetwork {
 public:
  // Makes or repairs the table. Errors say what to do: kUnsupported for net.ipv4.ip_forward = 0,
  // for another firewall whose forward policy drops us (it is named), for a kernel without
  // nf_tables.
  static Result<std::unique_ptr<OpenNetwork>> Start(const OpenConfig& config);
  virtual ~OpenNetwork() = default;  // leaves links and rules: sandboxes outlive hutchd

  // Makes the pair of links for a namespace ahead of need: Attach then costs a sixth. It has no
  // address, and nothing passes.
  virtual Status Prepare(int netns) = 0;
  // `netns`: as in network/inside.h. `id` becomes part of no name longer than IFNAMSIZ. Rules of
  // the policy with a CIDR open private ranges to it. Undone completely on error.
  virtual Result<OpenLease> Attach(const std::string& id, int netns, const Policy& policy) = 0;
  virtual Status Change(const std::string& id, const Policy& policy) = 0;  // limits and CIDRs, live
  // Of a sandbox that ends, also when its namespace is gone; idempotent. The link stays shut until
  // it goes with the namespace.
  virtual Status Detach(const std::string& id) = 0;
  // Of one that lives on, in another mode: takes addresses and routes in `netns` as well.
  virtual Status Withdraw(const std::string& id, int netns) = 0;
  virtual Result<OpenCounters> Count(const std::string& id) = 0;
  // After a restart: takes up the leases of those in `living`, removes every link, element and rule
  // of ours that belongs to none. The ids whose link is gone are returned.
  virtual Result<std::vector<std::string>> Recover(const std::set<std::string>& living) = 0;
};

}  // namespace hutch::network
