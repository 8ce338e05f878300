#include "daemon/sandbox_stats.h"

#include <sys/statvfs.h>

#include "daemon/limits.h"
#include "daemon/sandboxes.h"

namespace hutch::daemon {
namespace {

using oci::Json;

Json OrNull(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(); }

Json LineJson(const cgroups::PressureLine& line) {
  return {{"avg10", line.avg10},
          {"avg60", line.avg60},
          {"avg300", line.avg300},
          {"total_us", line.total_us}};
}

Json PressureJson(const std::optional<cgroups::Pressure>& pressure) {
  if (!pressure) return nullptr;
  return {{"some", LineJson(pressure->some)},
          {"full", pressure->full ? LineJson(*pressure->full) : Json()}};
}

// All writable file systems of a sandbox are one.
Json DiskJson(const SandboxEntry& entry) {
  Json json = {{"used_bytes", nullptr}, {"limit_bytes", entry.facts.fields.disk_bytes}};
  const UniqueFd& scratch = entry.sandbox->scratch().fd;
  struct statvfs info {};
  if (scratch.valid() && ::fstatvfs(scratch.get(), &info) == 0)
    json["used_bytes"] = (info.f_blocks - info.f_bfree) * info.f_frsize;
  return json;
}

Json CpuJson(SandboxEntry& entry, const cgroups::Stats& stats) {
  Json json = {{"usage_us", OrNull(stats.cpu_usage_us)},
               {"user_us", OrNull(stats.cpu_user_us)},
               {"system_us", OrNull(stats.cpu_system_us)},
               {"throttled_us", OrNull(stats.throttled_us)},
               {"limit", entry.facts.fields.cpus},
               {"percent", nullptr},
               {"over_ms", nullptr}};
  if (!stats.cpu_usage_us) return json;
  const SteadyTime now = SteadyTime::clock::now();
  const auto age = std::chrono::system_clock::now() - entry.facts.created_at;
  const SteadyTime born = now - std::chrono::duration_cast<SteadyTime::duration>(age);
  const CpuWindow::Share share = entry.cpu_window.Look(*stats.cpu_usage_us, now, born);
  json["percent"] = share.percent;
  json["over_ms"] = share.over_ms;
  return json;
}

}  // namespace

CpuWindow::Share CpuWindow::Look(uint64_t usage_us, SteadyTime now, SteadyTime born) {
  if (!std::exchange(looked_, true)) {
    base_ = latest_ = {.at = born, .usage_us = 0};
  } else if (now - latest_.at >= kMinStatsWindow) {
    base_ = latest_;
  }
  if (now - latest_.at >= kMinStatsWindow || latest_.at == born)
    latest_ = {.at = now, .usage_us = usage_us};
  const double ms = std::chrono::duration<double, std::milli>(now - base_.at).count();
  const uint64_t used = usage_us - std::min(usage_us, base_.usage_us);
  return {.percent = ms > 0 ? static_cast<double>(used) / 10 / ms : 0, .over_ms = ms};
}

Json StatsJson(SandboxEntry& entry, Json network) {
  const SandboxFields& fields = entry.facts.fields;
  const cgroups::Stats stats = entry.sandbox->group().ReadStats();
  const cgroups::Pressures pressure = entry.sandbox->group().ReadPressure();
  return {{"id", entry.facts.id},
          {"name", fields.name.empty() ? Json() : Json(fields.name)},
          {"at", FormatRfc3339(std::chrono::system_clock::now())},
          {"cpu", CpuJson(entry, stats)},
          {"memory",
           {{"current_bytes", OrNull(stats.memory_current_bytes)},
            {"peak_bytes", OrNull(stats.memory_peak_bytes)},
            {"limit_bytes", fields.memory_bytes},
            {"limit_hits", stats.memory_events.limit_hits},
            {"oom_kills", stats.memory_events.oom_kill}}},
          {"pids",
           {{"current", OrNull(stats.pids_current)},
            {"peak", OrNull(stats.pids_peak)},
            {"limit", fields.pids},
            {"limit_hits", stats.pids_limit_hits}}},
          {"disk", DiskJson(entry)},
          {"io",
           {{"read_bytes", OrNull(stats.io_read_bytes)},
            {"write_bytes", OrNull(stats.io_write_bytes)}}},
          {"pressure",
           {{"cpu", PressureJson(pressure.cpu)},
            {"memory", PressureJson(pressure.memory)},
            {"io", PressureJson(pressure.io)}}},
          {"network", std::move(network)},
          {"processes", entry.commands ? entry.commands->count() : 0}};
}

}  // namespace hutch::daemon
