// The addresses that a sandbox has of its own, beside loopback: traffic to itself goes through lo,
// where the catch of network/inside.h must let it pass. All in the namespace of the calling thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "network/netlink.h"

namespace hutch::network {

inline constexpr char kCatchTable[] = "hutch_catch";
inline constexpr char kOwnV4Set[] = "own4", kOwnV6Set[] = "own6";

// Whether the kernel has IPv6 at all.
bool HasIpv6();

// Makes the sets what the links have now: after each change of a link, if there is a table
// (kNotFound), and in a new table.
enum class Spared { kNothing, kOthers };  // what the sets hold before
Status SpareOwnAddresses(NetlinkSocket& filter, Spared spared);

// The kernel patches its own code when the first packet filter hook of a kind is registered in the
// whole system, and again when the last goes: opening a catch then costs 0.7 ms instead of 0.1. The
// first call makes a namespace that nobody enters and that has all of them while this process
// lives. Thread-safe. Needs CAP_SYS_ADMIN, CAP_NET_ADMIN.
void KeepHooks();

}  // namespace hutch::network
