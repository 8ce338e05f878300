// Figures of a series of measurements.
#pragma once

#include <cstddef>
#include <vector>

namespace hutch::tools {

// The value below which `share` (0 .. 1) of the sorted samples lie, linear between neighbours; 0
// for none.
double Percentile(const std::vector<double>& sorted, double share);

struct Summary {
  size_t count = 0;
  double min = 0, p5 = 0, p25 = 0, p50 = 0, p75 = 0, p95 = 0, p99 = 0, max = 0, mean = 0;
};
Summary Summarize(std::vector<double> samples);

}  // namespace hutch::tools
