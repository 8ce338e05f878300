// Listening sockets that outlive a hutchd: those it listens on are put into systemd's store of
// descriptors (FDSTORE=1 of sd_notify(3)) and handed to a successor (daemon/takeover.h), and the
// next hutchd takes them from there instead of binding anew, so that no connection is refused in
// between. A socket is known by the address it is bound to, whatever its name says. On the loop's
// thread.
#pragma once

#include <sys/socket.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::daemon {

class KeptSockets {
 public:
  struct Socket {
    std::string address;  // "/run/hutch/hutchd.sock", "127.0.0.1:80", "[::1]:80"
    UniqueFd fd;
  };

  // What systemd passed (sd_listen_fds(3)); clears the variables. Whatever is no listening stream
  // socket, and what has a name of ours but an address of nobody, is closed by CloseRest().
  // kInvalidArgument: more than one Unix socket of a socket unit.
  Status TakePassed();
  // One that a predecessor handed over; kInvalidArgument when it is no listening stream socket.
  Status Add(UniqueFd fd);

  // The Unix socket of systemd's socket unit: its file is systemd's.
  std::optional<UniqueFd> TakeActivated() { return std::exchange(activated_, std::nullopt); }
  bool Has(const std::string& address) const { return found_.contains(address); }
  bool stores(const std::string& address) const { return stored_.contains(address); }
  // The one bound to `address`; invalid where there is none.
  UniqueFd Take(const std::string& address);
  // What nobody took is closed, and forgotten by systemd.
  void CloseRest();

  // From now on it is listened on. Best effort: without it the next hutchd binds anew.
  enum class Store { kOurs, kSystemds };  // kSystemds: a socket unit has it anyway
  void Keep(int fd, Store store = Store::kOurs);
  // It is not listened on any more.
  void Drop(const std::string& address);
  // Of this process only: connections are refused again once the listeners are closed.
  void Release() { kept_.clear(); }
  // Borrowed, to be handed over.
  std::vector<int> kept() const;

 private:
  std::map<std::string, UniqueFd> found_, kept_;
  std::map<std::string, std::string> stored_;  // in systemd's store: their names there
  std::optional<UniqueFd> activated_;
};

// As a socket of that address is known.
Result<std::string> InternetAddress(const struct sockaddr& address);
// The address a listening stream socket is bound to; kInvalidArgument for anything else.
Result<std::string> ListeningAddress(int fd);

}  // namespace hutch::daemon
