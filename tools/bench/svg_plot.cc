#include "tools/bench/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "tools/bench/statistics.h"

namespace hutch::tools {
namespace {

constexpr double kWidth = 900, kLeft = 190, kRight = 90;
constexpr double kTop = 64, kRowHeight = 30, kPanelHead = 34, kPanelFoot = 40;
constexpr const char* kStyle =
    "<style>text{font-family:sans-serif;font-size:13px;fill:#222}.t{font-size:17px;"
    "font-weight:bold}.h{font-size:14px;font-weight:bold}.s{fill:#555;font-size:12px}"
    ".g{stroke:#ddd}.w{stroke:#345;stroke-width:1.2}.b{fill:#8fb3d9;fill-opacity:.75;stroke:#345}"
    ".o{fill:#f2b166;fill-opacity:.85;stroke:#84500f}.m{stroke:#111;stroke-width:2}"
    ".d{fill:#345;fill-opacity:.22}</style>\n";

[[gnu::format(printf, 2, 3)]] void Append(std::string* out, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out->append(text);
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

void AppendText(std::string* out, double x, double y, const char* attributes,
                const std::string& text) {
  Append(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
  out->append(Escaped(text)).append("</text>\n");
}

void AppendLine(std::string* out, double x1, double y1, double x2, double y2, const char* kind) {
  Append(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2,
         y2, kind);
}

// Milliseconds to pixels over whole steps of 1, 2, 5, 10, ...
class LogAxis {
 public:
  LogAxis(double low, double high) {
    for (int power = -4; power < 8; ++power)
      for (const double step : {1.0, 2.0, 5.0}) ticks_.push_back(step * std::pow(10, power));
    while (ticks_.size() > 2 && ticks_[1] <= low) ticks_.erase(ticks_.begin());
    while (ticks_.size() > 2 && ticks_[ticks_.size() - 2] >= high) ticks_.pop_back();
  }
  double X(double ms) const {
    const double low = std::log(ticks_.front()), high = std::log(ticks_.back());
    const double share = (std::log(std::max(ms, ticks_.front())) - low) / (high - low);
    return kLeft + std::min(share, 1.0) * (kWidth - kLeft - kRight);
  }
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  std::vector<double> ticks_;
};

LogAxis AxisFor(const PlotPanel& panel) {
  double low = 1e9, high = 1e-9;
  for (const PlotSeries& series : panel.series)
    for (const double ms : series.samples) low = std::min(low, ms), high = std::max(high, ms);
  return LogAxis(low, high);
}

void AppendRow(std::string* out, const PlotSeries& series, const LogAxis& axis, double y) {
  const Summary s = Summarize(series.samples);
  const double half = kRowHeight * 0.3;
  for (size_t i = 0; i < series.samples.size(); ++i) {
    // Spread over the row, the same way in every run.
    const double offset = (static_cast<double>(i * 7 % 11) / 10 - 0.5) * 1.6 * half;
    Append(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" class=\"d\"/>\n",
           axis.X(series.samples[i]), y + offset);
  }
  AppendLine(out, axis.X(s.p5), y, axis.X(s.p95), y, "w");
  const bool ours = series.label.rfind("hutch", 0) == 0;
  Append(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n",
         axis.X(s.p25), y - half, std::max(2.0, axis.X(s.p75) - axis.X(s.p25)), 2 * half,
         ours ? "o" : "b");
  AppendLine(out, axis.X(s.p50), y - half, axis.X(s.p50), y + half, "m");
  AppendText(out, kLeft - 10, y + 4.5, "text-anchor=\"end\"", series.label);
  char median[32];
  std::snprintf(median, sizeof median, "%.3g ms", s.p50);
  AppendText(out, kWidth - kRight + 10, y + 4.5, "", median);
}

double PanelHeight(size_t rows) {
  return kPanelHead + kRowHeight * static_cast<double>(rows) + kPanelFoot;
}

void AppendPanel(std::string* out, const PlotPanel& panel, double top) {
  const LogAxis axis = AxisFor(panel);
  AppendText(out, 16, top + 18, "class=\"h\"", panel.title);
  const double first = top + kPanelHead;
  const double last = first + kRowHeight * static_cast<double>(panel.series.size());
  for (const double tick : axis.ticks()) {
    AppendLine(out, axis.X(tick), first, axis.X(tick), last, "g");
    char label[32];
    std::snprintf(label, sizeof label, "%g", tick);
    AppendText(out, axis.X(tick), last + 15, "text-anchor=\"middle\" class=\"s\"", label);
  }
  double y = first + kRowHeight / 2;
  for (const PlotSeries& series : panel.series) {
    AppendRow(out, series, axis, y);
    y += kRowHeight;
  }
}

}  // namespace

std::string DrawSvg(const std::string& title, const std::string& subtitle,
                    const std::vector<PlotPanel>& panels) {
  std::vector<PlotPanel> shown;
  double height = kTop + 24;
  for (PlotPanel panel : panels) {
    std::erase_if(panel.series, [](const PlotSeries& s) { return s.samples.empty(); });
    if (panel.series.empty()) continue;
    height += PanelHeight(panel.series.size());
    shown.push_back(std::move(panel));
  }
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  Append(&out,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
         "viewBox=\"0 0 %.0f %.0f\">\n",
         kWidth, height, kWidth, height);
  out += kStyle;
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  AppendText(&out, 16, 28, "class=\"t\"", title);
  AppendText(&out, 16, 48, "class=\"s\"", subtitle);
  double top = kTop;
  for (const PlotPanel& panel : shown) {
    AppendPanel(&out, panel, top);
    top += PanelHeight(panel.series.size());
  }
  AppendText(&out, 16, top + 8, "class=\"s\"",
             "milliseconds, logarithmic; box p25 to p75, line median (also at the right), whiskers "
             "p5 to p95, dots all samples");
  return out + "</svg>\n";
}

}  // namespace hutch::tools
