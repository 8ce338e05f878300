#include "network/opened_ranges.h"

#include <bitset>
#include <map>
#include <memory>

#include "network/kernel_limits.h"

namespace hutch::network {
namespace {

using Ports = std::bitset<65536>;

Address WithHostBits(const Cidr& cidr, bool ones) {
  Address address = cidr.base;
  for (unsigned bit = cidr.bits; bit < 128; ++bit) {
    const auto mask = static_cast<uint8_t>(0x80u >> (bit % 8));
    uint8_t& byte = address.bytes[bit / 8];
    byte = static_cast<uint8_t>(ones ? byte | mask : byte & ~mask);
  }
  return address;
}

// By prefix length, so that what holds another comes before it.
using Key = std::pair<uint8_t, Address>;

}  // namespace

Address FirstOf(const Cidr& cidr) { return WithHostBits(cidr, false); }
Address LastOf(const Cidr& cidr) { return WithHostBits(cidr, true); }

Result<std::vector<OpenedRange>> OpenedRanges(const Policy& policy) {
  std::map<Key, std::unique_ptr<Ports>> wanted;
  for (const Rule& rule : policy.allow) {
    if (!rule.cidr) continue;
    auto& ports = wanted[{rule.cidr->bits, FirstOf(*rule.cidr)}];
    if (ports == nullptr) ports = std::make_unique<Ports>();
    for (const PortRange& range : rule.ports)
      for (size_t port = range.first; port <= range.last; ++port) ports->set(port);
  }
  std::vector<OpenedRange> boxes;
  for (auto each = wanted.begin(); each != wanted.end(); ++each) {
    const Cidr cidr = {.base = each->first.second, .bits = each->first.first};
    Ports ports = *each->second;
    for (auto wider = wanted.begin(); wider != each; ++wider) {
      const Cidr other = {.base = wider->first.second, .bits = wider->first.first};
      if (other.bits < cidr.bits && other.Contains(cidr.base)) ports &= ~*wider->second;
    }
    for (size_t port = 0; port < ports.size(); ++port) {
      if (!ports.test(port)) continue;
      const size_t first = port;
      while (port + 1 < ports.size() && ports.test(port + 1)) ++port;
      if (boxes.size() == kMaxOpenedRanges)
        return Error{.code = Code::kLimit,
                     .what = "more than " + std::to_string(kMaxOpenedRanges) +
                             " ranges of addresses and ports",
                     .field = "network.allow"};
      boxes.push_back({cidr, {static_cast<uint16_t>(first), static_cast<uint16_t>(port)}});
    }
  }
  return boxes;
}

}  // namespace hutch::network
