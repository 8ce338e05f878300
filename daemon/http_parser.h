// HTTP/1.1 requests from bytes, strict where requests get smuggled. Knows no sockets. The grammar
// is Boost.Beast's parser; what it is lenient about is checked before it (docs/api.md, "HTTP").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/limits.h"
#include "daemon/message.h"

namespace hutch::daemon {

// What the bodies of all connections may hold together.
struct BodyBudget {
  size_t max_bytes = kMaxBodyBytesInFlight;
  size_t used_bytes = 0;
};

class HttpParser {
 public:
  enum class Progress {
    kNeedMore,
    kSendContinue,  // the client waits for "100 Continue": send it and parse on
    kComplete,      // Take() the request
    kFailed,        // answer error() and close
  };

  explicit HttpParser(BodyBudget* budget);
  ~HttpParser();

  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  Progress Parse();

  // After kComplete. What follows the request stays for the next one.
  Request Take();
  // Of the request last parsed; also after kFailed as far as it is known.
  bool keep_alive() const { return keep_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }
  const Error& error() const { return error_; }
  // Nothing of a next request has arrived.
  bool idle() const { return stage_ == Stage::kHead && buffer_.empty(); }

 private:
  enum class Stage { kHead, kBody, kDone, kFailed };
  struct Impl;

  Progress Fail(Code code, std::string what);
  Progress ParseHead();
  Progress ParseBody();
  Status ScanHead();     // the bytes that arrived since the last scan
  Status AcceptHead();   // what the fields say together
  Status FillRequest();  // method, path, query
  bool Reserve(size_t bytes);
  void Release();

  BodyBudget* budget_;
  std::unique_ptr<Impl> impl_;  // of the request under way
  Stage stage_ = Stage::kHead;
  std::string buffer_;
  size_t scanned_ = 0;
  size_t head_end_ = 0;
  size_t reserved_ = 0;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
  bool continue_wanted_ = false;
  Request request_;
  Error error_;
};

// "%41" to "A"; false for a malformed escape or a NUL byte. `plus` turns "+" into a space.
enum class Plus { kLiteral, kSpace };
bool PercentDecode(std::string_view text, Plus plus, std::string* out);

}  // namespace hutch::daemon
