// Connections into sandboxes: host ports that lead to ports inside, and requests of the API that
// are passed on. State on the loop's thread; sockets and bytes on the relay's. TCP only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/loop.h"
#include "daemon/message.h"
#include "daemon/port_facts.h"
#include "daemon/proxy_request.h"
#include "daemon/relay.h"

namespace hutch::daemon {

// Written on the relay's thread, read anywhere.
struct PortCounters {
  std::atomic<uint64_t> open{0};               // connections now
  std::atomic<uint64_t> connections{0};        // ever
  std::atomic<uint64_t> sent{0}, received{0};  // bytes to inside, and from there
};

// A host port that is bound and listens; nobody is accepted yet. Freed with it.
struct ReservedPort {
  PortFacts facts;  // with the port it got
  UniqueFd listener;
};

// One forward, as it is shown.
struct ForwardView {
  PortFacts facts;
  std::optional<std::string> error;  // why its host port is not listened on
  uint64_t open = 0, connections = 0, sent = 0, received = 0;
};

class KeptSockets;
class RelayGroup;

class Forwards {
 public:
  explicit Forwards(Loop& loop);
  ~Forwards();
  // Listeners are taken from there where they are, and kept there; borrowed.
  void SetKept(KeptSockets* kept) { kept_ = kept; }

  // kExists naming who has it when the address is in use; `field` is where the request says so.
  Result<ReservedPort> Reserve(const PortFacts& wanted, const std::string& field) const;
  Result<std::vector<ReservedPort>> ReserveAll(const std::vector<PortFacts>& wanted) const;

  // A sandbox begins: `init` (borrowed) is a pidfd of its first process.
  Status Open(const std::string& sandbox, int init);
  void Add(const std::string& sandbox, ReservedPort port);
  // Of a sandbox that is taken up: what cannot be bound again is kept with its reason.
  void Restore(const std::string& sandbox, const std::vector<PortFacts>& ports);
  // Its connections are reset; `removed` once nothing listens any more. kNotFound.
  Status Remove(const std::string& sandbox, uint16_t port, std::function<void()> removed);
  // A sandbox ends: all of it is reset.
  void Close(const std::string& sandbox);

  // Whether one more request may be passed on: kLimit.
  Status CheckProxy(const std::string& sandbox) const;
  // Passes a request on and answers it; only after CheckProxy(), in the same turn of the loop.
  void Proxy(const std::string& sandbox, ProxyRequest request);

  std::vector<ForwardView> List(const std::string& sandbox) const;
  std::vector<PortFacts> Facts(const std::string& sandbox) const;
  // Whether a connection is open, or any byte was moved since the last question.
  bool TakeActivity(const std::string& sandbox);

 private:
  struct Forward {
    uint64_t number;
    PortFacts facts;
    std::optional<std::string> error;
    std::shared_ptr<PortCounters> counters;
  };
  struct Sandbox {
    std::shared_ptr<RelayGroup> group;  // used on the relay's thread
    std::vector<Forward> forwards;
    std::shared_ptr<PortCounters> proxied;  // by the API
    uint64_t seen = 0;
  };

  void DropKept(const Forward& forward);
  std::string OwnerOf(const PortFacts& wanted) const;
  Sandbox* Find(const std::string& sandbox);
  const Sandbox* Find(const std::string& sandbox) const;

  Loop& loop_;
  KeptSockets* kept_ = nullptr;
  uint64_t last_number_ = 0;
  RelayThread thread_;
  std::map<std::string, Sandbox> sandboxes_;
};

}  // namespace hutch::daemon
