// The head of an answer as text.
#pragma once

#include <string>
#include <string_view>

#include "daemon/message.h"

namespace hutch::daemon {

enum class Connection { kDefault, kClose, kKeepAlive };  // the Connection header, if any

struct HeadParts {
  int status = 200;
  std::string_view content_type = {};  // empty: none
  const Headers* headers = nullptr;    // control characters in them become "?"
  std::string framing = {};            // "Content-Length: 5\r\n" and the like
  Connection connection = Connection::kDefault;
};

const char* StatusReason(int status);  // "Status" for one that is not in use here

// With the empty line at its end.
std::string ResponseHead(const HeadParts& parts);

inline constexpr std::string_view kContinueHead = "HTTP/1.1 100 Continue\r\n\r\n";

std::string ContentLengthLine(uint64_t bytes);
inline constexpr const char* kChunkedLine = "Transfer-Encoding: chunked\r\n";
// "a\r\n" for ten bytes: what goes before a chunk. "\r\n" goes behind it.
std::string ChunkSizeLine(size_t bytes);

}  // namespace hutch::daemon
