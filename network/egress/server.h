// The egress program without its confinement: all sandboxes, their listeners, and what hutchd says.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "network/egress/dns_server.h"
#include "network/egress/protocol.h"
#include "network/egress/session.h"

namespace hutch::network {

class EgressServer {
 public:
  // Opens what must be opened before confinement.
  static Result<std::unique_ptr<EgressServer>> Make(UniqueFd control);
  ~EgressServer();

  void SendReady();
  void SendFailed(const Error& error);
  void Run();  // until hutchd closes its side

 private:
  struct Door;
  struct Guest;
  EgressServer(UniqueFd control);

  void OnControl(Ready ready);
  void Handle(Command command);
  void HandleSet(Command command);
  void Send(const ProgramEvent& event);
  void FlushEvents();
  void OpenDoors(Guest& guest, std::vector<Listener> listeners);
  void CloseUnusedDoors(Guest& guest);
  static void CloseDisallowed(Tenant& tenant);

  Loop loop_;
  UniqueFd control_;
  TlsClient tls_;
  std::unique_ptr<Resolver> resolver_;
  LookupBudget budget_;
  SessionBudget sessions_;
  std::vector<char> block_;
  std::unique_ptr<Services> services_;
  std::map<std::string, std::unique_ptr<Guest>> guests_;
  std::deque<std::string> events_;
  SteadyTime last_stale_{};
  Watch control_watch_;
};

}  // namespace hutch::network
