// One sandbox of mode "open" by its number, from which all its names and addresses follow, and the
// elements that its policy needs. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/links.h"
#include "network/nft_writer.h"
#include "network/open_network.h"

namespace hutch::network {

// Elements by the name of their set.
using Elements = std::map<std::string, std::vector<NftElement>>;

class LeaseNumber {
 public:
  LeaseNumber(const OpenConfig& config, bool v6, uint32_t number)
      : config_(config), v6_(v6), number_(number) {}

  std::string link() const;
  // Indices are chosen and not left to the kernel: they are what elements begin with. Those of the
  // two ends differ, for the kernel takes ends of equal index for a link that may wait.
  int host_index() const;
  int peer_index() const;
  HardwareAddress hardware() const;  // of both ends
  OpenLease lease() const;           // without IPv6: v6 is all zeroes
  bool v6() const { return v6_; }

  // What every lease has, whatever the policy.
  Elements FixedElements() const;
  // `consumed`: bytes that already have passed.
  Result<Elements> PolicyElements(const Policy& policy, uint64_t consumed) const;
  std::string Key() const;  // the link's index as elements have it

 private:
  const OpenConfig& config_;
  bool v6_;
  uint32_t number_;
};

// A bound on connections is a chain of its own, whose name says which.
uint32_t BoundOfChain(const std::string& chain);
// The number of a link's name; 0 for what is none of ours.
uint32_t NumberOfLink(const std::string& name);
// How many leases the ranges of addresses have room for; their numbers begin with 1.
uint32_t LeaseCapacity(const OpenConfig& config);

// The gateway, which is the host's end of every pair.
inline constexpr char kInnerLink[] = "eth0";
Address GatewayV4();  // 169.254.1.1
Address GatewayV6();  // fe80::1

}  // namespace hutch::network
