// The second listening socket, for those who cannot reach the first: TCP on this machine's loopback
// only. What it sends is not encrypted, so nothing else is listened on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::daemon {

struct TcpEndpoint {
  std::string address;  // "127.0.0.1", "::1"
  uint16_t port = 0;
};

// "127.0.0.1:7788" or "[::1]:7788". kInvalidArgument for what is no address and port, and for an
// address that is not this machine's own.
Result<TcpEndpoint> ParseTcpListen(std::string_view text);

// Listens there; its connections send at once and notice a peer that vanished.
Result<UniqueFd> BindTcp(const TcpEndpoint& endpoint);

// Whether a Host header names this machine by a loopback address or as "localhost", with any port
// (a tunnel's may differ). A page in a browser whose name was made to mean 127.0.0.1 sends its own.
bool NamesLoopback(std::string_view host);

}  // namespace hutch::daemon
