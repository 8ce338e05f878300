// Network namespaces for sandboxes: owned by the host's user namespace (so that nobody inside has
// CAP_NET_ADMIN over them), `lo` up, no other link, and deaf to router advertisements and
// redirects. Making one costs about half a millisecond, taking a ready one nothing: hence the pool.
// network_namespaces(7).
#pragma once

#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::network {

// Makes one on the calling thread, which is back in its own namespace afterwards. Needs
// CAP_SYS_ADMIN. kKernel names the step. kCatch: with PrepareCatch of network/inside.h done.
enum class NetnsKind { kPlain, kCatch };
Result<UniqueFd> MakeNetns(NetnsKind kind = NetnsKind::kPlain);

// A pool filled by one thread of its own. Take never blocks for long: an empty pool makes a plain
// one on the spot.
class NetnsPool {
 public:
  // target 0: no thread, everything on demand. Start it after the spawn server (threads).
  static std::unique_ptr<NetnsPool> Start(size_t target, NetnsKind kind = NetnsKind::kPlain);
  virtual ~NetnsPool() = default;  // stops the thread, closes what is left
  virtual Result<UniqueFd> Take() = 0;
  virtual size_t ready() const = 0;
  // What is made ahead from now on; plain ones again where the kernel cannot. What is there stays.
  virtual void Prefer(NetnsKind kind) = 0;
};

}  // namespace hutch::network
