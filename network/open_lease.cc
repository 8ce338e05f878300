#include "network/open_lease.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "network/kernel_limits.h"
#include "network/open_table.h"
#include "network/opened_ranges.h"

namespace hutch::network {
namespace {

constexpr int kHostIndexBase = 0x48500000, kPeerIndexBase = 0x48400000;
constexpr uint64_t kFastestRate = uint64_t{1} << 40;  // bytes a second: as good as unbounded

std::string Number(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

std::string PortField(uint16_t port) {
  return {static_cast<char>(port >> 8), static_cast<char>(port & 0xff), '\0', '\0'};
}

Address Plus(const Address& base, uint32_t number) {
  Address sum = base;
  for (size_t i = 16; i-- > 0 && number != 0;) {
    number += sum.bytes[i];
    sum.bytes[i] = static_cast<uint8_t>(number & 0xff);
    number >>= 8;
  }
  return sum;
}

}  // namespace

Address GatewayV4() {
  return {.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 1, 1}};
}
Address GatewayV6() { return {.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}; }

uint32_t NumberOfLink(const std::string& name) {
  const std::string_view prefix = kLinkPrefix;
  if (!name.starts_with(prefix)) return 0;
  const auto number = ParseUint(std::string_view(name).substr(prefix.size()), kMaxLeases);
  return number && prefix.data() + std::to_string(*number) == name ? static_cast<uint32_t>(*number)
                                                                   : 0;
}

uint32_t LeaseCapacity(const OpenConfig& config) {
  const unsigned host_bits = 128u - std::max(config.pool_v4.bits, config.pool_v6.bits);
  const uint64_t addresses = host_bits >= 32 ? UINT32_MAX : uint64_t{1} << host_bits;
  // Neither the first, which names the range, nor the last, the broadcast address.
  return static_cast<uint32_t>(
      std::min<uint64_t>(kMaxLeases - 1, addresses < 3 ? 0 : addresses - 2));
}

uint32_t BoundOfChain(const std::string& chain) {
  const auto bound = ParseUint(std::string_view(chain).substr(chain.rfind('_') + 1), UINT32_MAX);
  return bound ? static_cast<uint32_t>(*bound) : 0;
}

std::string LeaseNumber::link() const { return kLinkPrefix + std::to_string(number_); }
int LeaseNumber::host_index() const { return kHostIndexBase + static_cast<int>(number_); }
int LeaseNumber::peer_index() const { return kPeerIndexBase + static_cast<int>(number_); }
std::string LeaseNumber::Key() const { return Number(static_cast<uint32_t>(host_index())); }

HardwareAddress LeaseNumber::hardware() const {
  return {0x02,
          'h',
          'u',
          static_cast<uint8_t>(number_ >> 16),
          static_cast<uint8_t>(number_ >> 8),
          static_cast<uint8_t>(number_)};
}

OpenLease LeaseNumber::lease() const {
  return {Plus(FirstOf(config_.pool_v4), number_),
          v6_ ? Plus(FirstOf(config_.pool_v6), number_) : Address{}, link()};
}

Elements LeaseNumber::FixedElements() const {
  const OpenLease addresses = lease();
  Elements elements;
  elements[kLeasesV4Set] = {{.key = Key() + WireBytes(addresses.v4)}};
  if (v6_) elements[kLeasesV6Set] = {{.key = Key() + WireBytes(addresses.v6)}};
  for (const char* set : {kSentSet, kReceivedSet, kDeniedSet})
    elements[set] = {{.key = Key(), .state = NftState::kCounter}};
  return elements;
}

Result<Elements> LeaseNumber::PolicyElements(const Policy& policy, uint64_t consumed) const {
  Elements elements;
  const TrafficLimits& limits = policy.limits;
  if (limits.connections != 0)
    elements[kCrowdedSet] = {
        {.key = Key(),
         .state = NftState::kChain,
         .chain = "over_" + std::to_string(number_) + "_" + std::to_string(limits.connections)}};
  if (limits.total_bytes != 0)
    elements[kSpentSet] = {{.key = Key(),
                            .state = NftState::kQuota,
                            .amount = limits.total_bytes,
                            .consumed = consumed}};
  if (limits.bytes_per_second != 0 && limits.bytes_per_second < kFastestRate)
    for (const char* set : {kFastOutSet, kFastInSet})
      elements[set] = {{.key = Key(), .state = NftState::kRate, .amount = limits.bytes_per_second}};
  ASSIGN_OR_RETURN(const std::vector<OpenedRange> ranges, OpenedRanges(policy));
  for (const OpenedRange& range : ranges) {
    const bool v4 = IsV4(range.cidr);
    if (!v4 && !v6_) continue;
    // nft(8) has intervals compared as numbers, and turns the link's index round for it.
    std::string key = Key();
    std::ranges::reverse(key);
    elements[v4 ? kOpenedV4Set : kOpenedV6Set].push_back(
        {.key = key + WireBytes(FirstOf(range.cidr)) + PortField(range.ports.first),
         .key_end = key + WireBytes(LastOf(range.cidr)) + PortField(range.ports.last)});
  }
  return elements;
}

}  // namespace hutch::network
