// What handlers see of HTTP: a request by value, a reply by value, and a one-shot responder that
// may answer now or later, with one reply, a pipe's bytes, events or a WebSocket. No sockets.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/status_counts.h"
#include "oci/json.h"

namespace hutch::daemon {

// Who asks: SO_PEERCRED of a Unix socket's connection, or the token that came over TCP. Of a token
// pid is 0, uid and gid are nobody's.
struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string token = {};  // its name; empty on the Unix socket
};
inline constexpr uid_t kNoUid = static_cast<uid_t>(-1);

// Names as sent, values without the white space around them.
using Headers = std::vector<std::pair<std::string, std::string>>;

// What a route does with a request's body. kStream: the handler is called once the head is
// complete and calls Responder::ReceiveBody(). kTakeOver: likewise, and Responder::TakeOver(); its
// query is not read.
enum class Body { kNone, kJson, kStream, kTakeOver };

struct Request {
  std::string method;
  std::string path;        // percent-encoded, as sent
  std::string query_text;  // as sent, without the question mark
  std::vector<std::pair<std::string, std::string>> query;
  std::vector<std::string> parameters;  // values of the pattern's {names}, decoded, in order
  Headers headers;
  std::optional<uint64_t> content_length = {};  // as sent; empty for a chunked body too
  bool wants_events = false;                    // Accept: text/event-stream
  bool wants_ndjson = false;                    // Accept: application/x-ndjson
  std::string body;
  oci::Json json;  // the body parsed, for routes that take one
  Peer peer;

  // The first value of a header whatever the case of its name; "" when it was not sent.
  std::string_view Header(std::string_view name) const;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers = {};  // beside Content-Type, Content-Length and Connection
};

struct StreamHead {
  int status = 200;
  std::string content_type = "application/octet-stream";
  Headers headers = {};
  std::optional<uint64_t> length = {};  // Content-Length; empty: chunked
};

// A connection that a handler goes on with by itself. The request's body is still to come on it,
// its beginning in `buffered`, and behind it whatever the client sends.
struct TakenConnection {
  UniqueFd socket = UniqueFd();
  std::string buffered = {};
  uint64_t body_left = 0;  // with what is buffered; 0 when chunked
  bool chunked = false;
  bool http_1_0 = false;
};

// Bytes moved, or why it ended early. Called once, on the loop's thread, never from within the
// call it was given to.
using StreamDone = std::function<void(Result<uint64_t>)>;

enum class EventFormat { kServerSent, kNdjson };
// One event as it goes over the wire. `json_object` is the text of an object. NDJSON: {"event":
// name, "id": id, ...members of the object}, "id" only when it is not empty.
std::string EventText(EventFormat format, std::string_view name, std::string_view json_object,
                      std::string_view id);

// What a WebSocket tells; on the loop's thread. `on_closed` once, when nothing more will come: the
// client closed or is gone, or CloseWebSocket() was answered.
struct WebSocketHandler {
  std::function<void(bool binary, std::string data)> on_message;
  std::function<void()> on_closed;
};

// The step of errors that say what the host, or an owner, has no room for at the moment.
inline constexpr const char* kAdmissionStep = "admission";

// With Retry-After where the JSON is an error that has "retry_after_seconds".
Reply JsonReply(int status, const oci::Json& json);
Reply ErrorReply(const Error& error);
// {"error": {...}}; with "retry_after_seconds" where the same request may succeed later:
// kUnavailable, and kLimit of the step "admission".
oci::Json ErrorJson(const Error& error);

// The connection's side of one request; the contracts are Responder's. Implemented by the HTTP
// session and by tests.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void SendReply(Reply reply) = 0;
  virtual void SetHangupHandler(std::function<void()> handler) = 0;
  virtual void ReceiveBody(UniqueFd pipe, StreamDone done) = 0;
  virtual void SendStream(StreamHead head, UniqueFd pipe, StreamDone done) = 0;
  virtual void StartEvents() = 0;
  virtual void SendEvent(std::string_view name, std::string json_object, std::string_view id) = 0;
  virtual void EndEvents() = 0;
  virtual bool Congested() const = 0;
  virtual void OnDrained(std::function<void()> handler) = 0;
  virtual Status StartWebSocket(WebSocketHandler handler) = 0;
  virtual void SendMessage(bool binary, std::string data) = 0;
  virtual void PauseMessages(bool paused) = 0;
  virtual void CloseWebSocket(uint16_t code, std::string reason) = 0;
  virtual Result<TakenConnection> TakeOver() {
    return Error{.code = Code::kUnsupported, .what = "no connection to take over"};
  }
};

// Answers one request exactly once; destroyed unanswered it answers kInternal (events are ended, a
// WebSocket is closed with 1011). Moves only. Once the client is gone all calls do nothing.
class Responder {
 public:
  using WebSocketHandler = daemon::WebSocketHandler;

  explicit Responder(std::shared_ptr<ReplySink> sink) : sink_(std::move(sink)) {}
  Responder(Responder&&) noexcept = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder();

  // From now on the status of the answer is counted there; borrowed.
  void CountIn(StatusCounts& counts) { counts_ = &counts; }
  void Send(Reply reply);
  void Send(const Error& error) { Send(ErrorReply(error)); }
  // Called at most once, when the client is gone before it was answered, or while it gets events;
  // in a turn of the loop of its own, never from within a call of this class. Not after the answer.
  // Of SendStream() and StartWebSocket() their own callbacks tell it.
  void OnHangup(std::function<void()> handler);

  // For routes with Body::kStream, at most once and before the answer: moves the body into the pipe
  // as it arrives, with back-pressure and in constant memory, then closes the pipe. After an error
  // (client gone, no byte for the HTTP time-out, malformed chunk, reader of the pipe gone: EPIPE)
  // the rest is thrown away and the connection ends with the answer, as it does when a body is not
  // received at all. `pipe` becomes non-blocking.
  void ReceiveBody(UniqueFd pipe, StreamDone done);
  // Answers with the bytes of a pipe until its end, or head.length bytes; an end before them closes
  // the connection, so that the client sees the cut. Closes the pipe before `done`. To HEAD only
  // the head goes. `pipe` becomes non-blocking.
  void SendStream(StreamHead head, UniqueFd pipe, StreamDone done);

  // Events instead of one reply: NDJSON when the client asked for it (wants_ndjson), else
  // server-sent events. Events named "progress" are dropped while congested. End() finishes.
  void StartEvents();
  void Event(std::string_view name, std::string json_object, std::string_view id = {});
  // The reader of events or messages is more than kMaxStreamBacklogBytes behind: stop producing.
  bool Congested() const { return sink_ != nullptr && sink_->Congested(); }
  // `handler` is called once when it no longer is (soon, if it is not now), never from within this
  // call; dropped when the client is gone. One at a time.
  void OnDrained(std::function<void()> handler) {
    if (sink_ != nullptr) sink_->OnDrained(std::move(handler));
  }
  void End();

  // For routes with Body::kTakeOver: the connection is the caller's, and this is done. An error
  // (kUnavailable: the client is gone) is to be answered.
  Result<TakenConnection> TakeOver();

  // Answers 101 (RFC 6455). kInvalidArgument when the request is no proper WebSocket handshake; it
  // is to be answered otherwise then. Messages of the client are bounded by
  // kMaxWebSocketMessageBytes.
  Status StartWebSocket(WebSocketHandler handler);
  void Message(bool binary, std::string data);
  // While paused no messages are read, so that the client feels it.
  void PauseMessages(bool paused) {
    if (sink_ != nullptr) sink_->PauseMessages(paused);
  }
  void CloseWebSocket(uint16_t code, std::string reason);

 private:
  void Count(int status) {
    if (StatusCounts* counts = std::exchange(counts_, nullptr)) counts->Add(status);
  }
  std::shared_ptr<ReplySink> sink_;
  StatusCounts* counts_ = nullptr;  // once
};

}  // namespace hutch::daemon
