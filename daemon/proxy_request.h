// A request of the API that goes on to a port inside, with its connection.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/limits.h"
#include "daemon/message.h"
#include "daemon/proxy_head.h"

namespace hutch::daemon {

struct ProxyRequest {
  TakenConnection connection;
  std::string head;  // UpstreamHead()
  ProxyAsk ask;
  BodyFraming framing = BodyFraming::kNone;
  uint16_t port = 0;
  Milliseconds patience{60'000};  // for the answer's head, and for the client to fetch the answer
};

}  // namespace hutch::daemon
