// Answers a sandbox's questions of DNS itself: names that it may reach and members of its networks,
// nothing else, and nothing is passed on but the host's own question for an address.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "network/egress/dns_message.h"
#include "network/egress/session.h"

namespace hutch::network {

// Calls `send` once with the answer, maybe later; never when there is none to give or the sandbox
// is gone.
void AnswerQuestion(Tenant& tenant, std::string_view message, size_t max_bytes,
                    std::function<void(std::string)> send);

// One UDP socket of a sandbox.
class DnsSocket {
 public:
  DnsSocket(Services& services, Tenant& tenant, UniqueFd fd);

 private:
  void OnReadable();
  Tenant& tenant_;
  std::shared_ptr<UniqueFd> fd_;  // answers that come later find it gone, or not
  Watch watch_;
};

// One TCP connection: a question after the other (RFC 7766). Owned by the set it is in.
class DnsConnection : public std::enable_shared_from_this<DnsConnection> {
 public:
  using Set = std::set<std::shared_ptr<DnsConnection>>;
  static void Start(Services& services, Tenant& tenant, UniqueFd fd, Set& set);
  DnsConnection(Services& services, Tenant& tenant, UniqueFd fd, Set& set);
  void Close();

 private:
  void Advance();
  bool Step();
  Services& services_;
  Tenant& tenant_;
  Set& set_;
  Stream stream_;
  Timer deadline_;
  std::string out_;
  bool asking_ = false, closed_ = false;
};

}  // namespace hutch::network
