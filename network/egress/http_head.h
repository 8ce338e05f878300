// Heads of HTTP/1 messages (RFC 9112), read more strictly than servers do: whatever two readers
// could understand differently is refused. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::network {

struct HttpField {
  std::string name, value;
};

enum class BodyKind { kNone, kLength, kChunked, kUntilEnd };

struct RequestHead {
  std::string method;
  std::string path;  // origin form, or "*"; empty with CONNECT
  std::string host;  // as written, without port and brackets, lower case
  uint16_t port = 0;
  bool absolute = false;  // the form for proxies
  bool http10 = false;
  std::vector<HttpField> fields;
  BodyKind body = BodyKind::kNone;
  uint64_t body_bytes = 0;
  bool close = false;
  bool websocket = false;
};

// How many bytes the head has that `bytes` begins with; 0: more is needed. Empty lines before it
// are not taken. kTooLarge; kInvalidArgument for a line that ends with LF alone.
Result<size_t> FindHeadEnd(std::string_view bytes);

// `head` ends with an empty line. kInvalidArgument with the reason. `default_port`: of an authority
// without one.
Result<RequestHead> ReadRequest(std::string_view head, uint16_t default_port);

// What goes to the server: the origin form, without what is between two hops only. `set` replaces
// fields of that name.
std::string PrintRequest(const RequestHead& request, std::string_view authority,
                         const std::optional<HttpField>& set);

// Fields by which servers take a request for one of another method or path than it says.
void RemoveOverrides(RequestHead* request);

struct ResponseHead {
  int status = 0;
  BodyKind body = BodyKind::kUntilEnd;
  uint64_t body_bytes = 0;
  bool close = false;
  std::vector<HttpField> fields;
  std::string reason;
};
Result<ResponseHead> ReadResponse(std::string_view head, std::string_view request_method);
enum class Connection { kKeep, kClose, kUpgrade };
std::string PrintResponse(const ResponseHead& response, Connection connection);

// "host", "host:port", "[address]:port" of CONNECT and Host. Port 0 when there is none.
struct Authority {
  std::string host;
  uint16_t port = 0;
};
Result<Authority> ReadAuthority(std::string_view text);

}  // namespace hutch::network
