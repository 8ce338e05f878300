#include "daemon/proxy_head.h"

#include <strings.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "daemon/http_head.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using Field = std::pair<std::string, std::string>;

Error Bad(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

bool Same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Of one connection (RFC 9110, 7.6.1), or written anew.
constexpr std::string_view kHopFields[] = {
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Content-Length",
};
// Between the client and hutch.
constexpr std::string_view kOwnFields[] = {"Authorization", "X-Forwarded-Prefix"};
constexpr std::string_view kOwnPrefix = "X-Hutch-";

// What a Connection field names.
std::vector<std::string> NamedHops(const Headers& fields) {
  std::vector<std::string> names;
  for (const auto& [name, value] : fields)
    if (Same(name, "Connection"))
      for (const std::string& part : Split(value, ',')) names.emplace_back(Trim(part));
  return names;
}

bool IsHop(std::string_view name, const std::vector<std::string>& named) {
  const auto same = [&](std::string_view other) { return Same(name, other); };
  return std::any_of(std::begin(kHopFields), std::end(kHopFields), same) ||
         std::any_of(named.begin(), named.end(), same);
}

bool IsOwn(std::string_view name) {
  return std::any_of(std::begin(kOwnFields), std::end(kOwnFields),
                     [&](std::string_view other) { return Same(name, other); }) ||
         Same(name.substr(0, kOwnPrefix.size()), kOwnPrefix);
}

void Append(std::string_view name, std::string_view value, std::string* head) {
  head->append(name).append(": ").append(value).append("\r\n");
}

bool IsTokenChar(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

// The line without its end, and `at` behind it; empty: not whole yet.
std::optional<std::string_view> NextLine(std::string_view bytes, size_t* at) {
  const size_t end = bytes.find('\n', *at);
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = bytes.substr(*at, end - *at);
  if (line.ends_with('\r')) line.remove_suffix(1);
  *at = end + 1;
  return line;
}

struct StatusLine {
  int status = 0;
  bool http_1_0 = false;
};

Result<StatusLine> ReadStatusLine(std::string_view line) {
  StatusLine read;
  if (!line.starts_with("HTTP/1.0 ") && !line.starts_with("HTTP/1.1 "))
    return Bad("its answer is not HTTP/1.x");
  read.http_1_0 = line[7] == '0';
  line.remove_prefix(9);
  const Result<uint64_t> status = ParseUint(line.substr(0, 3), 599);
  if (line.size() < 3 || !status.has_value() || *status < 100 ||
      (line.size() > 3 && line[3] != ' '))
    return Bad("its answer has no status");
  read.status = static_cast<int>(*status);
  return read;
}

Result<Field> ReadField(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos) return Bad("its answer has a malformed field");
  const std::string_view name = line.substr(0, colon);
  if (!std::all_of(name.begin(), name.end(), IsTokenChar))
    return Bad("its answer has a malformed field name");
  return Field(name, Trim(line.substr(colon + 1)));
}

// How the answer's body ends. Two readings would let a second answer hide in the first.
Status FrameAnswer(const StatusLine& line, const Headers& fields, const ProxyAsk& ask,
                   AnswerHead* head) {
  std::optional<std::string_view> length, coding;
  for (const auto& [name, value] : fields) {
    std::optional<std::string_view>* const kept = Same(name, "Content-Length")      ? &length
                                                  : Same(name, "Transfer-Encoding") ? &coding
                                                                                    : nullptr;
    if (kept == nullptr) continue;
    if (*kept) return Bad("its answer has more than one " + name);
    *kept = value;
  }
  if (length && coding) return Bad("its answer has both Content-Length and Transfer-Encoding");
  if (coding && (line.http_1_0 || !Same(*coding, "chunked")))
    return Bad("its answer has an unknown Transfer-Encoding");
  if (coding && ask.http_1_0) return Bad("its answer is chunked, which HTTP/1.0 does not know");
  uint64_t bytes = 0;
  if (length) {
    const Result<uint64_t> read = ParseUint(*length);
    if (!read.has_value()) return Bad("its answer has a malformed Content-Length");
    bytes = *read;
  }
  const bool bodiless =
      head->status < 200 || head->status == 204 || head->status == 304 || ask.head_only;
  if (bodiless && coding && !ask.head_only) return Bad("its answer has a body where there is none");
  head->framing = bodiless ? BodyFraming::kNone
                  : coding ? BodyFraming::kChunked
                  : length ? BodyFraming::kLength
                           : BodyFraming::kUntilClose;
  if (head->framing == BodyFraming::kLength) head->length = bytes;
  if (head->status >= 200 && head->status != 204) {
    if (length) head->text.append(ContentLengthLine(bytes));
    if (coding) head->text.append(kChunkedLine);
  }
  return OkStatus();
}

// A path of the program's own lies below the prefix for the client.
std::string Location(const std::string& value, const ProxyAsk& ask) {
  const bool is_path = value.starts_with('/') && !value.starts_with("//");
  if (!is_path || value == ask.prefix || value.starts_with(ask.prefix + "/")) return value;
  return ask.prefix + value;
}

Result<AnswerHead> WriteAnswer(const StatusLine& line, const Headers& fields, const ProxyAsk& ask) {
  AnswerHead head{.status = line.status, .text = {}};
  if (head.status == 101 && !ask.upgrade) return Bad("it changes the protocol unasked");
  head.text = "HTTP/1.1 " + std::to_string(head.status) + " " + StatusReason(head.status) + "\r\n";
  const std::vector<std::string> named = NamedHops(fields);
  for (const auto& [name, value] : fields) {
    if (head.status == 101 && Same(name, "Upgrade")) Append(name, value, &head.text);
    if (IsHop(name, named)) continue;
    Append(name, Same(name, "Location") ? Location(value, ask) : value, &head.text);
  }
  RETURN_IF_ERROR(FrameAnswer(line, fields, ask, &head));
  if (head.status == 101) Append("Connection", "Upgrade", &head.text);
  if (head.status >= 200) Append("Connection", "close", &head.text);
  head.text.append("\r\n");
  return head;
}

}  // namespace

bool AsksForUpgrade(const Request& request) {
  if (request.Header("Upgrade").empty()) return false;
  for (const std::string& name : NamedHops(request.headers))
    if (Same(name, "upgrade")) return true;
  return false;
}

std::string UpstreamHead(const Request& request, std::string_view path, const ProxyAsk& ask,
                         BodyFraming framing) {
  std::string head = request.method + " ";
  head.append(path);
  if (!request.query_text.empty()) head.append("?").append(request.query_text);
  head.append(ask.http_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
  const std::vector<std::string> named = NamedHops(request.headers);
  for (const auto& [name, value] : request.headers)
    if (!IsHop(name, named) && !IsOwn(name)) Append(name, value, &head);
  if (request.Header("X-Forwarded-Host").empty() && !request.Header("Host").empty())
    Append("X-Forwarded-Host", request.Header("Host"), &head);
  if (request.Header("X-Forwarded-Proto").empty()) Append("X-Forwarded-Proto", "http", &head);
  Append("X-Forwarded-Prefix", ask.prefix, &head);
  if (framing == BodyFraming::kLength) head.append(ContentLengthLine(*request.content_length));
  if (framing == BodyFraming::kChunked) head.append(kChunkedLine);
  if (ask.upgrade) Append("Upgrade", request.Header("Upgrade"), &head);
  Append("Connection", ask.upgrade ? "Upgrade" : "close", &head);
  return head.append("\r\n");
}

Result<std::optional<AnswerHead>> ReadAnswerHead(std::string_view bytes, const ProxyAsk& ask) {
  const bool is_long = bytes.size() > kMaxAnswerHeadBytes;
  bytes = bytes.substr(0, kMaxAnswerHeadBytes);
  size_t at = 0;
  std::optional<StatusLine> first;
  Headers fields;
  while (const std::optional<std::string_view> line = NextLine(bytes, &at)) {
    if (std::any_of(line->begin(), line->end(), IsControl))
      return Bad("its answer has control characters");
    if (!first) {
      ASSIGN_OR_RETURN(first, ReadStatusLine(*line));
      continue;
    }
    if (line->empty()) {
      ASSIGN_OR_RETURN(AnswerHead head, WriteAnswer(*first, fields, ask));
      head.size = at;
      return std::optional<AnswerHead>(std::move(head));
    }
    if (fields.size() >= kMaxAnswerFields) return Bad("its answer has too many fields");
    ASSIGN_OR_RETURN(Field field, ReadField(*line));
    fields.push_back(std::move(field));
  }
  if (is_long || bytes.size() == kMaxAnswerHeadBytes) return Bad("its answer's head is too long");
  return std::optional<AnswerHead>();
}

}  // namespace hutch::daemon
