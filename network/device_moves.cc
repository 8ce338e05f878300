#include "network/device_moves.h"

#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/file.h"
#include "network/links.h"
#include "network/netns_visit.h"

namespace hutch::network {
namespace {

// What may be asked for; the others say how the kernel stands with an address.
constexpr uint32_t kAskedFlags =
    IFA_F_NODAD | IFA_F_HOMEADDRESS | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN;

std::optional<uint32_t> FindU32(const NetlinkAttributes& attributes, uint16_t type) {
  const std::string_view value = attributes.Find(type);
  uint32_t number;
  if (value.size() != sizeof number) return std::nullopt;
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

Result<std::set<int>> IndexesOf(NetlinkSocket& socket) {
  ASSIGN_OR_RETURN(const std::vector<Link> links, ListLinks(socket));
  std::set<int> indexes;
  for (const Link& link : links) indexes.insert(link.index);
  return indexes;
}

Result<MovedDevice> LookAt(NetlinkSocket& socket, const std::string& name) {
  NetlinkRequest request;
  request.Begin(RTM_GETLINK, NLM_F_ACK);
  request.Header(ifinfomsg{});
  request.Text(IFLA_IFNAME, name);
  MovedDevice device;
  RETURN_IF_ERROR(socket.Ask(std::move(request), "find the device",
                             [&device](const nlmsghdr& header, std::string_view body) {
                               const auto info = HeaderOf<ifinfomsg>(body);
                               if (header.nlmsg_type != RTM_NEWLINK || !info) return;
                               const NetlinkAttributes attributes(body.substr(sizeof *info));
                               device.index = info->ifi_index;
                               device.up = (info->ifi_flags & IFF_UP) != 0;
                               device.name = attributes.FindText(IFLA_IFNAME);
                               device.master = FindU32(attributes, IFLA_MASTER).value_or(0);
                             }));
  return device;
}

Status ReadAddresses(NetlinkSocket& socket, MovedDevice* device) {
  NetlinkRequest request;
  request.Begin(RTM_GETADDR, NLM_F_DUMP);
  request.Header(ifaddrmsg{});
  return socket.Ask(std::move(request), "list its addresses",
                    [device](const nlmsghdr& header, std::string_view body) {
                      const auto info = HeaderOf<ifaddrmsg>(body);
                      if (header.nlmsg_type != RTM_NEWADDR || !info) return;
                      if (info->ifa_index == static_cast<uint32_t>(device->index))
                        device->addresses.emplace_back(body);
                    });
}

// Those which the kernel does not make itself, of the addresses or of what routers tell.
Status ReadRoutes(NetlinkSocket& socket, MovedDevice* device) {
  NetlinkRequest request;
  request.Begin(RTM_GETROUTE, NLM_F_DUMP);
  request.Header(rtmsg{});
  RETURN_IF_ERROR(socket.Ask(std::move(request), "list its routes",
                             [device](const nlmsghdr& header, std::string_view body) {
                               const auto info = HeaderOf<rtmsg>(body);
                               if (header.nlmsg_type != RTM_NEWROUTE || !info) return;
                               const bool made_anyway = info->rtm_protocol == RTPROT_KERNEL ||
                                                        info->rtm_protocol == RTPROT_RA ||
                                                        info->rtm_protocol == RTPROT_REDIRECT;
                               if (made_anyway || (info->rtm_flags & RTM_F_CLONED) != 0) return;
                               const auto oif =
                                   FindU32(NetlinkAttributes(body.substr(sizeof *info)), RTA_OIF);
                               if (oif == static_cast<uint32_t>(device->index))
                                 device->routes.emplace_back(body);
                             }));
  // A gateway must be reachable when its route is added.
  std::stable_partition(device->routes.begin(), device->routes.end(), [](const std::string& route) {
    const auto attributes = NetlinkAttributes(std::string_view(route).substr(sizeof(rtmsg)));
    return attributes.Find(RTA_GATEWAY).empty() && attributes.Find(RTA_VIA).empty();
  });
  return OkStatus();
}

uint32_t FlagsOf(const std::string& address) {
  const auto info = HeaderOf<ifaddrmsg>(address);
  const auto more =
      FindU32(NetlinkAttributes(std::string_view(address).substr(sizeof *info)), IFA_FLAGS);
  return more.value_or(info->ifa_flags);
}

bool IsPermanentAndGlobal(const std::string& address) {
  return (FlagsOf(address) & IFA_F_PERMANENT) != 0 &&
         HeaderOf<ifaddrmsg>(address)->ifa_scope == RT_SCOPE_UNIVERSE;
}

// Of IPv6, where the kernel makes them; the same bit means another thing to IPv4.
bool IsTemporary(const std::string& address) {
  return (FlagsOf(address) & IFA_F_TEMPORARY) != 0 &&
         HeaderOf<ifaddrmsg>(address)->ifa_family == AF_INET6;
}

enum class Label { kKeep, kDrop };  // of IPv4: it begins with the name of the link

void AddAddressAnew(NetlinkRequest& request, const std::string& address, int index, Label label) {
  request.Begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  ifaddrmsg info = *HeaderOf<ifaddrmsg>(address);
  const uint32_t flags = FlagsOf(address) & kAskedFlags;
  info.ifa_index = static_cast<uint32_t>(index);
  info.ifa_flags = static_cast<uint8_t>(flags);
  request.Header(info);
  NetlinkAttributes(std::string_view(address).substr(sizeof info))
      .ForEach([&](uint16_t type, std::string_view value) {
        if (type == IFA_FLAGS || (type == IFA_LABEL && label == Label::kDrop)) return;
        request.Bytes(type, value);
      });
  request.U32(IFA_FLAGS, flags);
}

void AddRouteAnew(NetlinkRequest& request, const std::string& route) {
  request.Begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  rtmsg info = *HeaderOf<rtmsg>(route);
  info.rtm_flags &= RTNH_F_ONLINK;
  request.Header(info);
  NetlinkAttributes(std::string_view(route).substr(sizeof info))
      .ForEach([&](uint16_t type, std::string_view value) {
        if (type != RTA_CACHEINFO) request.Bytes(type, value);
      });
}

bool IsTemplate(const std::string& name) { return name.find("%d") != std::string::npos; }

// The namespace, the name and the number of a link in one message.
Status SendTo(NetlinkSocket& from, int index, int netns, const std::string& name, int new_index) {
  NetlinkRequest request;
  request.Begin(RTM_NEWLINK, NLM_F_ACK);
  ifinfomsg header = {};
  header.ifi_index = index;
  request.Header(header);
  request.U32(IFLA_NET_NS_FD, static_cast<uint32_t>(netns));
  request.Text(IFLA_IFNAME, name);
  request.U32(IFLA_NEW_IFINDEX, static_cast<uint32_t>(new_index));
  return from.Run(std::move(request), "move the device");
}

}  // namespace

DeviceMoves::DeviceMoves(NetlinkSocket here, NetlinkSocket there, UniqueFd own, UniqueFd other)
    : here_(std::move(here)),
      there_(std::move(there)),
      own_(std::move(own)),
      other_(std::move(other)) {}

Result<DeviceMoves> DeviceMoves::Open(int target) {
  ASSIGN_OR_RETURN(UniqueFd own, hutch::Open("/proc/thread-self/ns/net", O_RDONLY));
  ASSIGN_OR_RETURN(NetlinkSocket here, NetlinkSocket::Open(NETLINK_ROUTE));
  ASSIGN_OR_RETURN(UniqueFd other, NetnsOf(target));
  struct stat a, b;
  if (::fstat(own.get(), &a) != 0 || ::fstat(other.get(), &b) != 0)
    return SysError(errno, "stat a network namespace");
  if (a.st_dev == b.st_dev && a.st_ino == b.st_ino)
    return Error{.code = Code::kInvalidArgument, .what = "the network namespace is the host's own"};
  ASSIGN_OR_RETURN(const NetnsVisit visit, NetnsVisit::Enter(other.get()));
  ASSIGN_OR_RETURN(NetlinkSocket there, NetlinkSocket::Open(NETLINK_ROUTE));
  return DeviceMoves(std::move(here), std::move(there), std::move(own), std::move(other));
}

Status DeviceMoves::Move(const std::string& host_name, const std::string& name) {
  ASSIGN_OR_RETURN(MovedDevice device, LookAt(here_, host_name));
  RETURN_IF_ERROR(ReadAddresses(here_, &device));
  RETURN_IF_ERROR(ReadRoutes(here_, &device));
  const std::string& wanted = name.empty() ? device.name : name;
  if (!IsTemplate(wanted)) {
    const Result<MovedDevice> there = LookAt(there_, wanted);
    if (there)
      return Error{.code = Code::kExists,
                   .what = "there is a device \"" + wanted + "\" in the container already"};
    if (there.error().code != Code::kNotFound) return there.error();
  }
  ASSIGN_OR_RETURN(const std::set<int> taken, IndexesOf(there_));
  device.index_inside = taken.contains(device.index) ? *taken.rbegin() + 1 : device.index;
  moved_.push_back(device);  // before: the kernel may move it and then fail to rename it
  RETURN_IF_ERROR(SendTo(here_, device.index, other_.get(), wanted, device.index_inside));
  NetlinkRequest request;
  for (const std::string& address : device.addresses)
    if (IsPermanentAndGlobal(address))
      AddAddressAnew(request, address, device.index_inside, Label::kDrop);
  SetLinkState(request, device.index_inside, LinkState::kUp);
  return there_.Run(std::move(request), "set up the device in the container");
}

Status DeviceMoves::GiveBackOne(const MovedDevice& device) {
  ASSIGN_OR_RETURN(const std::set<int> inside, IndexesOf(there_));
  if (!inside.contains(device.index_inside)) return OkStatus();
  const Result<MovedDevice> here = LookAt(here_, device.name);
  if (here && here->index == device.index) return OkStatus();  // never left: that one is another's
  RETURN_IF_ERROR(SendTo(there_, device.index_inside, own_.get(), device.name, device.index));
  NetlinkRequest request;
  for (const std::string& address : device.addresses)
    if (!IsTemporary(address)) AddAddressAnew(request, address, device.index, Label::kKeep);
  if (device.master != 0) {
    request.Begin(RTM_NEWLINK, NLM_F_ACK);
    ifinfomsg header = {};
    header.ifi_index = device.index;
    request.Header(header);
    request.U32(IFLA_MASTER, device.master);
  }
  if (device.up) {
    SetLinkState(request, device.index, LinkState::kUp);
    for (const std::string& route : device.routes) AddRouteAnew(request, route);
  }
  if (request.messages() == 0) return OkStatus();
  return here_.Run(std::move(request), "set up the device on the host");
}

Status DeviceMoves::GiveBack() {
  Status first = OkStatus();
  for (; !moved_.empty(); moved_.pop_back()) {
    Status done = GiveBackOne(moved_.back());
    if (done || !first) continue;
    Error error = std::move(done).error();
    error.what = moved_.back().name + ": " + error.what;
    first = std::move(error);
  }
  return first;
}

}  // namespace hutch::network
