// hutchd's side of hutch-egress: the confined program (no privilege, no file system, its own
// seccomp filter) that answers DNS, HTTP, CONNECT, SOCKS5 and caught connections of all sandboxes
// and makes the connections outward, from the network namespace it was started in. It ends with
// this object or with hutchd. All calls are made on one thread and none waits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "network/inside.h"
#include "network/policy.h"

namespace hutch::network {

struct Secret {
  std::string header;              // "Authorization"
  std::string value;               // whole: "Bearer abc"
  std::vector<std::string> hosts;  // as Rule::host; to others it is never sent
};

// All a sandbox's traffic is judged by.
struct EgressSettings {
  Policy policy;  // mode kNone: only names of joined networks are answered
  std::map<std::string, std::vector<Address>> hosts;  // members of joined networks
  std::map<std::string, Secret> secrets;              // those that the policy names
};

struct Denial {
  std::string sandbox;
  std::string protocol;  // "dns", "http", "connect", "socks", "tls", "tcp"
  std::string host;      // as asked for, at most 253 bytes, printable; empty: an address
  std::string address;
  uint16_t port = 0;
  std::string reason;  // "not in the allowlist", ...
  uint64_t times = 1;  // equal ones within a second are told together
};

struct EgressEvent {
  enum class Kind {
    kApplied,  // the settings numbered `number` of `sandbox` hold for every new and every open
               // connection
    kDenied,
    kEnded,  // the program ended: start another and set everything anew, listeners included
  };
  Kind kind;
  std::string sandbox;
  uint64_t number = 0;
  std::optional<Error> error = {};  // kApplied: why they could not be; nothing is let through then
  Denial denial = {};
};

class EgressClient {
 public:
  // `program`: the path of hutch-egress. Call before the process has secrets worth stealing in its
  // memory: it is executed, not forked to live.
  static Result<std::unique_ptr<EgressClient>> Start(const std::string& program);
  virtual ~EgressClient() = default;  // ends the program

  virtual int fd() const = 0;  // readable: call Read
  virtual const Pidfd& process() const = 0;
  virtual std::vector<EgressEvent> Read() = 0;

  // Sets or replaces; returns the number that kApplied will have. Listeners and the counters' file
  // are given the first time, and again when there are other ones; they are borrowed for the call.
  // Connections that the new settings do not allow are closed before kApplied. kTooLarge, kKernel,
  // kUnavailable when the program does not keep up.
  virtual Result<uint64_t> Set(const std::string& sandbox, const EgressSettings& settings,
                               const std::vector<Listener>& listeners, int counters_fd) = 0;
  virtual Status Forget(const std::string& sandbox) = 0;  // closes all of it; idempotent
};

}  // namespace hutch::network
