#include "network/egress/http_body.h"

#include <algorithm>

#include "network/egress/limits.h"

namespace hutch::network {
namespace {

constexpr size_t kMaxSizeDigits = 15;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

BodyReader::BodyReader(BodyKind kind, uint64_t bytes)
    : kind_(kind), done_(kind == BodyKind::kNone), left_(bytes) {
  if (kind == BodyKind::kChunked) left_ = 0;
}

size_t BodyReader::Fail(const char* why) {
  why_ = why;
  return 0;
}

size_t BodyReader::Take(std::string_view bytes) {
  if (done_ || bad()) return 0;
  if (kind_ == BodyKind::kUntilEnd) return bytes.size();
  size_t at = 0;
  while (at < bytes.size() && !done_ && !bad()) {
    if (kind_ == BodyKind::kLength || chunk_ == Chunk::kData) {
      const size_t taken = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - at));
      at += taken;
      left_ -= taken;
      if (left_ > 0) continue;
      if (kind_ == BodyKind::kLength) done_ = true;
      chunk_ = Chunk::kDataEnd;
      line_bytes_ = 0;
    } else {
      at += TakeLineByte(bytes[at]);
    }
  }
  return at;
}

// One byte of a chunk's size line, of the line end behind its data, or of a trailer.
size_t BodyReader::TakeLineByte(char c) {
  if (cr_) {
    if (c != '\n') return Fail("a line of a chunk does not end with CR LF");
    cr_ = false;
    EndLine();
    return bad() ? 0 : 1;
  }
  if (c == '\r') {
    cr_ = true;
    return 1;
  }
  if (c != '\t' && (static_cast<unsigned char>(c) < ' ' || c == 0x7f))
    return Fail("control characters in a chunk's line");
  ++line_bytes_;
  if (chunk_ == Chunk::kDataEnd) return Fail("a chunk is longer than its size");
  if (chunk_ == Chunk::kTrailer)
    return ++trailer_bytes_ > kMaxTrailerBytes ? Fail("the trailers are too long") : 1;
  if (line_bytes_ > kMaxChunkLineBytes) return Fail("a chunk's line is too long");
  if (extension_) return 1;
  if (c == ';' && digits_ > 0) {
    extension_ = true;
    return 1;
  }
  const int digit = HexDigit(c);
  if (digit < 0 || ++digits_ > kMaxSizeDigits) return Fail("a chunk's size is no number");
  left_ = left_ << 4 | static_cast<uint64_t>(digit);
  return 1;
}

void BodyReader::EndLine() {
  const bool empty = line_bytes_ == 0;
  line_bytes_ = 0;
  switch (chunk_) {
    case Chunk::kSize:
      if (digits_ == 0) {
        why_ = "a chunk has no size";
        return;
      }
      chunk_ = left_ == 0 ? Chunk::kTrailer : Chunk::kData;
      break;
    case Chunk::kDataEnd:
      chunk_ = Chunk::kSize;
      digits_ = 0;
      left_ = 0;
      extension_ = false;
      break;
    case Chunk::kTrailer:
      done_ = empty;
      break;
    case Chunk::kData:
      break;
  }
}

}  // namespace hutch::network
