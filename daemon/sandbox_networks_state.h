// What SandboxNetworks keeps of one sandbox, and of mode "open"; for its two files alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "daemon/sandbox_networks.h"
#include "network/inside.h"

namespace hutch::daemon {

struct SandboxNetworks::Net {
  std::string id, name;
  UniqueFd target;    // a pidfd of its first process
  UniqueFd counters;  // the file, on the run directory's tmpfs

  // What is there.
  std::vector<network::ListenerKind> listens;  // that the egress program of now has; empty: none
  bool caught = false, leased = false;
  bool in_kernel = false;  // the worker has it
  std::optional<network::OpenLease> lease;
  std::set<std::string> joined;  // networks

  // What is being done.
  enum class Phase {
    kIdle,
    kClosing,   // the egress program closes what the mode before had
    kLinks,     // the kernel's part
    kOpening,   // the egress program takes the new settings
    kRetrying,  // a restore that failed waits for its next try
  };
  Phase phase = Phase::kIdle;
  network::Policy wanted;
  Done done;             // of the change under way; empty: none is
  uint64_t awaited = 0;  // number of the settings whose kApplied goes on with it
  Timer await_timer;
  std::deque<std::pair<network::Policy, Done>> later;
  bool open_settled = false;
  int listen_tries = 0;
  bool restoring = false;
  int restores = 0;
  Timer retry, leave_retry;
  int detach_tries = 0;
  Timer detach_timer;

  std::deque<oci::Json> denials;  // the latest, newest last
};

// The worker's alone, and there as long as it may have a job with it.
struct SandboxNetworks::OpenMode {
  network::OpenConfig config;
  std::string mark;  // a file that tells a later daemon to look for what is left
  std::unique_ptr<network::OpenNetwork> network;

  Result<network::OpenNetwork*> Get() {
    if (network == nullptr) {
      RETURN_IF_ERROR(WriteFileAtomic(mark, "", Durability::kMemory));
      ASSIGN_OR_RETURN(network, network::OpenNetwork::Start(config));
    }
    return network.get();
  }
  Status Settle(Net& net, const network::Policy& wanted, bool gone) {
    ASSIGN_OR_RETURN(network::OpenNetwork* const open, Get());
    if (wanted.mode != network::Mode::kOpen) {
      // Its link inside goes now where it lives on, else with its namespace.
      RETURN_IF_ERROR(gone ? open->Detach(net.id) : open->Withdraw(net.id, net.target.get()));
      net.leased = false;
      net.lease.reset();
      return OkStatus();
    }
    if (net.leased) return open->Change(net.id, wanted);
    ASSIGN_OR_RETURN(net.lease, open->Attach(net.id, net.target.get(), wanted));
    net.leased = true;
    return OkStatus();
  }
};

}  // namespace hutch::daemon
