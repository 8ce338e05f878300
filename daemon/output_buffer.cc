#include "daemon/output_buffer.h"

#include <algorithm>

#include "base/text.h"

namespace hutch::daemon {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Drops the rest of a sequence whose start was cut away.
void TrimTail(std::string& tail) {
  size_t count = 0;
  while (count < std::min<size_t>(3, tail.size()) && IsContinuation(tail[count])) ++count;
  tail.erase(0, count);
}

}  // namespace

void OutputBuffer::Append(std::string_view bytes) {
  total_ += bytes.size();
  const size_t to_head = std::min(head_max_ - head_.size(), bytes.size());
  head_.append(bytes.substr(0, to_head));
  bytes.remove_prefix(to_head);
  if (bytes.size() > tail_max_) bytes.remove_prefix(bytes.size() - tail_max_);
  const size_t to_grow = std::min(tail_max_ - ring_.size(), bytes.size());
  ring_.append(bytes.substr(0, to_grow));
  bytes.remove_prefix(to_grow);
  while (!bytes.empty()) {
    const size_t part = std::min(tail_max_ - ring_next_, bytes.size());
    bytes.copy(ring_.data() + ring_next_, part);
    ring_next_ = (ring_next_ + part) % tail_max_;
    bytes.remove_prefix(part);
  }
}

std::string OutputBuffer::Tail() const {
  std::string tail;
  tail.reserve(ring_.size());
  tail.append(ring_, ring_next_);
  tail.append(ring_, 0, ring_next_);
  return tail;
}

CapturedOutput OutputBuffer::Take(Encoding encoding) {
  CapturedOutput out{
      .text = {}, .encoding = {}, .replaced = {}, .total_bytes = total_, .truncated = truncated()};
  std::string kept = std::move(head_);
  std::string tail = Tail();
  if (out.truncated && encoding != Encoding::kBase64) {
    // The cut makes no bytes of what were characters.
    std::string head = kept.substr(0, kept.size() - UnfinishedBytes(kept));
    std::string rest = tail;
    TrimTail(rest);
    if (encoding == Encoding::kUtf8 || (IsUtf8(head) && IsUtf8(rest))) {
      kept = std::move(head);
      tail = std::move(rest);
    }
  }
  kept += tail;
  EncodedText text = EncodeBytes(std::move(kept), encoding);
  out.text = std::move(text.text);
  out.encoding = text.encoding;
  out.replaced = text.replaced;
  return out;
}

}  // namespace hutch::daemon
