#include "network/egress/http_head.h"

#include <algorithm>

#include "base/text.h"
#include "network/egress/limits.h"

namespace hutch::network {
namespace {

constexpr size_t kMaxMethodBytes = 32;
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";
// Between two hops (RFC 9110, 7.6.1).
constexpr std::string_view kHopFields[] = {
    "connection", "proxy-connection",    "keep-alive",         "te",
    "upgrade",    "proxy-authorization", "proxy-authenticate", "http2-settings"};
// What Connection may not take away: it would change what the message is.
constexpr std::string_view kEndToEnd[] = {"host",         "content-length", "transfer-encoding",
                                          "content-type", "authorization",  "cookie"};

constexpr std::string_view kOverrides[] = {"x-http-method-override", "x-http-method",
                                           "x-method-override", "x-original-url", "x-rewrite-url"};

Error Bad(std::string what) { return {.code = Code::kInvalidArgument, .what = std::move(what)}; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsTokenChar(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kTokenMarks.find(c) != std::string_view::npos;
}
bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}
bool IsVisible(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}
bool IsFieldValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
  });
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}
bool IsName(std::string_view name, std::string_view lower) {
  return name.size() == lower.size() && Lower(name) == lower;
}

// Items of a list such as "keep-alive, Upgrade", in lower case.
std::vector<std::string> Items(const std::vector<HttpField>& fields, std::string_view name) {
  std::vector<std::string> items;
  for (const HttpField& field : fields)
    if (IsName(field.name, name))
      for (const std::string& item : Split(field.value, ','))
        if (const auto trimmed = Trim(item); !trimmed.empty()) items.push_back(Lower(trimmed));
  return items;
}
bool Has(const std::vector<std::string>& items, std::string_view item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// The lines of a head without the last, empty one.
Result<std::vector<std::string_view>> Lines(std::string_view head) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t end = head.find("\r\n");
    if (end == std::string_view::npos) return Bad("the head does not end");
    if (end == 0) break;
    lines.push_back(head.substr(0, end));
    head.remove_prefix(end + 2);
  }
  if (head.size() != 2) return Bad("something is behind the head");
  if (lines.empty()) return Bad("the head is empty");
  if (lines.size() > kMaxHeadFields + 1) return Bad("too many header fields");
  return lines;
}

Status ReadFields(const std::vector<std::string_view>& lines, std::vector<HttpField>* fields) {
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line[0] == ' ' || line[0] == '\t') return Bad("a header field is folded over two lines");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !IsToken(line.substr(0, colon)))
      return Bad("a header field has no proper name");
    const std::string_view value = line.substr(colon + 1);
    if (!IsFieldValue(value)) return Bad("a header field has control characters");
    fields->push_back({std::string(line.substr(0, colon)), std::string(Trim(value))});
  }
  return OkStatus();
}

struct Framing {
  size_t lengths = 0, codings = 0;
  std::string length, coding;
};
Framing FindFraming(const std::vector<HttpField>& fields) {
  Framing framing;
  for (const HttpField& field : fields) {
    if (IsName(field.name, "content-length")) ++framing.lengths, framing.length = field.value;
    if (IsName(field.name, "transfer-encoding"))
      ++framing.codings, framing.coding = Lower(field.value);
  }
  return framing;
}

Status ReadRequestBody(RequestHead* request) {
  const Framing framing = FindFraming(request->fields);
  if (framing.lengths + framing.codings > 1)
    return Bad("more than one of Content-Length and Transfer-Encoding");
  if (framing.codings == 1) {
    if (request->http10) return Bad("Transfer-Encoding in HTTP/1.0");
    if (framing.coding != "chunked") return Bad("a Transfer-Encoding other than chunked");
    request->body = BodyKind::kChunked;
  }
  if (framing.lengths == 1) {
    const auto length = ParseUint(framing.length, INT64_MAX);
    if (!length) return Bad("Content-Length is no number");
    request->body = *length == 0 ? BodyKind::kNone : BodyKind::kLength;
    request->body_bytes = *length;
  }
  return OkStatus();
}

// The authority is the target's, if it has one, and the Host field's: they must agree.
Status ReadTarget(std::string_view target, uint16_t default_port, RequestHead* request) {
  std::optional<Authority> written;
  if (request->method == "CONNECT") {
    ASSIGN_OR_RETURN(written, ReadAuthority(target));
    if (written->port == 0) return Bad("CONNECT without a port");
  } else if (IsName(target.substr(0, 7), "http://")) {
    target.remove_prefix(7);
    const size_t slash = target.find_first_of("/?");
    ASSIGN_OR_RETURN(written, ReadAuthority(target.substr(0, slash)));
    if (written->port == 0) written->port = 80;
    request->absolute = true;
    const std::string_view rest = slash == std::string_view::npos ? "" : target.substr(slash);
    request->path = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  } else if (target.starts_with('/') || (target == "*" && request->method == "OPTIONS")) {
    request->path = std::string(target);
  } else {
    return Bad("the request's target is neither a path nor an http:// address");
  }
  if (request->path.find('#') != std::string::npos) return Bad("the target has a fragment");
  std::optional<Authority> host;
  for (const HttpField& field : request->fields) {
    if (!IsName(field.name, "host")) continue;
    if (host) return Bad("more than one Host");
    ASSIGN_OR_RETURN(host, ReadAuthority(field.value));
    if (host->port == 0) host->port = request->absolute ? 80 : default_port;
  }
  if (!host && !request->http10) return Bad("no Host");
  if (!host && !written) return Bad("no Host");
  // Clients send CONNECT's Host with and without the port.
  if (host && written &&
      (host->host != written->host ||
       (host->port != written->port && request->method != "CONNECT")))
    return Bad("Host is another than the target's");
  const Authority& authority = written ? *written : *host;
  request->host = authority.host;
  request->port = authority.port;
  return OkStatus();
}

Status ReadConnection(RequestHead* request) {
  const auto items = Items(request->fields, "connection");
  for (const std::string_view name : kEndToEnd)
    if (Has(items, name)) return Bad("Connection names " + std::string(name));
  const auto proxy_items = Items(request->fields, "proxy-connection");
  const bool keep = Has(items, "keep-alive") || Has(proxy_items, "keep-alive");
  request->close = Has(items, "close") || Has(proxy_items, "close") || (request->http10 && !keep);
  const auto upgrades = Items(request->fields, "upgrade");
  request->websocket = !request->http10 && Has(items, "upgrade") && upgrades.size() == 1 &&
                       upgrades[0] == "websocket" && request->method == "GET" &&
                       request->body == BodyKind::kNone;
  return OkStatus();
}

// Without what is between two hops, and without `skip`.
void AppendFields(const std::vector<HttpField>& fields, std::string_view skip, std::string* out) {
  const auto named = Items(fields, "connection");
  for (const HttpField& field : fields) {
    const std::string name = Lower(field.name);
    const bool hop =
        std::find(std::begin(kHopFields), std::end(kHopFields), name) != std::end(kHopFields);
    if (hop || name == skip || Has(named, name)) continue;
    *out += field.name + ": " + field.value + "\r\n";
  }
}

}  // namespace

Result<size_t> FindHeadEnd(std::string_view bytes) {
  size_t line = 0;
  for (size_t at = 0; at < bytes.size() && at < kMaxHeadBytes; ++at) {
    if (bytes[at] == '\0') return Bad("a NUL in the head");
    if (bytes[at] == '\r' && at + 1 < bytes.size() && bytes[at + 1] != '\n')
      return Bad("a line ends with CR alone");
    if (bytes[at] != '\n') continue;
    if (at == 0 || bytes[at - 1] != '\r') return Bad("a line ends with LF alone");
    if (at - 1 == line) return at + 1;
    line = at + 1;
  }
  if (bytes.size() >= kMaxHeadBytes)
    return Error{.code = Code::kTooLarge, .what = "the head is longer than 32 KiB"};
  return size_t{0};
}

Result<Authority> ReadAuthority(std::string_view text) {
  Authority authority;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return Bad("a bracket is not closed");
    authority.host = Lower(text.substr(1, end - 1));
    if (authority.host.find(':') == std::string::npos) return Bad("brackets are for IPv6");
    port = text.substr(end + 1);
  } else {
    const size_t colon = text.find(':');
    authority.host = Lower(text.substr(0, colon));
    port = colon == std::string_view::npos ? "" : text.substr(colon);
    if (authority.host.ends_with('.')) authority.host.pop_back();
  }
  const bool plain = std::all_of(authority.host.begin(), authority.host.end(), [](char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '_' || c == ':';
  });
  if (authority.host.empty() || !plain) return Bad("a host with other characters than names have");
  if (port.empty()) return authority;
  const auto number = port[0] == ':' ? ParseUint(port.substr(1), 65535) : Bad("");
  if (!number || *number == 0) return Bad("a port that is none");
  authority.port = static_cast<uint16_t>(*number);
  return authority;
}

Result<RequestHead> ReadRequest(std::string_view head, uint16_t default_port) {
  ASSIGN_OR_RETURN(const auto lines, Lines(head));
  RequestHead request;
  const std::vector<std::string> words = Split(lines[0], ' ');
  if (words.size() != 3) return Bad("the request line has not three words");
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return Bad("not HTTP/1.1 and not HTTP/1.0");
  if (!IsToken(words[0]) || words[0].size() > kMaxMethodBytes) return Bad("no method");
  if (!IsVisible(words[1])) return Bad("the target has other characters than visible ones");
  request.method = words[0];
  request.http10 = words[2] == "HTTP/1.0";
  RETURN_IF_ERROR(ReadFields(lines, &request.fields));
  RETURN_IF_ERROR(ReadTarget(words[1], default_port, &request));
  RETURN_IF_ERROR(ReadRequestBody(&request));
  RETURN_IF_ERROR(ReadConnection(&request));
  if (request.method == "CONNECT" && request.body != BodyKind::kNone)
    return Bad("CONNECT with a body");
  return request;
}

std::string PrintRequest(const RequestHead& request, std::string_view authority,
                         const std::optional<HttpField>& set) {
  std::string out =
      request.method + " " + request.path + (request.http10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
  out += "Host: " + std::string(authority) + "\r\n";
  std::vector<HttpField> fields = request.fields;
  std::erase_if(fields, [&](const HttpField& field) {
    return IsName(field.name, "host") || (set && Lower(field.name) == Lower(set->name));
  });
  AppendFields(fields, "", &out);
  if (set) out += set->name + ": " + set->value + "\r\n";
  if (request.websocket)
    out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  else
    out += request.close ? "Connection: close\r\n" : "Connection: keep-alive\r\n";
  return out + "\r\n";
}

void RemoveOverrides(RequestHead* request) {
  std::erase_if(request->fields, [](const HttpField& field) {
    std::string name = Lower(field.name);
    std::replace(name.begin(), name.end(), '_', '-');  // one and the same to many servers
    return std::find(std::begin(kOverrides), std::end(kOverrides), name) != std::end(kOverrides);
  });
}

Result<ResponseHead> ReadResponse(std::string_view head, std::string_view request_method) {
  ASSIGN_OR_RETURN(const auto lines, Lines(head));
  const std::string_view line = lines[0];
  const bool status_line = line.size() >= 12 && line.starts_with("HTTP/1.") &&
                           (line[7] == '0' || line[7] == '1') && line[8] == ' ' &&
                           IsDigit(line[9]) && IsDigit(line[10]) && IsDigit(line[11]) &&
                           (line.size() == 12 || line[12] == ' ') && IsFieldValue(line);
  if (!status_line || line[9] == '0') return Bad("the answer has no status line");
  ResponseHead response;
  response.status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
  if (line.size() > 13) response.reason = std::string(line.substr(13));
  RETURN_IF_ERROR(ReadFields(lines, &response.fields));
  const auto items = Items(response.fields, "connection");
  response.close = Has(items, "close") || (line[7] == '0' && !Has(items, "keep-alive"));
  const Framing framing = FindFraming(response.fields);
  if (framing.lengths + framing.codings > 1)
    return Bad("the answer has more than one of Content-Length and Transfer-Encoding");
  if (response.status < 200 || response.status == 204 || response.status == 304 ||
      request_method == "HEAD") {
    response.body = BodyKind::kNone;
  } else if (framing.codings == 1) {
    if (framing.coding != "chunked" || line[7] == '0')
      return Bad("the answer has a Transfer-Encoding other than chunked");
    response.body = BodyKind::kChunked;
  } else if (framing.lengths == 1) {
    const auto length = ParseUint(framing.length, INT64_MAX);
    if (!length) return Bad("the answer's Content-Length is no number");
    response.body = *length == 0 ? BodyKind::kNone : BodyKind::kLength;
    response.body_bytes = *length;
  }
  return response;
}

std::string PrintResponse(const ResponseHead& response, Connection connection) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " " + response.reason + "\r\n";
  AppendFields(response.fields, "", &out);
  if (connection == Connection::kUpgrade)
    out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  else
    out += connection == Connection::kKeep ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return out + "\r\n";
}

}  // namespace hutch::network
