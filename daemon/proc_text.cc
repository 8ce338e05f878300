#include "daemon/proc_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kTicksPerSecond = 100;  // USER_HZ, the unit of /proc/stat on every x86-64
constexpr uint64_t kUsPerTick = 1000000 / kTicksPerSecond;
constexpr double kLoadSeconds[] = {60, 300, 900};

// snprintf into a string; every format here is short.
template <class... Args>
void Print(std::string& out, const char* format, Args... args) {
  char line[160];
  const int n = std::snprintf(line, sizeof line, format, args...);
  out.append(line, static_cast<size_t>(std::clamp<int>(n, 0, sizeof line - 1)));
}

// Lines of cpuinfo that say which and how many.
enum class Topology { kIndex, kCount, kZero };
struct TopologyRow {
  const char* name;
  Topology what;
};
constexpr TopologyRow kTopology[] = {
    {"processor", Topology::kIndex}, {"core id", Topology::kIndex},
    {"apicid", Topology::kIndex},    {"initial apicid", Topology::kIndex},
    {"siblings", Topology::kCount},  {"cpu cores", Topology::kCount},
    {"physical id", Topology::kZero}};

void AppendLine(std::string& out, const std::string& line, uint32_t index, uint32_t count) {
  const size_t colon = line.find(':');
  const std::string_view name = Trim(std::string_view(line).substr(0, colon));
  for (const TopologyRow& row : kTopology) {
    if (colon == std::string::npos || name != row.name) continue;
    const uint32_t value = row.what == Topology::kIndex   ? index
                           : row.what == Topology::kCount ? count
                                                          : 0;
    out.append(line, 0, colon).append(": ").append(std::to_string(value)).push_back('\n');
    return;
  }
  out.append(line).push_back('\n');
}

struct MemoryRow {
  const char* name;
  uint64_t bytes;
};

uint64_t IdleTicks(const ProcNumbers& n) {
  const uint64_t all = n.uptime_ms * n.cpus * kTicksPerSecond / 1000;
  const uint64_t used = (n.usage.cpu_user_us + n.usage.cpu_system_us) / kUsPerTick;
  return all - std::min(all, used);
}

uint64_t Running(const ProcNumbers& n) {
  return std::clamp<uint64_t>(static_cast<uint64_t>(std::llround(n.load[0])), 1,
                              std::max<uint64_t>(n.usage.tasks, 1));
}

void AppendCpu(std::string& out, const std::string& name, uint64_t user, uint64_t system,
               uint64_t idle) {
  Print(out, "%s %llu 0 %llu %llu 0 0 0 0 0 0\n", name.c_str(),
        static_cast<unsigned long long>(user), static_cast<unsigned long long>(system),
        static_cast<unsigned long long>(idle));
}

}  // namespace

std::vector<std::string> SplitCpuinfo(std::string_view text) {
  std::vector<std::string> processors;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    const std::string_view one = text.substr(0, end);
    if (one.find("processor") != std::string_view::npos) processors.emplace_back(Trim(one));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
  }
  return processors;
}

std::string CpuinfoText(const std::vector<std::string>& processors, uint32_t cpus) {
  std::string out;
  for (uint32_t i = 0; i < cpus; ++i) {
    const std::string& one = processors.empty()
                                 ? "processor\t: 0"
                                 : processors[std::min<size_t>(i, processors.size() - 1)];
    for (const std::string& line : Split(one, '\n')) AppendLine(out, line, i, cpus);
    out.push_back('\n');
  }
  return out;
}

std::string MeminfoText(const ProcNumbers& n) {
  const uint64_t total = n.memory_bytes;
  const uint64_t used = std::min(n.usage.memory_bytes, total);
  const uint64_t cached = std::min(n.usage.cache_bytes, used);
  const uint64_t shared = std::min(n.usage.shared_bytes, cached);
  const uint64_t slab = std::min(n.usage.reclaimable_bytes, used - cached);
  const uint64_t anonymous = used - cached - slab;
  const MemoryRow rows[] = {
      {"MemTotal", total},
      {"MemFree", total - used},
      {"MemAvailable", total - used + cached - shared + slab},
      {"Buffers", 0},
      {"Cached", cached},
      {"SwapCached", 0},
      {"Active", anonymous},
      {"Inactive", cached},
      {"Active(anon)", anonymous},
      {"Inactive(anon)", shared},
      {"Active(file)", 0},
      {"Inactive(file)", cached - shared},
      {"Unevictable", 0},
      {"Mlocked", 0},
      {"SwapTotal", 0},
      {"SwapFree", 0},
      {"Dirty", 0},
      {"Writeback", 0},
      {"AnonPages", anonymous},
      {"Mapped", 0},
      {"Shmem", shared},
      {"KReclaimable", slab},
      {"Slab", slab},
      {"SReclaimable", slab},
      {"SUnreclaim", 0},
      {"CommitLimit", total},
      {"Committed_AS", used},
  };
  std::string out;
  for (const MemoryRow& row : rows)
    Print(out, "%-15s %8llu kB\n", (std::string(row.name) + ":").c_str(),
          static_cast<unsigned long long>(row.bytes / 1024));
  return out;
}

// The use is spread evenly: which CPU did it is not known, and nobody's business.
std::string StatText(const ProcNumbers& n) {
  const uint64_t user = n.usage.cpu_user_us / kUsPerTick;
  const uint64_t system = n.usage.cpu_system_us / kUsPerTick;
  const uint64_t idle = IdleTicks(n);
  std::string out;
  AppendCpu(out, "cpu ", user, system, idle);
  for (uint32_t i = 0; i < n.cpus; ++i)
    AppendCpu(out, "cpu" + std::to_string(i), user / n.cpus, system / n.cpus, idle / n.cpus);
  Print(out, "intr 0\nctxt 0\nbtime %lld\n", static_cast<long long>(n.born_seconds));
  Print(out, "processes %llu\nprocs_running %llu\nprocs_blocked 0\n",
        static_cast<unsigned long long>(n.usage.tasks),
        static_cast<unsigned long long>(Running(n)));
  out += "softirq 0 0 0 0 0 0 0 0 0 0 0\n";
  return out;
}

std::string UptimeText(const ProcNumbers& n) {
  std::string out;
  Print(out, "%.2f %.2f\n", static_cast<double>(n.uptime_ms) / 1000,
        static_cast<double>(IdleTicks(n)) / kTicksPerSecond);
  return out;
}

std::string LoadavgText(const ProcNumbers& n) {
  std::string out;
  const auto tasks = static_cast<unsigned long long>(std::max<uint64_t>(n.usage.tasks, 1));
  Print(out, "%.2f %.2f %.2f %llu/%llu %llu\n", n.load[0], n.load[1], n.load[2],
        static_cast<unsigned long long>(Running(n)), tasks, tasks);
  return out;
}

void AdvanceLoad(double (&load)[3], double running, double seconds) {
  for (size_t i = 0; i < std::size(kLoadSeconds); ++i) {
    const double keep = std::exp(-std::max(seconds, 0.0) / kLoadSeconds[i]);
    load[i] = load[i] * keep + running * (1 - keep);
  }
}

}  // namespace hutch::daemon
