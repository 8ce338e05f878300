// Networks that sandboxes join: each is a network namespace of its own with one bridge in it and no
// way out; a member has one end of a veth pair, the bridge the other. So nobody else can be reached
// from it or reach it, whatever the host's rules are. The namespace is kept by a bind mount at
// <directory>/<name>, or a process-independent equal, so that it outlives hutchd. Needs
// CAP_NET_ADMIN, CAP_SYS_ADMIN.
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

// A fresh namespace with its bridge up.
Result<UniqueFd> MakeWorkspace(const WorkspaceSubnet& subnet);
struct Member {
  Address v4, v6;
};
// Puts `member` with these addresses into the network: link "<name>" inside the sandbox's
// namespace. Tenants have no power over it. Spoofed sources are dropped at the bridge's port.
Status JoinWorkspace(int workspace, int sandbox, const std::string& link, const Member& member);
Status LeaveWorkspace(int sandbox, const std::string& link);  // idempotent

}  // namespace hutch::network
