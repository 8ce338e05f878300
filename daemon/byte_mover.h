// Bytes one way between two connections, with back-pressure and in constant memory: splice(2),
// but through a buffer where the end has to be looked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "daemon/chunk_scanner.h"

namespace hutch::daemon {

enum class MoveState {
  kEnded,       // the source's end, or the bound, and all of it was passed on
  kNeedsFrom,   // call Run() when the source is readable
  kNeedsTo,     // call Run() when the destination is writable
  kAgain,       // others get their turn: call Run() soon
  kFromFailed,  // the source is gone, or ended before its bound, or is malformed
  kToFailed,    // the destination is gone
};

class ByteMover {
 public:
  // Both borrowed: non-blocking stream sockets.
  ByteMover(int from, int to) : from_(from), to_(to) {}

  // Before the first Run(). Without a bound: until the source's end.
  void BoundBytes(uint64_t bytes) { left_ = bytes; }
  void BoundChunks() { chunks_.emplace(); }
  // Goes out before anything else, whatever the bound.
  void Prepend(std::string_view bytes) { pending_.append(bytes); }
  // Bytes that were read from the source already. What is behind the bound is dropped;
  // kInvalidArgument for malformed chunks.
  Status Feed(std::string_view bytes);

  // Goes on as far as it can, within a turn's bound. `scratch` is used within the call only.
  MoveState Run(std::string& scratch);
  uint64_t moved() const { return moved_; }  // into the destination

 private:
  bool AtBound() const;
  MoveState Drain();
  MoveState DrainPipe();
  MoveState Fill(std::string& scratch);
  MoveState SpliceIn();

  int from_, to_;
  std::string pending_;
  size_t pending_done_ = 0;
  std::optional<uint64_t> left_;
  std::optional<ChunkScanner> chunks_;
  Pipe pipe_;  // made with the first byte
  size_t in_pipe_ = 0;
  bool ended_ = false;
  uint64_t moved_ = 0;
};

}  // namespace hutch::daemon
