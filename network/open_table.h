// The nftables table of mode "open", and what on the host keeps packets from being forwarded.
// libnftables is used here and nowhere else: not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "network/netlink.h"
#include "network/policy.h"

namespace hutch::network {

inline constexpr char kOpenTable[] = "hutch";
inline constexpr char kLinkPrefix[] = "hutch";  // of links on the host; a number follows
// Sets whose elements begin with the index of a link: see docs/network.md.
inline constexpr char kLeasesV4Set[] = "leases4", kLeasesV6Set[] = "leases6";
inline constexpr char kOpenedV4Set[] = "opened4", kOpenedV6Set[] = "opened6";
inline constexpr char kSentSet[] = "sent", kReceivedSet[] = "received", kDeniedSet[] = "denied";
inline constexpr char kSpentSet[] = "spent", kCrowdedSet[] = "crowded";
inline constexpr char kFastOutSet[] = "fast_out", kFastInSet[] = "fast_in";

// Makes the table, or its chains and closed ranges anew around the elements that are there: one
// transaction. kUnsupported for a kernel that lacks a part.
Status WriteOpenTable(const std::vector<Cidr>& reachable);
// The text, for tests and documents.
std::string OpenTableText(const std::vector<Cidr>& reachable);

// Runs commands of nft(8) in the calling thread's namespace, as one transaction. `what` begins the
// error, which is kUnsupported.
Status RunNft(const std::string& commands, const char* what);

// kUnsupported with what to do: net.ipv4.ip_forward is 0, or another table's chain at the forward
// hook drops what it does not know and says nothing of our links.
Status CheckForwarding(NetlinkSocket& filter);
bool ForwardsIpv6();

}  // namespace hutch::network
