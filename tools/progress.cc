#include "tools/progress.h"

#include <algorithm>

#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
constexpr size_t kBarWidth = 20;
constexpr std::ptrdiff_t kMaxLinesBack = 20;
constexpr size_t kSubjectWidth = 40;  // a line that wraps could not be overwritten

std::string Bar(uint64_t done, uint64_t total) {
  const double share = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(share * kBarWidth);
  const auto percent = std::to_string(static_cast<int>(share * 100));
  std::string bar = "[";
  bar.append(filled, '=').append(kBarWidth - filled, ' ').append("] ");
  return bar.append(percent).append(" %");
}

std::string Shortened(std::string text) {
  if (text.size() <= kSubjectWidth) return text;
  return text.substr(0, kSubjectWidth - 3) + "...";
}

}  // namespace

std::string Progress::Take(const oci::Json& event) {
  std::string stage, subject;
  uint64_t done = 0, total = 0;
  oci::ObjectReader reader(event, "");
  reader.String("stage", &stage)
      .String("subject", &subject)
      .Uint("done", &done)
      .Uint("total", &total);
  if (!reader.Done(oci::ObjectReader::Unknown::kIgnore)) return "";  // only decoration
  stage = Printable(stage);
  subject = Printable(subject);
  if (style_ == ProgressStyle::kPlain) {
    if (!said_.emplace(stage, subject).second) return "";
    return stage + (subject.empty() ? "" : ": " + subject) + "\n";
  }
  std::string text = Paint(stage, Colour::kBold, colours_);
  if (!subject.empty()) text.append(" ").append(Shortened(subject));
  if (total > 0)
    text.append(" ").append(Bar(done, total));
  else if (done > 0)
    text.append(" ").append(FormatSize(done));
  return LiveLine(total > 0 && !subject.empty() ? "=" + subject : stage, text);
}

// The cursor stands in the last line, before and after.
std::string Progress::LiveLine(const std::string& key, const std::string& text) {
  const auto line = std::find(lines_.begin(), lines_.end(), key);
  if (line == lines_.end()) {
    lines_.push_back(key);
    return (lines_.size() > 1 ? "\n" : "") + text;
  }
  const auto below = lines_.end() - line - 1;
  if (below == 0) return kClearLine + text;
  if (below > kMaxLinesBack) return "";  // it may have left the screen
  const std::string rows = std::to_string(below);
  return "\x1b[" + rows + "A" + kClearLine + text + "\x1b[" + rows + "B";
}

std::string Progress::Finish() {
  const bool open = !lines_.empty();
  lines_.clear();
  return open ? "\n" : "";
}

}  // namespace hutch::tools
