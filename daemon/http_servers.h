// The server of the Unix socket and, where there is one, that of TCP, as one. Each has connections
// and bodies of its own, so that neither can use up the other's.
#pragma once

#include <optional>

#include "daemon/http_server.h"

namespace hutch::daemon {

class HttpServers {
 public:
  HttpServers(Loop& loop, UniqueFd listen_fd, HttpServer::Options options,
              HttpServer::Dispatch dispatch, BodyLookup lookup)
      : unix_(loop, std::move(listen_fd), options, std::move(dispatch), std::move(lookup)) {}

  void AddTcp(Loop& loop, UniqueFd listen_fd, HttpServer::Options options,
              HttpServer::Dispatch dispatch, BodyLookup lookup) {
    tcp_.emplace(loop, std::move(listen_fd), options, std::move(dispatch), std::move(lookup));
  }

  void Start() {
    unix_.Start();
    if (tcp_) tcp_->Start();
  }
  void StopAccepting(HttpServer::Backlog backlog) {
    unix_.StopAccepting(backlog);
    if (tcp_) tcp_->StopAccepting(backlog);
  }
  void AcceptAgain() {
    unix_.AcceptAgain();
    if (tcp_) tcp_->AcceptAgain();
  }
  void CloseAll() {
    unix_.CloseAll();
    if (tcp_) tcp_->CloseAll();
  }
  // Of those that come from now on.
  void SetOptions(HttpServer::Options options, HttpServer::Options tcp_options) {
    unix_.SetOptions(options);
    if (tcp_) tcp_->SetOptions(tcp_options);
  }
  size_t connections() const { return unix_.connections() + (tcp_ ? tcp_->connections() : 0); }
  size_t requests_under_way() const {
    return unix_.requests_under_way() + (tcp_ ? tcp_->requests_under_way() : 0);
  }

 private:
  HttpServer unix_;
  std::optional<HttpServer> tcp_;
};

}  // namespace hutch::daemon
