#include "daemon/output_buffer.h"

#include <algorithm>

#include "base/text.h"

namespace hutch::daemon {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Length the first byte of a UTF-8 sequence promises; 1 for bytes that start none.
size_t SequenceLength(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0xf0) return 4;
  if (byte >= 0xe0) return 3;
  return byte >= 0xc0 ? 2 : 1;
}

// Drops an unfinished sequence at the end of a head that was cut.
void TrimHead(std::string& head) {
  for (size_t back = 1; back <= std::min<size_t>(3, head.size()); ++back) {
    const char c = head[head.size() - back];
    if (IsContinuation(c)) continue;
    if (SequenceLength(c) > back) head.erase(head.size() - back);
    return;
  }
}

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

CapturedOutput OutputBuffer::Take() {
  CapturedOutput out{
      .text = {}, .encoding = "utf-8", .total_bytes = total_, .truncated = truncated()};
  if (!out.truncated) {
    out.text = std::move(head_);
    out.text += ring_;
    if (IsUtf8(out.text)) return out;
    out.text = Base64Encode(out.text);
    out.encoding = "base64";
    return out;
  }
  std::string head = head_;
  std::string tail = Tail();
  TrimHead(head);
  TrimTail(tail);
  if (IsUtf8(head) && IsUtf8(tail)) {
    out.text = std::move(head);
    out.text += tail;
    return out;
  }
  head_ += Tail();
  out.text = Base64Encode(head_);
  out.encoding = "base64";
  return out;
}

}  // namespace hutch::daemon
