// Where the daemon is reached: its Unix socket, or its TCP listener with a token.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "tools/options.h"

namespace hutch::tools {

inline constexpr const char* kDefaultSocket = "/run/hutch/hutchd.sock";

struct Endpoint {
  Endpoint(std::string path)  // NOLINT: implicit by design, a path is what most have
      : socket(path), name(std::move(path)) {}

  std::string socket;               // path, at most 107 bytes; empty: TCP
  std::string name;                 // for people
  std::string authority = "hutch";  // of the Host header
  std::string address = {};         // "127.0.0.1", "::1"
  uint16_t port = 0;
  std::string token = {};

  // "Host: ...\r\n", and the token where there is one.
  std::string HeadLines() const;
};

// Where nothing was said: HUTCH_HOST, else HUTCH_SOCKET, else the usual socket.
void FillEndpoint(Options* options);

// As the options say; the token else from HUTCH_TOKEN or HUTCH_TOKEN_FILE. kInvalidArgument for
// a URL that is no loopback address (what goes there is not encrypted), kForbidden for a token file
// that others may read.
Result<Endpoint> EndpointOf(const Options& options);

// kUnavailable when nothing listens, kForbidden when it may not be used; both with a hint.
Result<UniqueFd> ConnectToDaemon(const Endpoint& endpoint);

}  // namespace hutch::tools
