#include "network/links.h"

#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "network/netns_visit.h"

namespace hutch::network {
namespace {

constexpr int kActiveTries = 100, kActivePauseUs = 200;

ifinfomsg Header(const LinkEnd& end) {
  ifinfomsg header = {};
  header.ifi_index = end.index;
  unsigned flags = 0;
  if (end.state == LinkState::kUp) flags |= IFF_UP;
  if (end.arp == Arp::kNone) flags |= IFF_NOARP;
  header.ifi_flags = flags;
  header.ifi_change = flags;
  return header;
}

void PutEnd(NetlinkRequest& request, const LinkEnd& end) {
  request.Text(IFLA_IFNAME, end.name);
  if (end.hardware != HardwareAddress{})
    request.Bytes(IFLA_ADDRESS,
                  {reinterpret_cast<const char*>(end.hardware.data()), end.hardware.size()});
  // The kernel's default is a queue for each possible processor.
  request.U32(IFLA_NUM_TX_QUEUES, 1);
  request.U32(IFLA_NUM_RX_QUEUES, 1);
}

void PutAddress(NetlinkRequest& request, uint16_t type, const Address& address) {
  request.Bytes(type, WireBytes(address));
}

void ChangeLink(NetlinkRequest& request, int index, unsigned flags, unsigned change) {
  request.Begin(RTM_NEWLINK, NLM_F_ACK);
  ifinfomsg header = {};
  header.ifi_index = index;
  header.ifi_flags = flags;
  header.ifi_change = change;
  request.Header(header);
}

void PutAddressMessage(NetlinkRequest& request, uint16_t message, uint16_t flags, int index,
                       const Address& address, uint8_t bits) {
  request.Begin(message, static_cast<uint16_t>(flags | NLM_F_ACK));
  ifaddrmsg header = {};
  header.ifa_family = address.is_v4() ? AF_INET : AF_INET6;
  header.ifa_prefixlen = bits;
  header.ifa_index = static_cast<uint32_t>(index);
  header.ifa_flags = IFA_F_NODAD;
  request.Header(header);
  PutAddress(request, IFA_LOCAL, address);
  PutAddress(request, IFA_ADDRESS, address);
}

void PutRouteMessage(NetlinkRequest& request, uint16_t message, uint16_t flags,
                     const Route& route) {
  const bool v4 = IsV4(route.to);
  request.Begin(message, static_cast<uint16_t>(flags | NLM_F_ACK));
  rtmsg header = {};
  header.rtm_family = v4 ? AF_INET : AF_INET6;
  header.rtm_dst_len = static_cast<uint8_t>(v4 ? route.to.bits - 96 : route.to.bits);
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = route.via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
  header.rtm_type = RTN_UNICAST;
  if (route.via) header.rtm_flags = RTNH_F_ONLINK;
  request.Header(header);
  if (header.rtm_dst_len != 0) PutAddress(request, RTA_DST, route.to.base);
  request.U32(RTA_OIF, static_cast<uint32_t>(route.index));
  if (route.via) PutAddress(request, RTA_GATEWAY, *route.via);
}

}  // namespace

bool IsV4(const Cidr& cidr) { return cidr.base.is_v4() && cidr.bits >= 96; }

std::string WireBytes(const Address& address) {
  const size_t skip = address.is_v4() ? 12 : 0;
  return {reinterpret_cast<const char*>(address.bytes.data()) + skip, 16 - skip};
}

void AddVeth(NetlinkRequest& request, const LinkEnd& end, const LinkEnd& peer, int peer_netns) {
  request.Begin(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, "CONFIG_VETH");
  request.Header(Header(end));
  PutEnd(request, end);
  request.Nest(IFLA_LINKINFO);
  request.Text(IFLA_INFO_KIND, "veth");
  request.Nest(IFLA_INFO_DATA);
  request.Nest(VETH_INFO_PEER);
  request.Header(Header(peer));
  PutEnd(request, peer);
  request.U32(IFLA_NET_NS_FD, static_cast<uint32_t>(peer_netns));
  request.EndNest();
  request.EndNest();
  request.EndNest();
}

void DeleteLink(NetlinkRequest& request, int index) {
  request.Begin(RTM_DELLINK, NLM_F_ACK);
  ifinfomsg header = {};
  header.ifi_index = index;
  request.Header(header);
}

void SetLinkState(NetlinkRequest& request, int index, LinkState state) {
  ChangeLink(request, index, state == LinkState::kUp ? unsigned{IFF_UP} : 0u, IFF_UP);
}

void SetAlias(NetlinkRequest& request, int index, const std::string& alias) {
  ChangeLink(request, index, 0, 0);
  request.Bytes(IFLA_IFALIAS, alias);
}

void SetGroup(NetlinkRequest& request, int index, uint32_t group) {
  ChangeLink(request, index, 0, 0);
  request.U32(IFLA_GROUP, group);
}

void DeleteGroup(NetlinkRequest& request, uint32_t group) {
  request.Begin(RTM_DELLINK, NLM_F_ACK);
  request.Header(ifinfomsg{});
  request.U32(IFLA_GROUP, group);
}

void AddAddress(NetlinkRequest& request, int index, const Address& address, uint8_t bits) {
  PutAddressMessage(request, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, index, address, bits);
}

void DeleteAddress(NetlinkRequest& request, int index, const Address& address, uint8_t bits) {
  PutAddressMessage(request, RTM_DELADDR, 0, index, address, bits);
}

void AddRoute(NetlinkRequest& request, const Route& route) {
  PutRouteMessage(request, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route);
}

void DeleteRoute(NetlinkRequest& request, const Route& route) {
  PutRouteMessage(request, RTM_DELROUTE, 0, route);
}

Result<std::vector<Link>> ListLinks(NetlinkSocket& route) {
  NetlinkRequest request;
  request.Begin(RTM_GETLINK, NLM_F_DUMP);
  request.Header(ifinfomsg{});
  std::vector<Link> links;
  RETURN_IF_ERROR(route.Ask(
      std::move(request), "list links", [&links](const nlmsghdr& header, std::string_view body) {
        const auto info = HeaderOf<ifinfomsg>(body);
        if (header.nlmsg_type != RTM_NEWLINK || !info) return;
        const NetlinkAttributes attributes(body.substr(sizeof *info));
        links.push_back(
            {info->ifi_index, attributes.FindText(IFLA_IFNAME), attributes.FindText(IFLA_IFALIAS)});
      }));
  return links;
}

Result<int> FindLink(NetlinkSocket& route, const std::string& name) {
  NetlinkRequest request;
  request.Begin(RTM_GETLINK, NLM_F_ACK);
  request.Header(ifinfomsg{});
  request.Text(IFLA_IFNAME, name);
  int index = 0;
  RETURN_IF_ERROR(route.Ask(std::move(request), "find a link",
                            [&index](const nlmsghdr& header, std::string_view body) {
                              const auto info = HeaderOf<ifinfomsg>(body);
                              if (header.nlmsg_type == RTM_NEWLINK && info) index = info->ifi_index;
                            }));
  return index;
}

void AwaitActive(NetlinkSocket& route, int index) {
  for (int tries = 0; tries < kActiveTries; ++tries) {
    NetlinkRequest request;
    request.Begin(RTM_GETLINK, NLM_F_ACK);
    ifinfomsg header = {};
    header.ifi_index = index;
    request.Header(header);
    std::string queue;
    const Status asked = route.Ask(
        std::move(request), "look at a link", [&queue](const nlmsghdr&, std::string_view body) {
          if (body.size() < sizeof(ifinfomsg)) return;
          queue = NetlinkAttributes(body.substr(sizeof(ifinfomsg))).FindText(IFLA_QDISC);
        });
    if (!asked || queue != "noop") return;
    ::usleep(kActivePauseUs);
  }
}

void AwaitOwn(NetlinkSocket& route, const Address& address) {
  const std::string bytes = WireBytes(address);
  for (int tries = 0; tries < kActiveTries; ++tries) {
    NetlinkRequest request;
    request.Begin(RTM_GETROUTE, NLM_F_ACK);
    rtmsg header = {};
    header.rtm_family = AF_INET6;
    header.rtm_dst_len = static_cast<uint8_t>(bytes.size() * 8);
    request.Header(header);
    request.Bytes(RTA_DST, bytes);
    bool own = false;
    const Status asked = route.Ask(std::move(request), "look for an address",
                                   [&own](const nlmsghdr&, std::string_view body) {
                                     const auto found = HeaderOf<rtmsg>(body);
                                     if (found) own = found->rtm_type == RTN_LOCAL;
                                   });
    if (own) return;
    IgnoreError(asked, "no route to it yet");
    ::usleep(kActivePauseUs);
  }
}

Result<UniqueFd> NetnsOf(int target) {
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(target));
  return Open("/proc/thread-self/ns/net", O_RDONLY);
}

}  // namespace hutch::network
