#include "tools/line_reader.h"

namespace hutch::tools {
namespace {

constexpr size_t kMaxLineBytes = size_t{16} << 20;

}  // namespace

Status LineReader::Feed(std::string_view bytes,
                        const std::function<Status(std::string_view line)>& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_.append(bytes.substr(0, end));
    if (line_.size() > kMaxLineBytes)
      return Error{.code = Code::kTooLarge, .what = "an event of more than 16 MiB"};
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    const Status taken = line_.empty() ? OkStatus() : on_line(line_);
    line_.clear();
    if (!taken) return taken;
  }
  return OkStatus();
}

}  // namespace hutch::tools
