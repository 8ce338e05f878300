// Where a chunked body (RFC 9112, 7.1) ends, and its content: for bytes that are passed on as they
// are, or decoded. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::daemon {

class ChunkScanner {
 public:
  // How many of these bytes belong to the body; less than all of them only at its end. The chunks'
  // content among them is appended to `content`, also what precedes an error. kInvalidArgument for
  // what is malformed (a bare LF, a size of more than 15 digits), kTooLarge for more than
  // kMaxChunkOverheadBytes of extensions of a chunk, or of trailers.
  Result<size_t> Take(std::string_view bytes, std::string* content = nullptr);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage {
    kSize,
    kExtension,
    kSizeEnd,  // the LF
    kData,
    kDataReturn,  // the CR behind a chunk
    kDataEnd,
    kTrailerStart,
    kTrailer,
    kTrailerEnd,
    kLastEnd,  // the LF of the empty line
    kDone,
  };
  Status Step(char c);
  Status StepSize(char c);
  Status StepTrailer(char c);
  Status Overhead();

  Stage stage_ = Stage::kSize;
  uint64_t left_ = 0;  // of the chunk; its size while that is read
  size_t digits_ = 0;
  size_t overhead_ = 0;
};

}  // namespace hutch::daemon
