// Bytes between a connection and a pipe, with back-pressure and in constant memory: splice(2) where
// it works, else through a buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/http_parser.h"
#include "daemon/loop.h"

namespace hutch::daemon {

// What a copy needs of its connection; all borrowed.
struct CopyPort {
  Loop& loop;
  int socket;                           // non-blocking
  std::string& scratch;                 // used within a call only
  std::function<void()> on_pipe_ready;  // call Run() again
};

enum class CopyState {
  kDone,
  kOnSocket,  // waits for the connection: call Run() when it is ready
  kAgain,     // others get their turn: call Run() soon
  kOnPipe,    // waits for the pipe's other side; has armed its own watch
};

// The body of the request that `parser` is at, into a pipe.
class BodyReceiver {
 public:
  BodyReceiver(CopyPort port, HttpParser& parser, UniqueFd pipe);
  // Goes on as far as it can, within a turn's bound. Errors: kUnavailable when the client ends
  // before the body, kInvalidArgument for a malformed chunk, kKernel with EPIPE when the pipe has
  // no reader.
  Result<CopyState> Run();
  uint64_t moved() const { return moved_; }

 private:
  Result<size_t> Fill();     // from the connection; 0: it has nothing now
  Result<size_t> Drain();    // pending_ into the pipe; 0: it is full
  Result<CopyState> Wait();  // for whichever side is not ready
  Result<size_t> SpliceIn();

  CopyPort port_;
  HttpParser& parser_;
  UniqueFd pipe_;
  std::string pending_;  // decoded, not in the pipe yet
  size_t pending_done_ = 0;
  uint64_t moved_ = 0;
  bool can_splice_ = true;
  Watch watch_;
};

enum class CopyFraming { kPlain, kChunked };

// A pipe's bytes to the connection, after `head`.
class BodySender {
 public:
  // `length`: so many bytes; empty: until the pipe's end.
  BodySender(CopyPort port, std::string head, std::optional<uint64_t> length, CopyFraming framing,
             UniqueFd pipe);
  // As BodyReceiver::Run(). Errors: kUnavailable when the client is gone, kKernel with EPIPE when
  // the pipe ended before `length` bytes.
  Result<CopyState> Run();
  uint64_t moved() const { return moved_; }

 private:
  Result<size_t> Fill();   // from the pipe into the connection or pending_; 0: it has nothing now
  Result<size_t> Drain();  // pending_ into the connection; 0: it takes nothing now
  Result<size_t> ReadPipe();
  Result<CopyState> Wait();

  CopyPort port_;
  std::string pending_;
  size_t pending_done_ = 0;
  std::optional<uint64_t> left_;
  CopyFraming framing_;
  UniqueFd pipe_;
  uint64_t moved_ = 0;
  bool ended_ = false;  // the pipe gave all it will
  bool can_splice_;
  Watch watch_;
};

}  // namespace hutch::daemon
