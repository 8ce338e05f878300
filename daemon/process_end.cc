#include "daemon/process_end.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/text.h"

namespace hutch::daemon {
namespace {

using oci::ObjectReader;

struct CauseRow {
  Cause cause;
  const char* name;
};
constexpr CauseRow kCauses[] = {
    {Cause::kExited, "exited"},
    {Cause::kSignaled, "signaled"},
    {Cause::kOutOfMemory, "out_of_memory"},
    {Cause::kTimedOut, "timed_out"},
    {Cause::kKilled, "killed"},
    {Cause::kSandboxEnded, "sandbox_ended"},
};

constexpr uint64_t kBlockBytes = 512;  // getrusage(2)

double Milli(const struct timeval& time) {
  return static_cast<double>(time.tv_sec) * 1000 + static_cast<double>(time.tv_usec) / 1000;
}

uint64_t Positive(long value) { return static_cast<uint64_t>(std::max(0L, value)); }

}  // namespace

const char* CauseName(Cause cause) {
  for (const CauseRow& row : kCauses)
    if (row.cause == cause) return row.name;
  CHECK(false);
}

// The first that applies. A command that a time-out killed was "timed_out" even when memory ran out
// as well.
Cause DecideCause(const EndFacts& facts) {
  if (facts.sandbox_ended) return Cause::kSandboxEnded;
  if (WIFEXITED(facts.wait_status))
    return Cause::kExited;  // by itself, whatever we were about to do
  if (facts.timed_out) return Cause::kTimedOut;
  if (facts.kill_asked) return Cause::kKilled;
  if (facts.oom_killed && WTERMSIG(facts.wait_status) == SIGKILL) return Cause::kOutOfMemory;
  return Cause::kSignaled;
}

std::string SignalName(int number) {
  const char* abbreviation = sigabbrev_np(number);
  if (abbreviation != nullptr) return std::string("SIG") + abbreviation;
  if (number >= SIGRTMIN && number <= SIGRTMAX)
    return "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
  return "SIG" + std::to_string(number);
}

Result<int> ParseSignal(const std::string& text) {
  if (const auto number = ParseUint(text, static_cast<uint64_t>(SIGRTMAX)); number && *number > 0)
    return static_cast<int>(*number);
  const std::string name = text.starts_with("SIG") ? text : "SIG" + text;
  for (int number = 1; number <= SIGRTMAX; ++number)
    if (SignalName(number) == name) return number;
  return Error{
      .code = Code::kInvalidArgument, .what = "no signal \"" + text + "\"", .field = "signal"};
}

void AddEnd(const ProcessEnd& end, oci::Json* json) {
  const EndFacts& facts = end.facts;
  const bool exited = !facts.sandbox_ended && WIFEXITED(facts.wait_status);
  oci::Json& out = *json;
  out["exit_code"] = exited ? oci::Json(WEXITSTATUS(facts.wait_status)) : oci::Json();
  out["signal"] =
      exited ? oci::Json()
             : oci::Json(facts.sandbox_ended ? "SIGKILL" : SignalName(WTERMSIG(facts.wait_status)));
  out["cause"] = CauseName(DecideCause(facts));
  out["duration_ms"] = end.duration_ms;
  out["timed_out"] = facts.timed_out && !exited;
  out["oom_killed"] = facts.oom_killed;
  out["pids_limit_hit"] = end.pids_limit_hit;
  out["usage"] = {{"wall_ms", end.duration_ms},
                  {"memory_peak_bytes", end.usage.memory_peak_bytes},
                  {"cpu_user_ms", end.usage.cpu_user_ms},
                  {"cpu_system_ms", end.usage.cpu_system_ms},
                  {"io_read_bytes", end.usage.io_read_bytes},
                  {"io_write_bytes", end.usage.io_write_bytes}};
}

oci::Json SaveEnd(const ProcessEnd& end) {
  return {{"sandbox_ended", end.facts.sandbox_ended},
          {"timed_out", end.facts.timed_out},
          {"kill_asked", end.facts.kill_asked},
          {"oom_killed", end.facts.oom_killed},
          {"wait_status", static_cast<uint32_t>(end.facts.wait_status)},
          {"duration_ms", end.duration_ms},
          {"pids_limit_hit", end.pids_limit_hit},
          {"memory_peak_bytes", end.usage.memory_peak_bytes},
          {"cpu_user_ms", end.usage.cpu_user_ms},
          {"cpu_system_ms", end.usage.cpu_system_ms},
          {"io_read_bytes", end.usage.io_read_bytes},
          {"io_write_bytes", end.usage.io_write_bytes}};
}

Result<ProcessEnd> LoadEnd(const oci::Json& json, const std::string& path) {
  ProcessEnd end;
  uint64_t wait_status = 0;
  ObjectReader reader(json, path);
  reader.Bool("sandbox_ended", &end.facts.sandbox_ended)
      .Bool("timed_out", &end.facts.timed_out)
      .Bool("kill_asked", &end.facts.kill_asked)
      .Bool("oom_killed", &end.facts.oom_killed)
      .Uint("wait_status", &wait_status, 0, UINT32_MAX)
      .Number("duration_ms", &end.duration_ms, 0, 1e15)
      .Bool("pids_limit_hit", &end.pids_limit_hit)
      .Uint("memory_peak_bytes", &end.usage.memory_peak_bytes, 0, UINT64_MAX)
      .Number("cpu_user_ms", &end.usage.cpu_user_ms, 0, 1e15)
      .Number("cpu_system_ms", &end.usage.cpu_system_ms, 0, 1e15)
      .Uint("io_read_bytes", &end.usage.io_read_bytes, 0, UINT64_MAX)
      .Uint("io_write_bytes", &end.usage.io_write_bytes, 0, UINT64_MAX);
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  end.facts.wait_status = static_cast<int>(wait_status);
  return end;
}

void RunPaced(const ExecPlace& place, std::function<void()> piece) {
  if (place.pace == nullptr) return piece();
  place.pace->Run(std::move(piece));
}

SandboxCounters ReadCounters(const runtime::Sandbox& sandbox) {
  const cgroups::Events events = sandbox.group().ReadEvents();
  return SandboxCounters{.oom_kills = events.oom_kills, .pids_limit_hits = events.pids_limit_hits};
}

void ReadEndCounts(ExecPlace& place, const runtime::AgentEvent& event,
                   const SandboxCounters& before, ProcessEnd* end) {
  Usage& usage = end->usage;
  usage = {.memory_peak_bytes = Positive(event.usage.ru_maxrss) * 1024,
           .cpu_user_ms = Milli(event.usage.ru_utime),
           .cpu_system_ms = Milli(event.usage.ru_stime),
           .io_read_bytes = Positive(event.usage.ru_inblock) * kBlockBytes,
           .io_write_bytes = Positive(event.usage.ru_oublock) * kBlockBytes};
  const cgroups::ProcessGroup* group =
      place.mode == cgroups::Mode::kV2 ? place.sandbox.ProcessCgroup(event.process) : nullptr;
  if (place.mode == cgroups::Mode::kV2 && group == nullptr) return;
  place.counters = ReadCounters(place.sandbox);
  // Since Linux 6.11 a refused fork counts where the limit is, which is the sandbox's group.
  end->pids_limit_hit = place.counters.pids_limit_hits > before.pids_limit_hits;
  if (place.mode == cgroups::Mode::kHybrid) {
    end->facts.oom_killed = place.counters.oom_kills > before.oom_kills;
    return;
  }
  const cgroups::Events events = group->ReadEvents();
  const cgroups::Stats stats = group->ReadUsage();
  end->facts.oom_killed = events.oom_kills > 0;
  end->pids_limit_hit = end->pids_limit_hit || events.pids_limit_hits > 0;
  if (stats.memory_peak_bytes) usage.memory_peak_bytes = *stats.memory_peak_bytes;
  if (stats.cpu_user_us) usage.cpu_user_ms = static_cast<double>(*stats.cpu_user_us) / 1000;
  if (stats.cpu_system_us) usage.cpu_system_ms = static_cast<double>(*stats.cpu_system_us) / 1000;
  if (stats.io_read_bytes) usage.io_read_bytes = *stats.io_read_bytes;
  if (stats.io_write_bytes) usage.io_write_bytes = *stats.io_write_bytes;
}

}  // namespace hutch::daemon
