// HTTP by libcurl, several requests at once on one thread. Nothing is decided here: no redirect is
// followed, nothing is tried again, no header is made up.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rootfs/registry/url.h"

namespace hutch::rootfs::registry {

// What TLS with one host needs besides the system's CAs.
struct HostTls {
  std::string extra_ca_pem;
  std::string client_cert, client_key;  // paths of PEM files; empty: none
};

struct HttpReply {
  // Empty when there was an answer; else why there is none, without a trace of the request's
  // headers or query.
  std::string failure;
  bool worth_retry = false;  // the failure may be gone the next time
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names; repeated ones joined by ", "
  std::string body;                            // what no sink took

  std::string Header(const std::string& name) const;
};

// Takes the body of an answer 200 or 206 as it comes.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Before the first byte, with status and headers. An error, here as below, ends the transfer.
  virtual Status Begin(const HttpReply& head) = 0;
  virtual Status Take(std::string_view bytes) = 0;
};

struct HttpRequest {
  Url url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string form = {};                  // POSTed where it is not empty
  uint64_t max_body_bytes = 0;            // of a body without sink: more is a failure
  unsigned stall_seconds = 30;            // slower than kMinBytesPerSecond, or for the connection
  unsigned total_seconds = 0;             // 0: no bound
  HostTls tls = {};
  BodySink* sink = nullptr;  // borrowed
};

class HttpLoop;

// One request under way; it ends with this.
class HttpTransfer {
 public:
  ~HttpTransfer();
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;
  bool done() const { return done_; }
  const HttpReply& reply() const { return reply_; }
  // What the sink said when it ended the transfer.
  const std::optional<Error>& sink_error() const { return sink_error_; }

 private:
  friend class HttpLoop;
  HttpTransfer(HttpLoop& loop, HttpRequest request);
  void Prepare();
  void SetTls();
  void Finish(int result);
  size_t OnHeader(std::string_view line);
  size_t OnBody(std::string_view bytes);
  static size_t HeaderCallback(char* bytes, size_t size, size_t count, void* self);
  static size_t BodyCallback(char* bytes, size_t size, size_t count, void* self);

  HttpLoop& loop_;
  const HttpRequest request_;
  void* easy_ = nullptr;
  void* header_list_ = nullptr;
  std::array<char, 256> curl_text_ = {};  // CURL_ERROR_SIZE
  size_t head_bytes_ = 0;
  bool begun_ = false, done_ = false;
  std::string refused_;  // why we ended it ourselves
  std::optional<Error> sink_error_;
  HttpReply reply_;
};

class HttpLoop {
 public:
  HttpLoop();
  ~HttpLoop();
  HttpLoop(const HttpLoop&) = delete;
  HttpLoop& operator=(const HttpLoop&) = delete;
  // The loop must outlive it.
  std::unique_ptr<HttpTransfer> Start(HttpRequest request);
  // Moves all transfers on and waits until there is something to do, one of `waits` is ready (whose
  // revents are then set, as by poll(2)) or the time is up.
  Status Wait(std::vector<struct pollfd>* waits, int timeout_ms);

 private:
  friend class HttpTransfer;
  bool MarkDone();
  void* multi_;
  std::map<void*, HttpTransfer*> running_;  // by easy handle
};

}  // namespace hutch::rootfs::registry
