// What is counted, and the text of it: Prometheus' format 0.0.4. On the loop's thread; no locks.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/status_counts.h"

namespace hutch::daemon {

// Upper bounds in seconds; one more bucket has the rest.
inline constexpr double kLatencyBounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                            0.25,   0.5,   1,      2.5,   5,    10,    30,   60};

class Histogram {
 public:
  void Add(double seconds);
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  const auto& buckets() const { return buckets_; }

 private:
  std::array<uint64_t, std::size(kLatencyBounds) + 1> buckets_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
};

// Counters by the value of one label. Values are names of ours, never a tenant's text.
using CountBy = std::map<std::string, uint64_t, std::less<>>;

struct Metrics {
  CountBy creations = {{"running", 0}, {"failed", 0}};
  CountBy ends, pauses, execs, processes_ended, denials;
  CountBy pulls, imports, image_deletions;  // by "ok" or the error's code
  uint64_t processes_started = 0, oom_kills = 0, taken_up = 0;
  Histogram create, exec;
  std::map<std::string, Histogram, std::less<>> create_phases;
  std::vector<StatusCounts> requests;  // one for each row of Routes(), then one for no route
};

// Writes families one after another.
class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // `type`: "counter", "gauge" or "histogram". Its samples follow.
  void Family(std::string_view name, std::string_view type, std::string_view help);
  void Sample(Labels labels, double value) { Line("", labels, {}, value); }
  void Add(Labels labels, const Histogram& histogram);
  // A family with one sample.
  void Gauge(std::string_view name, std::string_view help, double value);
  void Counter(std::string_view name, std::string_view help, double value);
  // A family of counters with one label.
  void Counters(std::string_view name, std::string_view label, std::string_view help,
                const CountBy& counts);
  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view suffix, Labels labels, std::string_view bound, double value);
  std::string text_, family_;
};

// The families of what Metrics has, requests excepted.
void AddCounters(const Metrics& metrics, MetricsText* text);

}  // namespace hutch::daemon
