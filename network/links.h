// Links, addresses, routes and queues as rtnetlink(7) messages. Each function appends one to a
// request, which NetlinkSocket::Run sends in the namespace that its socket is of.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/netlink.h"
#include "network/policy.h"

namespace hutch::network {

using HardwareAddress = std::array<uint8_t, 6>;

enum class Arp { kUsed, kNone };
enum class LinkState { kDown, kUp };
struct LinkEnd {
  std::string name;
  int index = 0;  // 0: the kernel chooses
  HardwareAddress hardware = {};
  LinkState state = LinkState::kDown;
  Arp arp = Arp::kUsed;
};
// `peer` is made in `peer_netns` (a descriptor of a namespace, no pidfd), never in this one.
void AddVeth(NetlinkRequest& request, const LinkEnd& end, const LinkEnd& peer, int peer_netns);
void DeleteLink(NetlinkRequest& request, int index);
void SetLinkState(NetlinkRequest& request, int index, LinkState state);
void SetAlias(NetlinkRequest& request, int index, const std::string& alias);
void SetGroup(NetlinkRequest& request, int index, uint32_t group);
void DeleteGroup(NetlinkRequest& request, uint32_t group);  // all links of it, in one sweep

void AddAddress(NetlinkRequest& request, int index, const Address& address, uint8_t bits);
void DeleteAddress(NetlinkRequest& request, int index, const Address& address, uint8_t bits);

struct Route {
  Cidr to;
  int index = 0;                    // of the link
  std::optional<Address> via = {};  // on the link, whatever the addresses say
};
void AddRoute(NetlinkRequest& request, const Route& route);
void DeleteRoute(NetlinkRequest& request, const Route& route);

struct Link {
  int index = 0;
  std::string name, alias;
};
Result<std::vector<Link>> ListLinks(NetlinkSocket& route);
// kNotFound.
Result<int> FindLink(NetlinkSocket& route, const std::string& name);

// A link that was just given its other end drops what is sent until the kernel has looked at it
// once more; newer kernels do that when they are asked. Waits for it, though not for ever: what is
// lost then is a packet, which is sent again.
void AwaitActive(NetlinkSocket& route, int index);
// An IPv6 address is the namespace's own only when the kernel's queue has come to it: what arrives
// before is dropped. Waits for it likewise.
void AwaitOwn(NetlinkSocket& route, const Address& address);

// A descriptor of the namespace itself, for what takes no pidfd.
Result<UniqueFd> NetnsOf(int target);

bool IsV4(const Cidr& cidr);
// Its bytes in a packet: 4 or 16.
std::string WireBytes(const Address& address);

}  // namespace hutch::network
