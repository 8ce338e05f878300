// HTTP/1.1 with JSON to the daemon: one keep-alive connection, used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/json.h"
#include "tools/endpoint.h"

namespace hutch::tools {

// A reply above this is refused: output limits of the daemon stay far below it.
inline constexpr size_t kMaxReplyBytes = size_t{1} << 30;

struct Request {
  const char* method = "GET";
  std::string target = {};  // path and query, percent-encoded
  std::string body = {};    // JSON text, or empty for none
  const char* accept = "application/json";
  std::string idempotency_key = {};  // empty: no such header
};

struct Reply {
  int status = 0;
  std::string body;
};

// Takes a body as it comes; an error ends the call and is the call's.
using BodySink = std::function<Status(std::string_view bytes)>;
// Fills up to `size` bytes and says how many; 0 at the end.
using BodySource = std::function<Result<size_t>(char* bytes, size_t size)>;
using EventSink = std::function<Status(const oci::Json& event)>;

class Client {
 public:
  // Nothing is opened until the first call.
  explicit Client(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  const Endpoint& endpoint() const { return endpoint_; }
  // Calls end with kUnavailable "interrupted" once this descriptor is readable (borrowed; -1 none).
  void set_interrupt_fd(int fd) { interrupt_fd_ = fd; }
  // No byte for this long ends a call with kUnavailable; -1 (the default) waits for ever.
  void set_silence_limit_ms(int limit_ms) { silence_limit_ms_ = limit_ms; }

  // The reply as it came, whatever its status. kUnavailable when nothing listens or the connection
  // broke, kForbidden when the socket may not be used; both with a hint. A connection that the
  // daemon closed between two calls is opened again; a request is never sent twice.
  Result<Reply> Exchange(const Request& request);

  // The reply's JSON (null for an empty body). A status of 400 or more becomes the Error that the
  // daemon described.
  Result<oci::Json> Call(const Request& request);
  Result<oci::Json> Get(std::string target) { return Call({.target = std::move(target)}); }
  Result<oci::Json> Delete(std::string target) {
    return Call({.method = "DELETE", .target = std::move(target)});
  }
  Result<oci::Json> Post(std::string target, const oci::Json& body) {
    return Call({.method = "POST", .target = std::move(target), .body = oci::PrintJson(body)});
  }

  // POST that asks for server-sent events: `on_progress` sees the data of each "progress" event,
  // the value is the data of "result", the error that of "error". A plain JSON reply works too.
  Result<oci::Json> PostWithProgress(std::string target, const oci::Json& body,
                                     const std::function<void(const oci::Json&)>& on_progress);

  // The events of a call, one JSON object a line: each as {"event", ...its data}. Heartbeats are
  // left out; an "error" event becomes the Error it tells.
  Status ReadEvents(Request request, const EventSink& on_event);
  // A reply's body of any length, in constant memory. An error reply becomes its Error.
  Status Download(const Request& request, const BodySink& sink);
  // A body of any length, in constant memory: of `size` bytes when known, else chunked. The value
  // is the reply's JSON. Where the daemon answers before the end the rest is not read from
  // `source`.
  Result<oci::Json> Upload(const Request& request, const BodySource& source,
                           std::optional<uint64_t> size);

  // Closes the connection: the daemon kills a command that is still running for it.
  void HangUp() { socket_.reset(); }

 private:
  enum class ToSink { kNothing, kEvents, kSuccess };  // which replies' bodies are not returned
  enum class Sent { kAll, kAnsweredFirst };
  Status EnsureConnected();
  Status Send(std::string_view bytes);
  // Ends early when the daemon says something.
  Result<Sent> SendUnlessAnswered(std::string_view bytes);
  Status SendBody(const BodySource& source, std::optional<uint64_t> size);
  Result<size_t> Receive(char* bytes, size_t size);
  Result<Reply> ReceiveReply(ToSink which, const BodySink& sink);

  Endpoint endpoint_;
  UniqueFd socket_;
  int interrupt_fd_ = -1;
  int silence_limit_ms_ = -1;
};

// The Error in an error reply's body; a body that is none is told as what it is.
Error ErrorFromReply(int status, std::string_view body);
// One segment of a path: everything but unreserved characters and ':' as %XX.
std::string EncodeSegment(std::string_view text);

}  // namespace hutch::tools
