// Box plots of latencies as SVG: a panel for each case, a row for each contestant, a logarithmic
// axis of milliseconds, every sample as a dot behind its box.
#pragma once

#include <string>
#include <vector>

namespace hutch::tools {

struct PlotSeries {
  std::string label;
  std::vector<double> samples;  // milliseconds, above 0
};
struct PlotPanel {
  std::string title;
  std::vector<PlotSeries> series;
};

// Boxes from p25 to p75 with the median, whiskers from p5 to p95. Text is escaped. A panel without
// samples is left out.
std::string DrawSvg(const std::string& title, const std::string& subtitle,
                    const std::vector<PlotPanel>& panels);

}  // namespace hutch::tools
