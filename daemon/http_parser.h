// HTTP/1.1 requests from bytes, strict where requests get smuggled. Knows no sockets. The grammar
// of heads is Boost.Beast's parser; what it is lenient about is checked before it (docs/api.md,
// "HTTP").
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "daemon/chunk_scanner.h"
#include "daemon/limits.h"
#include "daemon/message.h"

namespace hutch::daemon {

// What the bodies of all connections may hold together.
struct BodyBudget {
  size_t max_bytes = kMaxBodyBytesInFlight;
  size_t used_bytes = 0;
};

// What is done with a request's body, asked once its head is complete.
using BodyLookup = std::function<Body(const Request&)>;

class HttpParser {
 public:
  enum class Progress {
    kNeedMore,
    kSendContinue,  // the client waits for "100 Continue": send it and parse on
    kComplete,      // Take() the request; of Body::kStream the body is still to come
    kFailed,        // answer error() and close
  };

  // Both borrowed; without `lookup` every body is collected.
  explicit HttpParser(BodyBudget* budget, const BodyLookup* lookup = nullptr);
  ~HttpParser();

  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  Progress Parse();

  // After kComplete. What follows the request stays for the next one.
  Request Take();

  // A streamed body, after Take().
  bool body_done() const { return stage_ != Stage::kStream; }
  // What is left of one with a length; nothing for chunked ones.
  std::optional<uint64_t> body_left() const;
  // Whether a byte of it was fed and not read.
  bool body_buffered() const { return !buffer_.empty(); }
  // Appends what was fed of the body, decoded. Malformed chunks are an error.
  Status ReadBody(std::string* out);
  // The caller took `bytes` of a body with a length past this parser.
  void SkipBody(uint64_t bytes);
  // The client waits for "100 Continue"; true at most once.
  bool TakeContinueWanted();
  // What was fed and not parsed: of another protocol.
  std::string TakeBuffered() { return std::exchange(buffer_, {}); }

  // Of the request last parsed; also after kFailed as far as it is known.
  bool keep_alive() const { return keep_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }
  const Error& error() const { return error_; }
  // Nothing of a next request has arrived.
  bool idle() const { return stage_ == Stage::kHead && buffer_.empty(); }

 private:
  enum class Stage { kHead, kBody, kDone, kStream, kFailed };
  struct Head;

  Progress Fail(Code code, std::string what);
  Progress ParseHead();
  Progress ParseBody();
  Status ScanHead();                     // the bytes that arrived since the last scan
  Status AcceptHead(const Head& head);   // what the fields say together
  Status FillRequest(const Head& head);  // method, headers, path, query
  Body WantedBody() const;
  Status BeginBody();  // what the length told says about it
  bool body_over() const;
  Status MoveBody(std::string* out);  // what was fed of it, decoded, also before an error
  void EndBody();
  bool Reserve(size_t bytes);
  void Release();

  BodyBudget* budget_;
  const BodyLookup* lookup_;
  Stage stage_ = Stage::kHead;
  std::string buffer_;
  size_t scanned_ = 0;
  size_t head_end_ = 0;
  size_t reserved_ = 0;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
  bool continue_wanted_ = false;
  bool streams_ = false;  // the request under way is one of Body::kStream
  // Of the body under way: its chunks, or what is left of its length.
  std::optional<ChunkScanner> chunks_;
  uint64_t body_left_ = 0;
  Request request_;
  Error error_;
};

// "%41" to "A"; false for a malformed escape or a NUL byte. `plus` turns "+" into a space.
enum class Plus { kLiteral, kSpace };
bool PercentDecode(std::string_view text, Plus plus, std::string* out);

}  // namespace hutch::daemon
