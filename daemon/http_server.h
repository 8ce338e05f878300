// Accepts connections on one listening socket and serves each, one request after another.
// Everything on the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/unique_fd.h"
#include "daemon/http_parser.h"
#include "daemon/loop.h"
#include "daemon/message.h"

namespace hutch::daemon {

// What a connection that has just been made has for its request when the server stops accepting.
inline constexpr Milliseconds kLastRequestTime{100};

class HttpSession;

class HttpServer {
 public:
  enum class Transport { kUnix, kTcp };
  struct Options {
    size_t max_connections = 1024;
    Milliseconds timeout{
        60'000};  // for a whole request to arrive (its head and each part of a streamed body), for
                  // the next one, and for a reply to be fetched
    bool log_requests = false;  // at debug level
    // Over TCP a client that stops sending cannot be told from one that closed: it has hung up.
    Transport transport = Transport::kUnix;
  };
  using Dispatch = std::function<void(Request, Responder)>;

  // `lookup` says which bodies are streamed; without it none are.
  HttpServer(Loop& loop, UniqueFd listen_fd, Options options, Dispatch dispatch,
             BodyLookup lookup = nullptr);
  ~HttpServer();

  void Start();
  // No new connections; those that were served and have no request under way are closed, the
  // others after their answer. WebSockets are closed with 1001; they are under way until the client
  // has answered. With kKept new ones wait in the backlog.
  enum class Backlog { kRefused, kKept };
  void StopAccepting(Backlog backlog = Backlog::kRefused);
  void AcceptAgain();  // after kKept
  void CloseAll();
  void SetOptions(Options options) { options_ = options; }
  size_t connections() const { return sessions_.size(); }
  size_t requests_under_way() const { return under_way_; }

 private:
  friend class HttpSession;
  void AcceptSome();
  void Admit(UniqueFd socket);

  Loop& loop_;
  UniqueFd listen_fd_;
  Options options_;
  Dispatch dispatch_;
  BodyLookup lookup_;
  BodyBudget budget_;
  std::string scratch_;  // receive buffer shared by all sessions
  size_t under_way_ = 0;
  bool stopping_ = false;
  std::unordered_set<std::shared_ptr<HttpSession>> sessions_;
  Watch watch_;
  Timer accept_again_;
};

}  // namespace hutch::daemon
