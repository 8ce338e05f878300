#include "tools/sse.h"

namespace hutch::tools {
namespace {

constexpr size_t kMaxEventBytes = size_t{16} << 20;

}  // namespace

Result<std::vector<SseEvent>> SseReader::Feed(std::string_view bytes) {
  std::vector<SseEvent> events;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (line_.size() + event_.data.size() > kMaxEventBytes)
      return Error{.code = Code::kTooLarge, .what = "a server-sent event of more than 16 MiB"};
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    TakeLine(line_, &events);
    line_.clear();
  }
  return events;
}

void SseReader::TakeLine(std::string_view line, std::vector<SseEvent>* events) {
  if (line.empty()) {
    if (event_.name.empty()) event_.name = "message";
    if (has_data_) events->push_back(std::move(event_));
    event_ = {};
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);  // empty: a comment that keeps alive
  std::string_view value =
      colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") event_.name = value;
  if (field != "data") return;
  if (has_data_) event_.data += '\n';
  event_.data += value;
  has_data_ = true;
}

}  // namespace hutch::tools
