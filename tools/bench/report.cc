#include "tools/bench/report.h"

#include <cstdio>

#include "base/text.h"
#include "tools/bench/statistics.h"
#include "tools/bench/svg_plot.h"

namespace hutch::tools {
namespace {

using oci::Json;

std::string Fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double MedianOf(const CaseResult& result, const std::string& contestant) {
  for (const Entry& entry : result.entries)
    if (entry.contestant == contestant) return Summarize(entry.samples).p50;
  return 0;
}

std::string Ratio(double median, double base) {
  return base > 0 && median > 0 ? Fixed(median / base, 2) : "-";
}

bool IsCopy(const CaseResult& result) { return result.row->kind == CaseKind::kCopy; }
bool IsBurst(const CaseResult& result) {
  return result.row->kind == CaseKind::kBurst || result.row->kind == CaseKind::kBurstCreate;
}

std::string CaseTable(const CaseResult& result, Colours colours) {
  std::vector<Column> columns = {{"ms"}};
  for (const char* title : {"min", "p50", "p95", "p99", "mean"})
    columns.push_back({title, Align::kRight});
  if (!IsCopy(result))  // no copies of theirs to compare with
    for (const char* title : {"x bwrap", "x plain"}) columns.push_back({title, Align::kRight});
  if (IsBurst(result)) columns.push_back({"per second", Align::kRight});
  if (IsCopy(result)) columns.push_back({"MB/s", Align::kRight});
  Table table(columns);
  const double bwrap = MedianOf(result, "bwrap"), plain = MedianOf(result, "plain fork+exec");
  std::string absent;
  bool measured = false;
  for (const Entry& entry : result.entries) {
    if (entry.samples.empty()) {
      absent.append("  ").append(entry.contestant).append(": ");
      absent.append(Printable(entry.reason)).append("\n");
      continue;
    }
    measured = true;
    const Summary s = Summarize(entry.samples);
    std::vector<Cell> row = {entry.contestant};
    for (const double value : {s.min, s.p50, s.p95, s.p99, s.mean})
      row.emplace_back(Fixed(value, 2));
    if (!IsCopy(result)) row.emplace_back(Ratio(s.p50, bwrap));
    if (!IsCopy(result)) row.emplace_back(Ratio(s.p50, plain));
    if (IsBurst(result)) row.emplace_back(Fixed(entry.per_second, 0));
    if (IsCopy(result)) row.emplace_back(Fixed(entry.per_second, entry.per_second < 100 ? 1 : 0));
    table.Add(std::move(row));
  }
  return (measured ? table.Render(colours) : "") + absent;
}

}  // namespace

std::string DescribeDaemon(const Json& info) {
  std::string version = "version unknown";
  bool enabled = false;
  uint64_t ready = 0, wanted = 0;
  oci::ObjectReader reader(info, "");
  reader.String("version", &version);
  const Json* pools = reader.Member("pools");
  if (pools == nullptr) return version + ", says nothing about pools";
  oci::ObjectReader pool(*pools, "pools");
  pool.Bool("enabled", &enabled).Uint("blanks_ready", &ready).Uint("blanks_wanted", &wanted);
  if (!pool.Done(oci::ObjectReader::Unknown::kIgnore)) return version + ", pools unknown";
  if (!enabled) return version + ", pools off";
  return version + ", pools on (" + std::to_string(ready) + " of " + std::to_string(wanted) +
         " blanks ready)";
}

std::string RenderText(const Surroundings& host, const Plan& plan,
                       const std::vector<CaseResult>& results, Colours colours) {
  std::string text = "host: " + host.kernel + ", " + std::to_string(host.cpus) + " x " + host.cpu +
                     ", " + host.date + "\nroot file system: " + host.rootfs +
                     "\nhutch: " + host.hutch + "\n";
  if (host.load > host.cpus / 2.0)
    text += "the host is busy (load " + Fixed(host.load, 1) +
            "): every figure is worse than it need be, the smallest ones most\n";
  if (!host.pools_off.empty()) text += "hutch (pools off): " + host.pools_off + "\n";
  text += "runs: " + std::to_string(plan.runs) + " in turn, " + std::to_string(plan.pause_ms) +
          " ms apart, after " + std::to_string(plan.warmup) + " for warming up; bursts of " +
          std::to_string(plan.burst) + ", " + std::to_string(plan.burst_runs) + " rounds\n" +
          "hutch is measured through its API from inside this process: the start of the command "
          "line `hutch` is not part of it, but of copies, which `hutch cp` makes\n";
  if (host.memory)
    text += "copies: a file of " + FormatSize(plan.copy_bytes) + ", " +
            std::to_string(plan.copy_files) + " files of 1 KiB, " + std::to_string(plan.copy_runs) +
            " rounds; every copy was compared with what it is of\nhutchd: " +
            FormatSize(host.memory->before_kib << 10) + " resident before, " +
            FormatSize(host.memory->after_kib << 10) + " after, " +
            FormatSize(host.memory->peak_kib << 10) + " at most\n";
  for (const CaseResult& result : results)
    text +=
        "\n" + Paint(result.row->title, Colour::kBold, colours) + "\n" + CaseTable(result, colours);
  return text;
}

Json RenderJson(const Surroundings& host, const Plan& plan,
                const std::vector<CaseResult>& results) {
  Json cases = Json::array();
  for (const CaseResult& result : results) {
    Json entries = Json::array();
    for (const Entry& entry : result.entries) {
      Json one = {{"contestant", entry.contestant}};
      if (entry.samples.empty()) {
        one["reason"] = entry.reason;
      } else {
        const Summary s = Summarize(entry.samples);
        one.update({{"min_ms", s.min}, {"p50_ms", s.p50}, {"p95_ms", s.p95}, {"p99_ms", s.p99}});
        one.update({{"mean_ms", s.mean}, {"max_ms", s.max}, {"samples_ms", entry.samples}});
        if (IsBurst(result)) one["per_second"] = entry.per_second;
        if (IsCopy(result)) one["megabytes_per_second"] = entry.per_second;
      }
      entries.push_back(std::move(one));
    }
    cases.push_back({{"name", result.row->name}, {"title", result.row->title}});
    cases.back()["contestants"] = std::move(entries);
  }
  Json memory;
  if (host.memory)
    memory = {{"before_kib", host.memory->before_kib},
              {"after_kib", host.memory->after_kib},
              {"peak_kib", host.memory->peak_kib}};
  return {{"host",
           {{"kernel", host.kernel},
            {"cpu", host.cpu},
            {"cpus", host.cpus},
            {"date", host.date},
            {"load_average", host.load},
            {"rootfs", host.rootfs},
            {"hutch", host.hutch},
            {"hutchd_memory", std::move(memory)},
            {"hutch_pools_off", host.pools_off}}},
          {"plan",
           {{"runs", plan.runs},
            {"warmup", plan.warmup},
            {"burst", plan.burst},
            {"burst_runs", plan.burst_runs},
            {"pause_ms", plan.pause_ms},
            {"copy_bytes", plan.copy_bytes},
            {"copy_files", plan.copy_files},
            {"copy_runs", plan.copy_runs}}},
          {"cases", std::move(cases)}};
}

std::string RenderSvg(const Surroundings& host, const std::vector<CaseResult>& results) {
  std::vector<PlotPanel> panels;
  for (const CaseResult& result : results) {
    PlotPanel panel = {.title = result.row->title, .series = {}};
    for (const Entry& entry : result.entries)
      panel.series.push_back({entry.contestant, entry.samples});
    panels.push_back(std::move(panel));
  }
  return DrawSvg("hutch and its peers",
                 host.kernel + ", " + std::to_string(host.cpus) + " x " + host.cpu + ", " +
                     host.date + "; hutch " + host.hutch,
                 panels);
}

}  // namespace hutch::tools
