#include "tools/bench/statistics.h"

#include <algorithm>
#include <numeric>

namespace hutch::tools {

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double rest = place - static_cast<double>(below);
  return sorted[below] + rest * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {.count = samples.size(),
          .min = samples.front(),
          .p5 = Percentile(samples, 0.05),
          .p25 = Percentile(samples, 0.25),
          .p50 = Percentile(samples, 0.50),
          .p75 = Percentile(samples, 0.75),
          .p95 = Percentile(samples, 0.95),
          .p99 = Percentile(samples, 0.99),
          .max = samples.back(),
          .mean = sum / static_cast<double>(samples.size())};
}

}  // namespace hutch::tools
