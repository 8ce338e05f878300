// Where a body ends, while its bytes are passed on unchanged. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "network/egress/http_head.h"

namespace hutch::network {

class BodyReader {
 public:
  BodyReader() = default;  // without a body: done
  BodyReader(BodyKind kind, uint64_t bytes);
  // How many of these belong to the body. Fewer than all: it is done, or bad.
  size_t Take(std::string_view bytes);
  bool done() const { return done_; }
  bool bad() const { return why_ != nullptr; }
  const char* why() const { return why_; }
  bool until_end() const { return kind_ == BodyKind::kUntilEnd; }

 private:
  enum class Chunk { kSize, kData, kDataEnd, kTrailer };
  size_t TakeLineByte(char c);
  void EndLine();
  size_t Fail(const char* why);

  BodyKind kind_ = BodyKind::kNone;
  bool done_ = true;
  const char* why_ = nullptr;
  uint64_t left_ = 0;  // of the body, or of the chunk
  Chunk chunk_ = Chunk::kSize;
  size_t line_bytes_ = 0, trailer_bytes_ = 0, digits_ = 0;
  bool cr_ = false, extension_ = false;
};

}  // namespace hutch::network
