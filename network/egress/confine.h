// Takes everything from hutch-egress but sockets: it reads what every sandbox sends, so whoever
// takes it over must find nothing. Every step must work, else it does not start; Landlock alone may
// be missing, for kernels without it: the empty root is the first wall.
#pragma once

#include <sys/types.h>

#include "base/result.h"

namespace hutch::network {

struct EgressUser {
  uid_t uid = 65534;
  gid_t gid = 65534;
};
// The system's user "hutch-egress", else nobody. Reads files: before ConfineEgress.
EgressUser FindEgressUser();

// Mount, IPC and UTS namespaces of its own with an empty read-only root, the user's ids, no
// capability in any set, no new privileges, not dumpable, as many open files as allowed, Landlock,
// and a filter that lets through what sockets and memory need: no files, no processes, no
// executable memory, only IP sockets. The network namespace stays. Ends with the thread that
// started it. Needs root and one thread.
Status ConfineEgress(const EgressUser& user);

}  // namespace hutch::network
