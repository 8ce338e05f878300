// The networks of living sandboxes: brings what a policy needs into being in the order that never
// opens more than either the old or the new one, and closes everything where that fails. On the
// loop's thread; kernel work that may block is done by a worker of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/audit.h"
#include "daemon/config.h"
#include "daemon/loop.h"
#include "daemon/worker.h"
#include "daemon/workspaces.h"
#include "network/egress/client.h"
#include "network/open_network.h"
#include "network/policy.h"

namespace hutch::daemon {

class SandboxNetworks {
 public:
  struct Parts {  // all borrowed
    Loop& loop;
    const Config& config;
    Worker& worker;  // one thread: the packet filter's library wants that
    Workspaces& workspaces;
    std::string egress_program;
    Audit* audit = nullptr;
  };
  using Done = std::function<void(const Status&)>;

  explicit SandboxNetworks(const Parts& parts);
  ~SandboxNetworks();

  struct Who {  // borrowed for a call
    const std::string& id;
    const std::string& name;  // may be empty
    const Pidfd& init;
  };
  // Makes the policy hold; `done` is called once it does, at once where nothing has to be made.
  // Changes of one sandbox are made one after the other. After an error the sandbox has no network
  // at all.
  void Apply(const Who& who, const network::Policy& policy, Done done);
  // As Apply, of one that an earlier daemon made: what cannot be had at once (sockets that the
  // earlier one's program still holds) is tried until it can; until then the network is closed.
  void Restore(const Who& who, const network::Policy& policy);
  // The sandbox is gone, or about to be: nothing of it is left afterwards. Nobody is told.
  void Forget(const std::string& id);

  // Puts the pair of links of mode "open" into a namespace ahead of need; it carries nothing yet.
  // `target` as in network/inside.h.
  void PrepareLink(UniqueFd target, Done done);

  // Called with each denial, as GET .../network tells it.
  using DenialListener = std::function<void(const std::string& id, const oci::Json& denial)>;
  void OnDenied(DenialListener listener) { on_denied_ = std::move(listener); }

  // GET .../network: the policy in force, addresses, counters, the latest denials.
  void Describe(const std::string& id, const network::Policy& policy,
                std::function<void(oci::Json)> told);

  // What it sent and received so far; null without a network, and in mode open, where the kernel
  // has to be asked: Describe().
  oci::Json Counted(const std::string& id) const;

  // After a restart, before Restore for those that live: forgets and removes what belongs to
  // others. `open`: those in that mode.
  Status Recover(const std::set<std::string>& living, const std::set<std::string>& open);

 private:
  struct Net;
  struct OpenMode;
  using NetPtr = std::shared_ptr<Net>;

  Status StartEgress();
  void OnEgress();
  void OnEgressEvent(network::EgressEvent& event);
  void EndEgressSoon();
  void EndEgress();
  void ReviveEgress();
  void RecordDenial(Net& net, const network::Denial& denial);

  void Start(const Who& who, const network::Policy& policy, Done done, bool restoring);
  void Begin(const NetPtr& net, const network::Policy& policy, Done done);
  void TryAgain(const NetPtr& net);
  void Closed(const NetPtr& net);
  void ForgetListeners(Net& net);
  void CloseCatchOf(Net& net);
  void Await(const NetPtr& net, uint64_t number);
  void Continue(const NetPtr& net);
  bool SocketsLinger(Net& net, const Status& status);
  void Leave(const NetPtr& net, const std::string& name);
  void Join(const NetPtr& net, const std::string& name);
  void SettleOpen(const NetPtr& net);
  Result<uint64_t> Widen(Net& net);
  Result<uint64_t> Listen(Net& net);
  Result<uint64_t> SendSettings(Net& net, const std::vector<network::Listener>& listeners);
  void Finish(const NetPtr& net, Status status);
  void CloseAll(const NetPtr& net);
  void CountOpen(const NetPtr& net, oci::Json json, std::function<void(oci::Json)> told);
  void TellHosts(const std::set<std::string>& ids);
  std::string OpenMark() const { return parts_.config.run_dir + "/open-network"; }
  void LeaveLater(const NetPtr& net);
  void DetachLater(const NetPtr& net);
  void Detached(const NetPtr& net, const Status& status);
  bool Lives(const NetPtr& net) const;

  Parts parts_;
  std::map<std::string, NetPtr> nets_;  // of those with any network, or that had one
  std::unique_ptr<network::EgressClient> egress_;
  Watch egress_watch_;
  Timer egress_timer_;
  uint64_t egress_number_ = 0;  // of the program of now
  Milliseconds egress_pause_;   // before one that ended is started again
  std::shared_ptr<OpenMode> open_;
  DenialListener on_denied_;
};

}  // namespace hutch::daemon
