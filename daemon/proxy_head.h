// The heads of requests that are passed on to a port inside, and of the answers from there, which
// are hostile: what is read of them is written anew, line by line. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/message.h"

namespace hutch::daemon {

enum class BodyFraming { kNone, kLength, kChunked, kUntilClose };

// What of the client's request the answer is judged by.
struct ProxyAsk {
  bool head_only = false;  // HEAD
  bool http_1_0 = false;
  bool upgrade = false;     // it asked for another protocol, and has no body
  std::string prefix = {};  // of the path, taken off: "/v1/sandboxes/sb-x/proxy/3000"
};

// Whether the request asks for another protocol (RFC 9110, 7.8).
bool AsksForUpgrade(const Request& request);

// The request as it goes to the port. `path` is what is left of it, "/..." as sent. Without
// hop-by-hop fields, Authorization and X-Hutch-*; Host stays the client's; X-Forwarded-Prefix is
// set, X-Forwarded-Host and -Proto where the client gave none. The connection is for this request
// alone.
std::string UpstreamHead(const Request& request, std::string_view path, const ProxyAsk& ask,
                         BodyFraming framing);

struct AnswerHead {
  int status = 0;
  std::string text;  // as it goes to the client: "Connection: close" but for 1xx
  BodyFraming framing = BodyFraming::kNone;
  uint64_t length = 0;
  size_t size = 0;  // bytes that were read
};
// Of the bytes that came so far; empty: more are needed. kInvalidArgument with the reason for what
// is no answer or ambiguous about its end: two lengths, a length and a coding, another coding than
// chunked, folded lines, control characters, 101 unasked, more than kMaxAnswerHeadBytes or
// kMaxAnswerFields.
Result<std::optional<AnswerHead>> ReadAnswerHead(std::string_view bytes, const ProxyAsk& ask);

}  // namespace hutch::daemon
