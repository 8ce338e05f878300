#include "network/workspace.h"

#include <linux/rtnetlink.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "network/catch_addresses.h"
#include "network/links.h"
#include "network/netns.h"
#include "network/netns_visit.h"
#include "network/nft_writer.h"
#include "network/open_lease.h"
#include "network/open_table.h"

namespace hutch::network {
namespace {

constexpr int kLoopback = 1;
// Indices of a member's two links, below the last bits of its address: unique in both namespaces
// for as long as no two networks' addresses are 2^22 apart. Of the ends of a pair they differ, see
// network/open_lease.h.
constexpr uint32_t kPortIndexBase = 0x49000000, kMemberIndexBase = 0x49400000;
constexpr uint32_t kIndexMask = 0x3fffff;

constexpr char kTable[] = "hutch_network";
constexpr char kMembersV4Set[] = "members4", kMembersV6Set[] = "members6";
constexpr char kRules[] = R"(
table inet hutch_network {
  set members4 { type iface_index . ipv4_addr
  }
  set members6 { type iface_index . ipv6_addr
  }
  chain source {
    type filter hook prerouting priority raw
    policy drop
    iif lo accept
    iif . ip saddr @members4 accept
    iif . ip6 saddr @members6 accept
  }
  chain input {
    type filter hook input priority filter
    policy drop
  }
  chain forward {
    type filter hook forward priority filter
    policy drop
    oif . ip daddr @members4 accept
    oif . ip6 daddr @members6 accept
  }
}
)";

struct Seat {
  uint32_t bits;
  std::string port() const {
    std::string name = "m";
    for (int shift = 28; shift >= 0; shift -= 4) name += "0123456789abcdef"[bits >> shift & 15];
    return name;
  }
  int port_index() const { return static_cast<int>(kPortIndexBase | (bits & kIndexMask)); }
  int member_index() const { return static_cast<int>(kMemberIndexBase | (bits & kIndexMask)); }
};

Seat SeatOf(const Member& member) {
  uint32_t bits = 0;
  for (size_t i = 12; i < 16; ++i) bits = bits << 8 | member.v4.bytes[i];
  return {bits};
}

// What MakeWorkspace has written on lo: "10.0.0.0/24 fd00::/64".
Result<WorkspaceSubnet> SubnetHere(NetlinkSocket& route) {
  ASSIGN_OR_RETURN(const std::vector<Link> links, ListLinks(route));
  const auto lo = std::ranges::find(links, kLoopback, &Link::index);
  const Error none = {.code = Code::kNotFound, .what = "this namespace is no network of ours"};
  if (lo == links.end()) return none;
  std::vector<Cidr> ranges;
  for (const std::string& text : Split(lo->alias, ' ')) {
    const auto parts = Split(text, '/');
    if (parts.size() != 2) return none;
    ASSIGN_OR_RETURN(const Address base, ParseAddress(parts[0]));
    ASSIGN_OR_RETURN(const uint64_t bits, ParseUint(parts[1], base.is_v4() ? 32 : 128));
    ranges.push_back({.base = base, .bits = static_cast<uint8_t>(bits + (base.is_v4() ? 96 : 0))});
  }
  if (ranges.size() != 2 || !IsV4(ranges[0])) return none;
  return WorkspaceSubnet{ranges[0], ranges[1]};
}

Cidr Host(const Address& address) { return {.base = address, .bits = 128}; }

NftBatch MemberBatch(const Seat& seat, const Member& member, bool add) {
  const auto index = static_cast<uint32_t>(seat.port_index());
  const std::string key(reinterpret_cast<const char*>(&index), sizeof index);
  NftBatch batch(kTable);
  const std::vector<NftElement> v4 = {{.key = key + WireBytes(member.v4)}},
                                v6 = {{.key = key + WireBytes(member.v6)}};
  if (add) {
    batch.AddElements(kMembersV4Set, v4);
    batch.AddElements(kMembersV6Set, v6);
  } else {
    batch.DeleteElements(kMembersV4Set, v4);
    batch.DeleteElements(kMembersV6Set, v6);
  }
  return batch;
}

// In the network's namespace.
Status AddPort(NetlinkSocket& route, const Seat& seat, const Member& member,
               const std::string& link, int sandbox) {
  const HardwareAddress hardware = {0x02,
                                    'n',
                                    static_cast<uint8_t>(seat.bits >> 24),
                                    static_cast<uint8_t>(seat.bits >> 16),
                                    static_cast<uint8_t>(seat.bits >> 8),
                                    static_cast<uint8_t>(seat.bits)};
  NetlinkRequest pair;
  AddVeth(pair,
          {.name = seat.port(),
           .index = seat.port_index(),
           .hardware = hardware,
           .state = LinkState::kUp,
           .arp = Arp::kNone},
          {.name = link, .index = seat.member_index(), .hardware = hardware, .arp = Arp::kNone},
          sandbox);
  RETURN_IF_ERROR(route.Run(std::move(pair), "make a pair of links"));
  NetlinkRequest routes;
  AddRoute(routes, {.to = Host(member.v4), .index = seat.port_index()});
  if (HasIpv6()) {
    AddAddress(routes, seat.port_index(), GatewayV6(), 128);
    AddRoute(routes, {.to = Host(member.v6), .index = seat.port_index()});
  }
  const Status routed = route.Run(std::move(routes), "route to a member");
  if (routed) return OkStatus();
  NetlinkRequest remove;
  DeleteLink(remove, seat.port_index());
  IgnoreError(route.Run(std::move(remove), "remove a pair"), "the first error is told");
  return routed.error();
}

// In the sandbox's namespace.
Status FurnishMember(const Seat& seat, const WorkspaceSubnet& subnet, const Member& member) {
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  const int index = seat.member_index();
  NetlinkRequest request;
  SetLinkState(request, index, LinkState::kUp);
  AddAddress(request, index, member.v4, 32);
  AddRoute(request, {.to = subnet.v4, .index = index});
  if (HasIpv6()) {
    AddAddress(request, index, member.v6, 128);
    AddRoute(request, {.to = subnet.v6, .index = index});
  }
  RETURN_IF_ERROR(route.Run(std::move(request), "give a member its addresses"));
  AwaitActive(route, index);
  if (HasIpv6()) AwaitOwn(route, member.v6);
  return OkStatus();
}

Status SpareIfCaught() {
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  Status spared = SpareOwnAddresses(filter, Spared::kOthers);
  if (!spared && spared.error().code == Code::kNotFound) return OkStatus();
  return spared;
}

Status AddMember(NetlinkSocket& filter, const Seat& seat, const Member& member) {
  const char* what = "let a member through";
  const Status added = filter.Run(MemberBatch(seat, member, true).Take(), what);
  if (added || added.error().code != Code::kExists) return added;
  // Of a link that is gone: its name and index were free a moment ago.
  RETURN_IF_ERROR(filter.Run(MemberBatch(seat, member, false).Take(), what));
  return filter.Run(MemberBatch(seat, member, true).Take(), what);
}

}  // namespace

Result<UniqueFd> MakeWorkspace(const WorkspaceSubnet& subnet) {
  ASSIGN_OR_RETURN(UniqueFd netns, MakeNetns());
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns.get()));
  // Closed before it routes.
  RETURN_IF_ERROR(RunNft(kRules, "the table of a network cannot be made"));
  RETURN_IF_ERROR(WriteExisting("/proc/sys/net/ipv4/ip_forward", "1"));
  if (HasIpv6()) RETURN_IF_ERROR(WriteExisting("/proc/sys/net/ipv6/conf/all/forwarding", "1"));
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  NetlinkRequest request;
  SetAlias(request, kLoopback, subnet.v4.ToString() + " " + subnet.v6.ToString());
  RETURN_IF_ERROR(route.Run(std::move(request), "name a network's namespace"));
  return netns;
}

Status JoinWorkspace(int workspace, int sandbox, const std::string& link, const Member& member) {
  const Seat seat = SeatOf(member);
  ASSIGN_OR_RETURN(const UniqueFd inside, NetnsOf(sandbox));
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(workspace));
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  ASSIGN_OR_RETURN(const WorkspaceSubnet subnet, SubnetHere(route));
  if (!subnet.v4.Contains(member.v4) || !subnet.v6.Contains(member.v6))
    return Error{.code = Code::kInvalidArgument, .what = "an address outside the network's subnet"};
  RETURN_IF_ERROR(AddPort(route, seat, member, link, inside.get()));
  const auto finish = [&]() -> Status {
    RETURN_IF_ERROR(AddMember(filter, seat, member));
    {
      ASSIGN_OR_RETURN(const NetnsVisit deeper, NetnsVisit::Enter(inside.get()));
      RETURN_IF_ERROR(FurnishMember(seat, subnet, member));
      RETURN_IF_ERROR(SpareIfCaught());
    }
    AwaitActive(route, seat.port_index());
    return OkStatus();
  };
  Status finished = finish();
  if (finished) return finished;
  NetlinkRequest remove;
  DeleteLink(remove, seat.port_index());
  IgnoreError(route.Run(std::move(remove), "remove a pair"), "the first error is told");
  IgnoreError(filter.Run(MemberBatch(seat, member, false).Take(), "forget a member"),
              "without its link it means nothing");
  return finished;
}

Status LeaveWorkspace(int sandbox, const std::string& link) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(sandbox));
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  const auto index = FindLink(route, link);
  if (!index && index.error().code == Code::kNotFound) return OkStatus();
  RETURN_IF_ERROR(index);
  NetlinkRequest request;
  DeleteLink(request, *index);
  const Status removed = route.Run(std::move(request), "leave a network");
  if (!removed && removed.error().code != Code::kNotFound) return removed.error();
  return SpareIfCaught();
}

}  // namespace hutch::network
