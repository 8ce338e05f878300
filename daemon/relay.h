// A thread of its own on which connections into sandboxes are made and their bytes moved, so that
// no transfer takes a moment of the loop that serves the API; and one such connection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "daemon/byte_mover.h"
#include "daemon/loop.h"

namespace hutch::daemon {

class RelayThread {
 public:
  RelayThread();
  ~RelayThread() { Stop(); }
  void Stop();  // waits; what has been posted runs first

  Loop& loop() { return loop_; }  // Post() from anywhere, all else on its own thread
  std::string& scratch() { return scratch_; }

 private:
  Loop loop_;
  std::string scratch_;
  std::thread thread_;
};

// What lives on the thread and can be ended there.
class Relayed {
 public:
  virtual ~Relayed() = default;
  virtual void Abort() = 0;  // both sides are reset; tells nobody
};

// Bytes both ways until both sides have ended. The end of one side is passed on to the other, which
// may go on sending; a reset of one side resets the other.
class Relay final : public Relayed, public std::enable_shared_from_this<Relay> {
 public:
  struct Ends {
    UniqueFd client, inside;                        // non-blocking
    std::string to_client = {}, to_inside = {};     // sent first
    std::function<void(uint64_t, uint64_t)> moved;  // bytes to inside and from there, since
    std::function<void()> ended;                    // once, from the loop; not after Abort()
  };
  Relay(RelayThread& thread, Ends ends);
  void Start();
  void Abort() override;

 private:
  struct Way {
    ByteMover mover;
    Watch& from;
    Watch& to;
    int to_fd;
    bool done = false;
    uint64_t told = 0;
  };
  void Run(Way& way);
  void RunSoon(Way& way);
  void OnReady(Ready ready, Watch& watch, int fd, Way& reads, Way& writes);
  void Tell();
  void Finish();

  RelayThread& thread_;
  Ends ends_;
  Watch client_watch_, inside_watch_;  // before their descriptors go
  Way up_, down_;
  bool over_ = false;
};

// Both directions' packets at once, and a peer that vanished without a word is noticed.
void PrepareTcp(int fd);
// The next close sends RST instead of FIN.
void ResetOnClose(int fd);

// A connection to a port of a sandbox: 127.0.0.1, and ::1 where nobody listens there.
class Dialer {
 public:
  // kNotFound: nobody listens. kUnavailable: it does not answer, or the sandbox is gone.
  using Done = std::function<void(Result<UniqueFd>)>;
  // `target` (borrowed) is what network::SocketIn takes. `done` is called
  // once, maybe from within Start(); never after destruction. It may destroy the dialer.
  Dialer(Loop& loop, uint16_t port, Done done);
  void Start(int target);

 private:
  void TryNext();
  void OnReady();
  void Finish(Result<UniqueFd> result);

  Loop& loop_;
  uint16_t port_;
  Done done_;
  int target_ = -1;
  UniqueFd current_;
  Watch watch_;
  Timer timer_;
  int attempts_ = 0;
};

}  // namespace hutch::daemon
