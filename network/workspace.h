// Networks that sandboxes join: each is a network namespace of its own that routes between its
// members and has no way out; a member has one end of a veth pair, the namespace the other. So
// nobody else can be reached from it or reach it, whatever the host's rules are. There is no
// bridge: nothing to answer ARP, flood or be told a neighbour's address falsely. The descriptor of
// MakeWorkspace is all that keeps the namespace: when its holder ends, all links of the network go
// with it, and its members join a new one. Needs CAP_NET_ADMIN, CAP_SYS_ADMIN; one thread, as in
// network/open_network.h.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/policy.h"

namespace hutch::network {

struct WorkspaceSubnet {
  Cidr v4, v6;
};

// A fresh namespace that routes. kUnsupported names what the kernel lacks.
Result<UniqueFd> MakeWorkspace(const WorkspaceSubnet& subnet);
struct Member {
  Address v4, v6;
};
// Puts a sandbox with these addresses, of the network's subnet, into it: `link` is its name inside
// the sandbox. Tenants have no power over it. Spoofed sources are dropped where they come from.
// Undone completely on error; kExists for a link or address that is there.
Status JoinWorkspace(int workspace, int sandbox, const std::string& link, const Member& member);
Status LeaveWorkspace(int sandbox, const std::string& link);  // idempotent

}  // namespace hutch::network
