// What handlers see of HTTP: a request by value, a reply by value, and a one-shot responder that
// may answer now or later. No sockets.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::daemon {

struct Peer {  // SO_PEERCRED of the connection
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Request {
  std::string method;
  std::string path;  // percent-encoded, as sent
  std::vector<std::pair<std::string, std::string>> query;
  std::vector<std::string> parameters;  // values of the pattern's {names}, decoded, in order
  bool wants_events = false;            // Accept: text/event-stream
  bool wants_lines = false;             // Accept: application/x-ndjson
  std::string body;
  oci::Json json;  // the body parsed, for routes that take one
  Peer peer;
};

struct Reply {
  int status = 200;
  std::string body;
  const char* content_type = "application/json";
};

Reply JsonReply(int status, const oci::Json& json);
Reply ErrorReply(const Error& error);
oci::Json ErrorJson(const Error& error);  // {"error": {...}}

// The connection's side of one request. Implemented by the HTTP session and by tests.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void SendReply(Reply reply) = 0;
  virtual void StartEvents() = 0;  // answers 200 text/event-stream
  virtual void SendEvent(std::string_view name, std::string data) = 0;  // after StartEvents
  virtual void EndEvents() = 0;
  virtual void SetHangupHandler(
      std::function<void()> handler) = 0;  // called at most once, before an answer
};

// Answers one request exactly once; destroyed unanswered it answers kInternal. Moves only.
class Responder {
 public:
  explicit Responder(std::shared_ptr<ReplySink> sink) : sink_(std::move(sink)) {}
  Responder(Responder&&) noexcept = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder();

  void Send(Reply reply);
  void Send(const Error& error) { Send(ErrorReply(error)); }
  // Called when the client is gone before it was answered.
  void OnHangup(std::function<void()> handler);

  // Server-sent events instead of one reply; End() finishes.
  void StartEvents();
  void Event(std::string_view name, std::string data);
  void End();

 private:
  std::shared_ptr<ReplySink> sink_;
};

}  // namespace hutch::daemon
