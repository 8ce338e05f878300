#include "tools/progress.h"

#include "base/text.h"

namespace hutch::tools {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
constexpr size_t kBarWidth = 20;
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
  const bool same = stage == stage_ && subject == subject_;
  std::string text;
  if (style_ == ProgressStyle::kPlain) {
    if (!same) text.append(stage).append(subject.empty() ? "" : ": ").append(subject).append("\n");
  } else {
    text = line_open_ && stage != stage_ ? "\n" : line_open_ ? kClearLine : "";
    text += Paint(stage, Colour::kBold, colours_);
    if (!subject.empty()) text.append(" ").append(Shortened(subject));
    if (total > 0)
      text.append(" ").append(Bar(done, total));
    else if (done > 0)
      text.append(" ").append(FormatSize(done));
    line_open_ = true;
  }
  stage_ = std::move(stage);
  subject_ = std::move(subject);
  return text;
}

std::string Progress::Finish() {
  const bool open = std::exchange(line_open_, false);
  return open ? "\n" : "";
}

}  // namespace hutch::tools
