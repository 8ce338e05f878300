// `hutchd --takeover`: one hutchd follows another without a connection being refused. The running
// one listens on <run-dir>/takeover.sock (0600, root only). Its successor asks for the listening
// sockets, looks at them, and says "go"; the running one stops accepting, finishes what is under
// way and ends, which frees the run directory. Until then connections wait in the sockets'
// backlogs. A successor that ends before the running one has, leaves that one going on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/kept_sockets.h"
#include "daemon/loop.h"

namespace hutch::daemon {

// The side of the running hutchd, on its loop.
using StringPairs = std::vector<std::pair<std::string, std::string>>;
// NOTIFY_SOCKET and WATCHDOG_USEC as they are set.
StringPairs SystemdVariables();

class TakeoverServer {
 public:
  struct Parts {
    Loop& loop;
    const KeptSockets& kept;
    bool socket_passed;           // the socket's file is systemd's
    StringPairs environment;      // what systemd told us, and our successor needs
    std::function<void()> leave;  // a successor wants the place: drain, then end
    std::function<void()> stay;   // it is gone: go on
  };
  TakeoverServer(const std::string& run_dir, Parts parts);
  ~TakeoverServer();

  Status Start();
  bool leaving() const { return leaving_; }

 private:
  void Accept();
  void OnMessage();
  Status HandOver();
  void HangUp();

  std::string path_;
  Parts parts_;
  bool leaving_ = false;
  UniqueFd listener_, successor_;
  Watch listener_watch_, successor_watch_;
};

// The side of the successor. Blocks.
class Takeover {
 public:
  // Asks for the sockets. kNotFound when no hutchd runs there.
  static Result<Takeover> Begin(const std::string& run_dir);
  // Makes the running hutchd leave and waits until it has; `patience` beyond what it needs to
  // drain is its own: it is over when that process is.
  Status Finish();

  KeptSockets& sockets() { return sockets_; }
  bool socket_passed() const { return socket_passed_; }

 private:
  UniqueFd connection_;
  KeptSockets sockets_;
  bool socket_passed_ = false;
};

// What the one hutchd of a run directory has: its lock, and sockets that were kept for it.
struct Place {
  UniqueFd lock;
  KeptSockets sockets;
  bool socket_passed = false;
};
enum class Arrival { kFirst, kTakeover };
// kTakeover: from the running hutchd, which leaves for it; all that could fail early shall have
// been tried. `socket` is where the API is to be; one that moves is kInvalidArgument.
Result<Place> TakePlace(const std::string& run_dir, const std::string& socket, Arrival arrival);

}  // namespace hutch::daemon
