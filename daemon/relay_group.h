// All that moves bytes for one sandbox, on the relay's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/unique_fd.h"
#include "daemon/forwards.h"
#include "daemon/relay.h"

namespace hutch::daemon {

// Accepts on a host port, as long as there are not too many connections.
class ForwardListener {
 public:
  ForwardListener(RelayThread& thread, RelayGroup& group, ReservedPort port,
                  std::shared_ptr<PortCounters> counters);
  ~ForwardListener();
  void Start();

 private:
  struct Connecting;
  void AcceptSome();
  void Accept(UniqueFd client);
  void Connected(const std::shared_ptr<Connecting>& connecting, Result<UniqueFd> inside);
  void Ended(const std::shared_ptr<Relayed>& relayed);

  RelayThread& thread_;
  RelayGroup& group_;
  uint16_t port_;
  UniqueFd listener_;
  std::shared_ptr<PortCounters> counters_;
  std::set<std::shared_ptr<Relayed>> relayed_;
  bool paused_ = false;
  Watch watch_;
  Timer again_;
};

class RelayGroup {
 public:
  explicit RelayGroup(UniqueFd init) : init_(std::move(init)) {}
  ~RelayGroup() { Close(); }

  int init() const { return init_.get(); }
  void AddListener(uint64_t number, std::unique_ptr<ForwardListener> listener);
  void RemoveListener(uint64_t number) { listeners_.erase(number); }
  void Insert(std::shared_ptr<Relayed> relayed) { relayed_.insert(std::move(relayed)); }
  void Erase(const std::shared_ptr<Relayed>& relayed) { relayed_.erase(relayed); }
  // Everything is reset; nothing is taken in any more.
  void Close();
  bool closed() const { return closed_; }

 private:
  UniqueFd init_;
  bool closed_ = false;
  std::map<uint64_t, std::unique_ptr<ForwardListener>> listeners_;
  std::set<std::shared_ptr<Relayed>> relayed_;  // of the API
};

}  // namespace hutch::daemon
