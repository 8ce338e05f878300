#include "network/catch_addresses.h"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "network/nft_writer.h"

namespace hutch::network {
namespace {

constexpr int kLoopback = 1;  // the index of lo in every network namespace

struct OwnAddresses {
  std::vector<NftElement> v4, v6;
};

Result<OwnAddresses> ListOwn() {
  ASSIGN_OR_RETURN(NetlinkSocket route, NetlinkSocket::Open(NETLINK_ROUTE));
  OwnAddresses own;
  NetlinkRequest request;
  request.Begin(RTM_GETADDR, NLM_F_DUMP);
  request.Header(ifaddrmsg{});
  RETURN_IF_ERROR(route.Ask(std::move(request), "list addresses",
                            [&own](const nlmsghdr& header, std::string_view body) {
                              ifaddrmsg info;
                              if (header.nlmsg_type != RTM_NEWADDR || body.size() < sizeof info)
                                return;
                              std::memcpy(&info, body.data(), sizeof info);
                              if (info.ifa_index == kLoopback) return;
                              const NetlinkAttributes attributes(body.substr(sizeof info));
                              if (info.ifa_family == AF_INET)
                                own.v4.push_back({std::string(attributes.Find(IFA_LOCAL))});
                              if (info.ifa_family == AF_INET6)
                                own.v6.push_back({std::string(attributes.Find(IFA_ADDRESS))});
                            }));
  return own;
}

}  // namespace

bool HasIpv6() {
  static const bool has = UniqueFd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)).valid();
  return has;
}

Status SpareOwnAddresses(NetlinkSocket& filter, Spared spared) {
  ASSIGN_OR_RETURN(const OwnAddresses own, ListOwn());
  if (spared == Spared::kNothing && own.v4.empty() && own.v6.empty()) return OkStatus();
  NftBatch batch(kCatchTable);
  if (spared == Spared::kOthers) {
    batch.FlushSet(kOwnV4Set);
    batch.FlushSet(kOwnV6Set);
  }
  batch.AddElements(kOwnV4Set, own.v4);
  batch.AddElements(kOwnV6Set, own.v6);
  return filter.Run(batch.Take(), "spare a sandbox's own addresses");
}

}  // namespace hutch::network
