#include "tools/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "tools/line_reader.h"
#include "tools/sse.h"

namespace hutch::tools {
namespace {

namespace http = boost::beast::http;

// A string that grows as bytes come. Beast's own sets aside the whole Content-Length at once.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, std::string& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& failed) { failed = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      size_t taken = 0;
      for (const boost::asio::const_buffer piece : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(piece.data()), piece.size());
        taken += piece.size();
      }
      return taken;
    }
    void finish(boost::system::error_code& failed) { failed = {}; }

   private:
    std::string& body_;
  };
};
using Parser = http::response_parser<GrowingBody>;

constexpr size_t kReadBytes = size_t{256} << 10;
Error Broken(const std::string& path, std::string how) {
  return Error{.code = Code::kUnavailable,
               .what = "the connection to " + path + " " + std::move(how)};
}

std::string HeadOf(const Request& request, const Endpoint& endpoint) {
  std::string text;
  text.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\n");
  text.append(endpoint.HeadLines()).append("User-Agent: hutch/" HUTCH_VERSION "\r\nAccept: ");
  text.append(request.accept).append("\r\n");
  if (!request.idempotency_key.empty())
    text.append("Idempotency-Key: ").append(request.idempotency_key).append("\r\n");
  return text;
}

std::string Serialize(const Request& request, const Endpoint& endpoint) {
  std::string text = HeadOf(request, endpoint);
  if (!request.body.empty()) {
    text.append("Content-Type: application/json\r\nContent-Length: ");
    text.append(std::to_string(request.body.size())).append("\r\n");
  } else if (std::strcmp(request.method, "POST") == 0) {
    text.append("Content-Length: 0\r\n");
  }
  return text.append("\r\n").append(request.body);
}

// The daemon closes idle connections; asking first keeps us from sending into a dead one.
bool ClosedByPeer(int socket_fd) {
  char byte = 0;
  const ssize_t n = ::recv(socket_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);  // unasked bytes are no better
}

bool IsEventStream(const Parser& parser) {
  const auto type = parser.get()[http::field::content_type];
  return type.starts_with("text/event-stream");
}

Code CodeFromName(const std::string& name, int status) {
  if (status == 401) return Code::kForbidden;  // "unauthenticated", of TCP alone
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i)
    if (const Code code = static_cast<Code>(i); name == CodeName(code)) return code;
  return status >= 500 ? Code::kInternal : Code::kInvalidArgument;
}

int ErrnoFromName(const std::string& name) {
  for (int sys = 1; sys < 134; ++sys)
    if (const char* known = strerrorname_np(sys); known != nullptr && name == known) return sys;
  return 0;
}

Error ErrorFromJson(int status, const oci::Json& reply) {
  std::string code, message, field, hint, step, sys;
  oci::ObjectReader top(reply, "");
  const oci::Json* object = top.Member("error");
  oci::ObjectReader reader(object != nullptr ? *object : reply, "error");
  reader.String("code", &code)
      .String("message", &message)
      .String("field", &field)
      .String("hint", &hint)
      .String("step", &step)
      .String("errno", &sys);
  if (!reader.Done(oci::ObjectReader::Unknown::kIgnore) || message.empty())
    return Error{.what = "status " + std::to_string(status) + " without an error object"};
  if (!step.empty() && message.compare(0, step.size(), step) != 0) message = step + ": " + message;
  return Error{.code = CodeFromName(code, status),
               .sys = ErrnoFromName(sys),
               .what = std::move(message),
               .field = std::move(field),
               .hint = std::move(hint)};
}

Result<oci::Json> ParseReply(std::string_view text) {
  auto parsed = oci::ParseJson(text, {.max_bytes = kMaxReplyBytes});
  if (parsed) return parsed;
  return Error{.what = "the daemon's reply: " + parsed.error().what};
}

}  // namespace

Error ErrorFromReply(int status, std::string_view body) {
  const auto parsed = oci::ParseJson(body);
  if (!parsed || !parsed->is_object())
    return Error{.what = "status " + std::to_string(status) + " without an error object"};
  return ErrorFromJson(status, *parsed);
}

std::string EncodeSegment(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:";
  std::string encoded;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos)
      encoded += c;
    else
      encoded.append(1, '%').append(HexEncode(std::string_view(&c, 1)));
  }
  return encoded;
}

Status Client::EnsureConnected() {
  if (socket_.valid() && !ClosedByPeer(socket_.get())) return OkStatus();
  ASSIGN_OR_RETURN(socket_, ConnectToDaemon(endpoint_));
  return OkStatus();
}

Status Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return OkStatus();
    if (n < 0) return SysError(errno, "send to " + endpoint_.name);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

Result<Client::Sent> Client::SendUnlessAnswered(std::string_view bytes) {
  while (!bytes.empty()) {
    pollfd watched[] = {{socket_.get(), POLLIN | POLLOUT, 0}, {interrupt_fd_, POLLIN, 0}};
    const int ready = ::poll(watched, 2, silence_limit_ms_);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return SysError(errno, "poll");
    if (ready == 0) return Broken(endpoint_.name, "was silent for too long");
    if (watched[1].revents != 0) return Error{.code = Code::kUnavailable, .what = "interrupted"};
    if ((watched[0].revents & POLLIN) != 0) return Sent::kAnsweredFirst;
    const ssize_t n =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return Sent::kAnsweredFirst;
    if (n < 0 && errno != EINTR && errno != EAGAIN)
      return SysError(errno, "send to " + endpoint_.name);
    bytes.remove_prefix(n > 0 ? static_cast<size_t>(n) : 0);
  }
  return Sent::kAll;
}

Status Client::SendBody(const BodySource& source, std::optional<uint64_t> size) {
  std::vector<char> piece(kReadBytes);
  uint64_t left = size.value_or(UINT64_MAX);
  while (left > 0) {
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(left, piece.size()));
    ASSIGN_OR_RETURN(const size_t got, source(piece.data(), wanted));
    if (got == 0 && size)
      return Error{.code = Code::kUnavailable, .what = "the source ended before its size"};
    std::string framed;
    if (!size) {
      char head[24];
      std::snprintf(head, sizeof head, "%zx\r\n", got);
      framed = head;
    }
    framed.append(piece.data(), got);
    if (!size) framed += "\r\n";
    ASSIGN_OR_RETURN(const Sent sent, SendUnlessAnswered(framed));
    if (got == 0 || sent == Sent::kAnsweredFirst) break;
    if (size) left -= got;
  }
  return OkStatus();
}

Result<size_t> Client::Receive(char* bytes, size_t size) {
  pollfd watched[] = {{socket_.get(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
  for (;;) {
    const int ready = ::poll(watched, 2, silence_limit_ms_);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return SysError(errno, "poll");
    if (ready == 0) return Broken(endpoint_.name, "was silent for too long");
    if (watched[1].revents != 0) return Error{.code = Code::kUnavailable, .what = "interrupted"};
    const ssize_t n = ::recv(socket_.get(), bytes, size, 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == ECONNRESET) return size_t{0};
    if (errno != EINTR) return SysError(errno, "receive from " + endpoint_.name);
  }
}

Result<Reply> Client::ReceiveReply(ToSink which, const BodySink& sink) {
  Parser parser;
  parser.eager(true);
  // What is kept is bounded below. boost::none would be less than any length (Boost 1.74).
  parser.body_limit(UINT64_MAX);
  std::string pending;
  std::vector<char> chunk(kReadBytes);
  while (!parser.is_done()) {
    ASSIGN_OR_RETURN(const size_t got, Receive(chunk.data(), chunk.size()));
    pending.append(chunk.data(), got);
    boost::system::error_code failed;
    if (got == 0) {
      parser.put_eof(failed);
      if (failed || !parser.is_done())
        return Broken(endpoint_.name, "was closed before the answer");
      break;
    }
    const size_t used = parser.put(boost::asio::buffer(pending), failed);
    if (failed && failed != http::error::need_more)
      return Broken(endpoint_.name, "carried no HTTP reply: " + failed.message());
    pending.erase(0, used);
    const bool to_sink =
        parser.is_header_done() && which != ToSink::kNothing &&
        (which == ToSink::kEvents ? IsEventStream(parser) : parser.get().result_int() < 300);
    if (to_sink) {
      RETURN_IF_ERROR(sink(parser.get().body()));
      parser.get().body().clear();
    } else if (parser.get().body().size() > kMaxReplyBytes) {
      return Broken(endpoint_.name, "carried a reply of more than 1 GiB");
    }
  }
  if (!parser.keep_alive()) socket_.reset();
  return Reply{.status = static_cast<int>(parser.get().result_int()),
               .body = std::move(parser.get().body())};
}

Result<Reply> Client::Exchange(const Request& request) {
  RETURN_IF_ERROR(EnsureConnected());
  RETURN_IF_ERROR(Send(Serialize(request, endpoint_)));
  auto reply = ReceiveReply(ToSink::kNothing, nullptr);
  if (!reply) HangUp();  // what follows on this connection would answer the wrong question
  return reply;
}

Result<oci::Json> Client::Call(const Request& request) {
  ASSIGN_OR_RETURN(const Reply reply, Exchange(request));
  if (reply.status >= 400) return ErrorFromReply(reply.status, reply.body);
  if (reply.body.empty()) return oci::Json(nullptr);
  return ParseReply(reply.body);
}

Result<oci::Json> Client::PostWithProgress(
    std::string target, const oci::Json& body,
    const std::function<void(const oci::Json&)>& on_progress) {
  RETURN_IF_ERROR(EnsureConnected());
  RETURN_IF_ERROR(Send(Serialize({.method = "POST",
                                  .target = std::move(target),
                                  .body = oci::PrintJson(body),
                                  .accept = "text/event-stream, application/json"},
                                 endpoint_)));
  SseReader events;
  std::optional<Result<oci::Json>> end;
  const auto take = [&](std::string_view bytes) -> Status {
    ASSIGN_OR_RETURN(const std::vector<SseEvent> arrived, events.Feed(bytes));
    for (const SseEvent& event : arrived) {
      ASSIGN_OR_RETURN(oci::Json data, ParseReply(event.data));
      if (event.name == "progress") on_progress(data);
      if (event.name == "result") end = std::move(data);
      if (event.name == "error") end = ErrorFromJson(500, data);
    }
    return OkStatus();
  };
  auto reply = ReceiveReply(ToSink::kEvents, take);
  if (!reply) HangUp();
  if (end) return *std::move(end);
  if (!reply) return std::move(reply).error();
  if (reply->status >= 400) return ErrorFromReply(reply->status, reply->body);
  if (reply->body.empty()) return Broken(endpoint_.name, "ended without a result");
  return ParseReply(reply->body);
}

Status Client::Download(const Request& request, const BodySink& sink) {
  RETURN_IF_ERROR(EnsureConnected());
  RETURN_IF_ERROR(Send(Serialize(request, endpoint_)));
  auto reply = ReceiveReply(ToSink::kSuccess, sink);
  if (!reply) HangUp();
  if (!reply) return std::move(reply).error();
  if (reply->status >= 400) return ErrorFromReply(reply->status, reply->body);
  return OkStatus();
}

Status Client::ReadEvents(Request request, const EventSink& on_event) {
  LineReader lines;
  request.accept = "application/x-ndjson";
  return Download(request, [&](std::string_view bytes) {
    return lines.Feed(bytes, [&](std::string_view line) -> Status {
      ASSIGN_OR_RETURN(const oci::Json event, ParseReply(line));
      const auto name = event.is_object() ? event.find("event") : event.end();
      if (name == event.end()) return Error{.what = "the daemon's event has no name"};
      if (*name == "error") return ErrorFromJson(500, event);
      return *name == "heartbeat" ? OkStatus() : on_event(event);
    });
  });
}

Result<oci::Json> Client::Upload(const Request& request, const BodySource& source,
                                 std::optional<uint64_t> size) {
  RETURN_IF_ERROR(EnsureConnected());
  std::string head = HeadOf(request, endpoint_) + "Content-Type: application/octet-stream\r\n";
  head += size ? "Content-Length: " + std::to_string(*size) : "Transfer-Encoding: chunked";
  Status sent = Send(head + "\r\n\r\n");
  if (sent) sent = SendBody(source, size);
  // What was begun and not ended must not be taken for the whole.
  if (!sent) HangUp();
  if (!sent) return std::move(sent).error();
  auto reply = ReceiveReply(ToSink::kNothing, nullptr);
  if (!reply) HangUp();
  if (!reply) return std::move(reply).error();
  if (reply->status >= 400) return ErrorFromReply(reply->status, reply->body);
  return reply->body.empty() ? oci::Json(nullptr) : ParseReply(reply->body);
}

}  // namespace hutch::tools
