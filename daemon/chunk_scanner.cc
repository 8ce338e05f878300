#include "daemon/chunk_scanner.h"

#include <algorithm>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxSizeDigits = 15;

Error Malformed(const char* what) { return Error{.code = Code::kInvalidArgument, .what = what}; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

}  // namespace

Status ChunkScanner::Overhead() {
  if (++overhead_ <= kMaxChunkOverheadBytes) return OkStatus();
  return Error{.code = Code::kTooLarge, .what = "too large a chunk header or trailer"};
}

Status ChunkScanner::StepSize(char c) {
  if (const int digit = HexDigit(c); stage_ == Stage::kSize && digit >= 0) {
    if (++digits_ > kMaxSizeDigits) return Malformed("too large a chunk");
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
    return OkStatus();
  }
  if (digits_ == 0) return Malformed("malformed chunk size");
  if (c == '\r') {
    stage_ = Stage::kSizeEnd;
    return OkStatus();
  }
  const bool begins = stage_ == Stage::kSize && (c == ';' || c == ' ' || c == '\t');
  if (IsControl(c) || (stage_ == Stage::kSize && !begins)) return Malformed("malformed chunk size");
  stage_ = Stage::kExtension;
  return Overhead();
}

Status ChunkScanner::StepTrailer(char c) {
  if (c == '\r') {
    stage_ = stage_ == Stage::kTrailerStart ? Stage::kLastEnd : Stage::kTrailerEnd;
    return OkStatus();
  }
  if (IsControl(c)) return Malformed("malformed trailer");
  stage_ = Stage::kTrailer;
  return Overhead();
}

Status ChunkScanner::Step(char c) {
  const bool line_feed = c == '\n';
  switch (stage_) {
    case Stage::kSize:
    case Stage::kExtension:
      return StepSize(c);
    case Stage::kSizeEnd:
      if (!line_feed) return Malformed("malformed chunk size");
      stage_ = left_ == 0 ? Stage::kTrailerStart : Stage::kData;
      digits_ = overhead_ = 0;
      return OkStatus();
    case Stage::kDataReturn:
      if (c != '\r') return Malformed("a chunk that is longer than its size");
      stage_ = Stage::kDataEnd;
      return OkStatus();
    case Stage::kDataEnd:
      if (!line_feed) return Malformed("a chunk that is longer than its size");
      stage_ = Stage::kSize;
      return OkStatus();
    case Stage::kTrailerStart:
    case Stage::kTrailer:
      return StepTrailer(c);
    case Stage::kTrailerEnd:
    case Stage::kLastEnd:
      if (!line_feed) return Malformed("malformed trailer");
      stage_ = stage_ == Stage::kLastEnd ? Stage::kDone : Stage::kTrailerStart;
      return OkStatus();
    case Stage::kData:
    case Stage::kDone:
      break;
  }
  CHECK(false);
}

Result<size_t> ChunkScanner::Take(std::string_view bytes, std::string* content) {
  size_t taken = 0;
  while (taken < bytes.size() && stage_ != Stage::kDone) {
    if (stage_ == Stage::kData) {
      const uint64_t count = std::min<uint64_t>(left_, bytes.size() - taken);
      if (content != nullptr) content->append(bytes, taken, static_cast<size_t>(count));
      left_ -= count;
      taken += static_cast<size_t>(count);
      if (left_ == 0) stage_ = Stage::kDataReturn;
      continue;
    }
    RETURN_IF_ERROR(Step(bytes[taken]));
    ++taken;
  }
  return taken;
}

}  // namespace hutch::daemon
