#include "daemon/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace hutch::daemon {
namespace {

// The shortest text that means the same number, without an exponent where people would write none;
// "+Inf" and "NaN" as the format has them.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-6 && size < 1e15);
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 plain ? std::chars_format::fixed : std::chars_format::general);
  return std::string(text, end.ptr);
}

// Of a label's value: backslash, quote and line feed. Of a help text there are none.
std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

}  // namespace

void Histogram::Add(double seconds) {
  const auto bucket =
      std::lower_bound(std::begin(kLatencyBounds), std::end(kLatencyBounds), seconds) -
      std::begin(kLatencyBounds);
  ++buckets_[static_cast<size_t>(bucket)];
  ++count_;
  sum_ += seconds;
}

void MetricsText::Family(std::string_view name, std::string_view type, std::string_view help) {
  family_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
  text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void MetricsText::Line(std::string_view suffix, Labels labels, std::string_view bound,
                       double value) {
  text_.append(family_).append(suffix);
  std::string list;
  const auto add = [&](std::string_view name, std::string_view of) {
    list.append(list.empty() ? "" : ",").append(name).append("=\"").append(Escaped(of)) += '"';
  };
  for (const auto& [name, of] : labels) add(name, of);
  if (!bound.empty()) add("le", bound);
  if (!list.empty()) text_.append("{").append(list).append("}");
  text_.append(" ").append(NumberText(value)).append("\n");
}

void MetricsText::Add(Labels labels, const Histogram& histogram) {
  uint64_t sum = 0;
  for (size_t i = 0; i < histogram.buckets().size(); ++i) {
    sum += histogram.buckets()[i];
    const bool last = i == std::size(kLatencyBounds);
    Line("_bucket", labels, last ? "+Inf" : NumberText(kLatencyBounds[i]),
         static_cast<double>(sum));
  }
  Line("_sum", labels, {}, histogram.sum());
  Line("_count", labels, {}, static_cast<double>(histogram.count()));
}

void MetricsText::Gauge(std::string_view name, std::string_view help, double value) {
  Family(name, "gauge", help);
  Sample({}, value);
}

void MetricsText::Counter(std::string_view name, std::string_view help, double value) {
  Family(name, "counter", help);
  Sample({}, value);
}

void MetricsText::Counters(std::string_view name, std::string_view label, std::string_view help,
                           const CountBy& counts) {
  Family(name, "counter", help);
  for (const auto& [value, count] : counts) Sample({{label, value}}, static_cast<double>(count));
}

void AddCounters(const Metrics& metrics, MetricsText* text) {
  text->Counters("hutch_sandbox_creations_total", "outcome",
                 "Sandboxes that came to run, or never did.", metrics.creations);
  text->Counters("hutch_sandbox_ends_total", "cause", "Sandboxes that ended.", metrics.ends);
  text->Counters("hutch_sandbox_pauses_total", "cause", "Sandboxes that were paused.",
                 metrics.pauses);
  text->Counter("hutch_sandboxes_taken_up_total",
                "Running sandboxes taken over from an earlier daemon.",
                static_cast<double>(metrics.taken_up));
  text->Family("hutch_sandbox_create_seconds", "histogram",
               "From a request to a sandbox that can be used.");
  text->Add({}, metrics.create);
  text->Family("hutch_sandbox_create_phase_seconds", "histogram", "The steps of a creation.");
  for (const auto& [phase, histogram] : metrics.create_phases)
    text->Add({{"phase", phase}}, histogram);
  text->Counters("hutch_execs_total", "cause", "Commands that clients waited for.", metrics.execs);
  text->Family("hutch_exec_seconds", "histogram", "How long they ran.");
  text->Add({}, metrics.exec);
  text->Counter("hutch_processes_started_total", "Background processes that were started.",
                static_cast<double>(metrics.processes_started));
  text->Counters("hutch_processes_ended_total", "cause", "Background processes that ended.",
                 metrics.processes_ended);
  text->Counter("hutch_oom_kills_total",
                "Commands, processes and sandboxes in which the kernel killed for memory.",
                static_cast<double>(metrics.oom_kills));
  text->Counters("hutch_network_denials_total", "protocol", "Network access that was refused.",
                 metrics.denials);
  text->Counters("hutch_image_pulls_total", "outcome", "Images asked of registries.",
                 metrics.pulls);
  text->Counters("hutch_image_imports_total", "outcome", "Images imported, built or loaded.",
                 metrics.imports);
  text->Counters("hutch_image_deletions_total", "outcome", "Images removed.",
                 metrics.image_deletions);
}

}  // namespace hutch::daemon
