// network/inside.h, OpenCatch and what belongs to it. In nft(8)'s language, and as docs/network.md
// has it:
//
//   table inet hutch_catch {
//     counter refused { }
//     set own4 { type ipv4_addr; }   # addresses of joined networks
//     set own6 { type ipv6_addr; }
//     chain track  { type filter hook output priority raw;    … }
//     chain divert { type nat    hook output priority dstnat; … }
//     chain judge  { type filter hook output priority filter; … }
//   }
#include <linux/if_addr.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include "network/catch_addresses.h"
#include "network/inside.h"
#include "network/kernel_limits.h"
#include "network/netns.h"
#include "network/netns_visit.h"
#include "network/nft_writer.h"

namespace hutch::network {
namespace {

using namespace std::string_view_literals;

constexpr char kRefused[] = "refused";
constexpr uint32_t kLoopback = 1;  // the index of lo in every network namespace
constexpr uint32_t kIpv4Destination = 16, kIpv6Destination = 24;  // offsets in the headers
constexpr std::string_view kLoopbackV6 = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1"sv;

template <class T>
std::string_view AsBytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string PortBytes(uint16_t port) {
  return {static_cast<char>(port >> 8), static_cast<char>(port & 0xff)};
}

void MatchLoopbackDevice(NftBatch& batch, uint32_t operation) {
  batch.Meta(NFT_META_OIF);
  batch.Compare(operation, AsBytes(kLoopback));
}

void MatchFamily(NftBatch& batch, uint8_t family) {
  batch.Meta(NFT_META_NFPROTO);
  batch.Compare(NFT_CMP_EQ, AsBytes(family));
}

void MatchProtocol(NftBatch& batch, uint8_t protocol, uint32_t operation = NFT_CMP_EQ) {
  batch.Meta(NFT_META_L4PROTO);
  batch.Compare(operation, AsBytes(protocol));
}

void MatchPort(NftBatch& batch, uint32_t offset, uint16_t port, uint32_t operation) {
  batch.Payload(NFT_PAYLOAD_TRANSPORT_HEADER, offset, 2);
  batch.Compare(operation, PortBytes(port));
}

// ip daddr 127.0.0.0/8, or ip6 daddr ::1
void MatchLoopback(NftBatch& batch, Family family) {
  if (family == Family::kV4) {
    MatchFamily(batch, NFPROTO_IPV4);
    batch.Payload(NFT_PAYLOAD_NETWORK_HEADER, kIpv4Destination, 1);
    batch.Compare(NFT_CMP_EQ, "\x7f"sv);
  } else {
    MatchFamily(batch, NFPROTO_IPV6);
    batch.Payload(NFT_PAYLOAD_NETWORK_HEADER, kIpv6Destination, 16);
    batch.Compare(NFT_CMP_EQ, kLoopbackV6);
  }
}

void MatchOwn(NftBatch& batch, Family family) {
  const bool v4 = family == Family::kV4;
  MatchFamily(batch, v4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
  batch.Payload(NFT_PAYLOAD_NETWORK_HEADER, v4 ? kIpv4Destination : kIpv6Destination, v4 ? 4 : 16);
  batch.Lookup(v4 ? kOwnV4Set : kOwnV6Set);
}

constexpr Family kFamilies[] = {Family::kV4, Family::kV6};

// Connections between programs inside need no tracking: they cost what they did without the catch,
// and cannot fill anything. Answers of the catch and of DNS come from loopback as well and do need
// it, and so do errors about them.
void AddTrack(NftBatch& batch) {
  batch.AddChain("track", {"filter", NF_INET_LOCAL_OUT, -300, "CONFIG_NF_TABLES_INET"});
  for (const Family family : kFamilies) {
    batch.BeginRule("track", "CONFIG_NFT_CT");
    MatchLoopbackDevice(batch, NFT_CMP_EQ);
    MatchLoopback(batch, family);
    MatchProtocol(batch, IPPROTO_ICMP, NFT_CMP_NEQ);
    MatchProtocol(batch, IPPROTO_ICMPV6, NFT_CMP_NEQ);
    MatchPort(batch, 0, kDnsPort, NFT_CMP_NEQ);
    MatchPort(batch, 0, kCatchPort, NFT_CMP_NEQ);
    batch.NoTrack();
    batch.EndRule();
  }
}

void AddDivert(NftBatch& batch) {
  batch.AddChain("divert", {"nat", NF_INET_LOCAL_OUT, -100, "CONFIG_NFT_NAT"});
  batch.BeginRule("divert");
  MatchLoopbackDevice(batch, NFT_CMP_NEQ);
  batch.Verdict(NFT_RETURN);
  batch.EndRule();
  for (const Family family : kFamilies) {
    batch.BeginRule("divert");
    MatchLoopback(batch, family);
    batch.Verdict(NFT_RETURN);
    batch.EndRule();
    batch.BeginRule("divert");
    MatchOwn(batch, family);
    batch.Verdict(NFT_RETURN);
    batch.EndRule();
  }
  for (const uint8_t protocol : {uint8_t{IPPROTO_UDP}, uint8_t{IPPROTO_TCP}}) {
    batch.BeginRule("divert", "CONFIG_NFT_REDIR");
    MatchProtocol(batch, protocol);
    MatchPort(batch, 2, kDnsPort, NFT_CMP_EQ);
    batch.Redirect(kDnsPort);
    batch.EndRule();
  }
  batch.BeginRule("divert", "CONFIG_NFT_REDIR");
  MatchProtocol(batch, IPPROTO_TCP);
  batch.Redirect(kCatchPort);
  batch.EndRule();
}

void Refuse(NftBatch& batch) {
  batch.CounterObject(kRefused);
  batch.RejectAdmin();
  batch.EndRule();
}

// Behind the redirect: what still goes elsewhere was not caught.
void AddJudge(NftBatch& batch) {
  batch.AddChain("judge", {"filter", NF_INET_LOCAL_OUT, 0, "CONFIG_NF_TABLES_INET"});
  batch.BeginRule("judge");
  MatchLoopbackDevice(batch, NFT_CMP_NEQ);
  batch.Verdict(NF_ACCEPT);
  batch.EndRule();
  batch.BeginRule("judge", "CONFIG_NFT_CT, CONFIG_NFT_CONNLIMIT and CONFIG_NFT_REJECT");
  const uint32_t fresh = 1u << (IP_CT_NEW + 1);  // NF_CT_STATE_BIT
  batch.Ct(NFT_CT_STATE);
  batch.Mask(AsBytes(fresh));
  const uint32_t none = 0;
  batch.Compare(NFT_CMP_NEQ, AsBytes(none));
  batch.CountOver(kMaxCaughtConnections);
  Refuse(batch);
  for (const Family family : kFamilies) {
    batch.BeginRule("judge");
    MatchLoopback(batch, family);
    batch.Verdict(NF_ACCEPT);
    batch.EndRule();
    batch.BeginRule("judge");
    MatchOwn(batch, family);
    batch.Verdict(NF_ACCEPT);
    batch.EndRule();
  }
  batch.BeginRule("judge", "CONFIG_NFT_REJECT");
  Refuse(batch);
}

// The same for all, so it is written once.
const NetlinkRequest& CatchTable() {
  static const NetlinkRequest request = [] {
    NftBatch batch(kCatchTable);
    batch.AddTable(NftBatch::Existing::kRefuse);
    batch.AddCounter(kRefused);
    batch.AddSet(kOwnV4Set, kNftIpv4Address, 4);
    batch.AddSet(kOwnV6Set, kNftIpv6Address, 16);
    AddTrack(batch);
    AddDivert(batch);
    AddJudge(batch);
    return batch.Take();
  }();
  return request;
}

Result<UniqueFd> MakeAnchor() {
  ASSIGN_OR_RETURN(UniqueFd netns, MakeNetns());
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(netns.get()));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  RETURN_IF_ERROR(filter.Run(CatchTable(), "set up the catch"));
  return netns;
}

// IPv4: an ordinary route, so that the source is 127.0.0.1 and the kernel's ICMP errors find their
// way back; what the table let through would be dropped as martian. IPv6 refuses ordinary routes
// through lo. The main table and not "local", which comes before the routes of joined networks.
NetlinkRequest RouteRequest(uint16_t message, uint16_t flags, Family family) {
  const bool v4 = family == Family::kV4;
  NetlinkRequest request;
  request.Begin(message, static_cast<uint16_t>(flags | NLM_F_ACK), v4 ? "CONFIG_INET" : "");
  rtmsg header = {};
  header.rtm_family = v4 ? AF_INET : AF_INET6;
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = v4 ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  header.rtm_type = v4 ? RTN_UNICAST : RTN_LOCAL;
  request.Header(header);
  request.U32(RTA_OIF, kLoopback);
  if (v4)
    request.Bytes(RTA_PREFSRC, "\x7f\0\0\1"sv);
  else
    request.U32(RTA_PRIORITY, 1);  // better than any default route
  return request;
}

Status AddRoutes() {
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  for (const Family family : kFamilies) {
    const Status added = route.Run(RouteRequest(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, family),
                                   "route to the catch");
    // Without IPv6 there is nothing to catch.
    const bool absent = family == Family::kV6 && !HasIpv6();
    if (!added && !absent) return added.error();
  }
  return OkStatus();
}

Status RemoveRoutes() {
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  for (const Family family : kFamilies) {
    const Status removed =
        route.Run(RouteRequest(RTM_DELROUTE, 0, family), "remove the route to the catch");
    if (removed || removed.error().code == Code::kNotFound) continue;
    if (family == Family::kV6 && !HasIpv6()) continue;
    return removed.error();
  }
  return OkStatus();
}

// Whole or not at all: it is one transaction.
Status AddTable(NetlinkSocket& filter) {
  if (ReadCounter(filter, kCatchTable, kRefused)) return OkStatus();
  RETURN_IF_ERROR(filter.Run(CatchTable(), "set up the catch"));
  return SpareOwnAddresses(filter, Spared::kNothing);
}

}  // namespace

void KeepHooks() {
  static const Result<UniqueFd> anchor = MakeAnchor();
  IgnoreError(anchor, "who opens a catch will meet the error");
}

Status PrepareCatch(int target) {
  KeepHooks();
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  return AddTable(filter);
}

Status OpenCatch(int target) {
  KeepHooks();
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  // The table first: with routes alone, connections to anywhere could reach servers inside.
  RETURN_IF_ERROR(AddTable(filter));
  if (Status added = AddRoutes(); !added) {
    IgnoreError(RemoveRoutes(), "the first error is told");
    return added.error();
  }
  return OkStatus();
}

Status CloseCatch(int target) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  // The table stays, with its counter: without the routes nothing comes to it but loopback, and
  // closing a netlink socket after a table was removed waits for the kernel's RCU, some 15 ms.
  return RemoveRoutes();
}

Result<CatchCounters> ReadCatch(int target) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  ASSIGN_OR_RETURN(NetlinkSocket filter, NetlinkSocket::Open(NETLINK_NETFILTER));
  ASSIGN_OR_RETURN(const NftCounter counter, ReadCounter(filter, kCatchTable, kRefused));
  return CatchCounters{counter.packets};
}

}  // namespace hutch::network
