#include "daemon/http_head.h"

#include <algorithm>
#include <cstdio>

namespace hutch::daemon {
namespace {

struct StatusRow {
  int status;
  const char* reason;
};
constexpr StatusRow kStatuses[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {103, "Early Hints"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {416, "Range Not Satisfiable"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {507, "Insufficient Storage"},
};

// A line break in a value (a file's name, say) would begin another header.
void AppendField(std::string_view name, std::string_view value, std::string* head) {
  head->append(name).append(": ");
  const size_t start = head->size();
  head->append(value);
  std::replace_if(
      head->begin() + static_cast<ptrdiff_t>(start), head->end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  head->append("\r\n");
}

}  // namespace

const char* StatusReason(int status) {
  for (const StatusRow& row : kStatuses)
    if (row.status == status) return row.reason;
  return "Status";
}

std::string ResponseHead(const HeadParts& parts) {
  std::string head =
      "HTTP/1.1 " + std::to_string(parts.status) + " " + StatusReason(parts.status) + "\r\n";
  if (!parts.content_type.empty()) AppendField("Content-Type", parts.content_type, &head);
  if (parts.headers != nullptr)
    for (const auto& [name, value] : *parts.headers) AppendField(name, value, &head);
  head.append(parts.framing);
  if (parts.connection == Connection::kClose) head.append("Connection: close\r\n");
  if (parts.connection == Connection::kKeepAlive) head.append("Connection: keep-alive\r\n");
  return head.append("\r\n");
}

std::string ContentLengthLine(uint64_t bytes) {
  return "Content-Length: " + std::to_string(bytes) + "\r\n";
}

std::string ChunkSizeLine(size_t bytes) {
  char text[24];
  std::snprintf(text, sizeof text, "%zx\r\n", bytes);
  return text;
}

}  // namespace hutch::daemon
