// Links of this network namespace that are moved into another one, with the addresses they have
// there (linux.netDevices of the runtime-spec), and back again when that was in vain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "network/netlink.h"

namespace hutch::network {

// A link and what it loses by leaving its namespace.
struct MovedDevice {
  int index = 0, index_inside = 0;
  std::string name;
  uint32_t master = 0;  // the bridge or bond it is in; 0: none
  bool up = false;
  std::vector<std::string> addresses, routes;  // bodies of RTM_NEWADDR and RTM_NEWROUTE
};

class DeviceMoves {
 public:
  // `target`: a descriptor of the other namespace, or a pidfd of a process in it. Needs
  // CAP_SYS_ADMIN over it, and CAP_NET_ADMIN over both. kInvalidArgument when it is the caller's
  // own.
  static Result<DeviceMoves> Open(int target);

  // Moves the link, calls it `name` there (empty: as here; with "%d": the kernel fills in a number)
  // and sets it up. What the kernel keeps it keeps; its permanent addresses of global scope are
  // added anew. kNotFound: no such link; kExists: the name is taken there.
  Status Move(const std::string& host_name, const std::string& name);

  // Every link that was moved, whole or half, as it was: name, index, master, addresses, routes,
  // state. Goes on after an error, and returns the first one.
  Status GiveBack();

 private:
  DeviceMoves(NetlinkSocket here, NetlinkSocket there, UniqueFd own, UniqueFd other);
  Status GiveBackOne(const MovedDevice& device);

  NetlinkSocket here_, there_;  // the second keeps the other namespace alive
  UniqueFd own_, other_;        // the namespaces
  std::vector<MovedDevice> moved_;
};

}  // namespace hutch::network
