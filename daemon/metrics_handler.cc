// GET /v1/metrics: what was counted, and how things stand now.
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "cgroups/pressure.h"
#include "daemon/handlers.h"
#include "daemon/info.h"
#include "daemon/metrics.h"
#include "daemon/sandbox_pools.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxProcBytes = 64 * 1024;

std::string ReadProc(const char* path) {
  Result<std::string> text = ReadFile(path, kMaxProcBytes);
  return text.has_value() ? *std::move(text) : std::string();
}

void AddRequests(const Metrics& metrics, MetricsText* text) {
  text->Family("hutch_http_requests_total", "counter", "Answers by route and status.");
  for (size_t i = 0; i < metrics.requests.size(); ++i) {
    const bool known = i < Routes().size();
    for (const auto& [status, count] : metrics.requests[i].rows)
      text->Sample({{"method", known ? Routes()[i].method : ""},
                    {"route", known ? Routes()[i].pattern : ""},
                    {"status", std::to_string(status)}},
                   static_cast<double>(count));
  }
}

void AddSandboxes(const Api& api, MetricsText* text) {
  uint64_t counts[kSandboxStates] = {}, memory = 0;
  for (const SandboxEntry* entry : api.sandboxes.List()) {
    ++counts[static_cast<size_t>(entry->moments.state)];
    if (entry->sandbox != nullptr) memory += entry->facts.fields.memory_bytes;
  }
  text->Family("hutch_sandboxes", "gauge", "Sandboxes there are; ended ones for a while.");
  for (size_t i = 0; i < kSandboxStates; ++i)
    text->Sample({{"state", StateName(static_cast<SandboxState>(i))}},
                 static_cast<double>(counts[i]));
  text->Gauge("hutch_sandboxes_quarantined", "Sandboxes that cannot be removed.",
              static_cast<double>(api.sandboxes.Quarantined().size()));
  text->Gauge("hutch_memory_granted_bytes", "Memory limits of all living sandboxes together.",
              static_cast<double>(memory));
  const Promise& promised = api.sandboxes.admission().promised();
  text->Gauge("hutch_promised_memory_bytes", "Memory promised to sandboxes.",
              static_cast<double>(promised.memory_bytes));
  text->Gauge("hutch_promised_cpus", "CPUs promised to sandboxes.",
              static_cast<double>(promised.cpu_millis) / 1000);
  text->Gauge("hutch_promised_pids", "Processes promised to sandboxes.",
              static_cast<double>(promised.pids));
  text->Gauge("hutch_promised_disk_bytes", "Bytes of files promised to sandboxes.",
              static_cast<double>(promised.disk_bytes));
  text->Gauge("hutch_promised_id_ranges", "Ranges of host ids that sandboxes have.",
              static_cast<double>(promised.id_ranges));
  text->Counters("hutch_admission_refused_total", "reason",
                 "Sandboxes that were not made for want of room, by what was in the way.",
                 api.sandboxes.admission().refused());
  text->Gauge("hutch_commands_running", "Commands and background processes that run.",
              static_cast<double>(api.sandboxes.commands_running()));
  const runtime::Runtime::PoolState pool = api.info.pool_state();
  text->Family("hutch_pool_blanks", "gauge", "Sandboxes made ahead of requests.");
  text->Sample({{"state", "ready"}}, static_cast<double>(pool.blanks_ready));
  text->Sample({{"state", "wanted"}}, static_cast<double>(pool.blanks_wanted));
  text->Sample({{"state", "in_flight"}}, static_cast<double>(pool.blanks_in_flight));
  text->Sample({{"state", "linked"}}, static_cast<double>(pool.links_ready));
}

// "MemAvailable:    123 kB"
void AddMemory(MetricsText* text) {
  struct Row {
    const char* field;
    const char* name;
    const char* help;
  };
  constexpr Row kRows[] = {
      {"MemTotal:", "hutch_host_memory_bytes", "Memory of the host."},
      {"MemAvailable:", "hutch_host_memory_available_bytes",
       "Memory of the host that is free or can be freed."},
  };
  const std::string meminfo = ReadProc("/proc/meminfo");
  for (const Row& row : kRows)
    for (const std::string& line : Split(meminfo, '\n')) {
      if (!line.starts_with(row.field)) continue;
      const std::vector<std::string> words =
          Split(Trim(std::string_view(line).substr(std::string_view(row.field).size())), ' ');
      const auto kib = ParseUint(words.front());
      if (kib) text->Gauge(row.name, row.help, static_cast<double>(*kib) * 1024);
    }
}

void AddPressure(MetricsText* text) {
  struct Row {
    const char* resource;
    const char* path;
  };
  constexpr Row kRows[] = {{"cpu", "/proc/pressure/cpu"},
                           {"memory", "/proc/pressure/memory"},
                           {"io", "/proc/pressure/io"}};
  text->Family("hutch_host_pressure_seconds_total", "counter",
               "How long tasks of the host waited; none where the kernel does not tell.");
  for (const Row& row : kRows) {
    const auto pressure = cgroups::ParsePressure(ReadProc(row.path));
    if (!pressure) continue;
    text->Sample({{"resource", row.resource}, {"share", "some"}},
                 static_cast<double>(pressure->some.total_us) / 1e6);
    if (pressure->full)
      text->Sample({{"resource", row.resource}, {"share", "full"}},
                   static_cast<double>(pressure->full->total_us) / 1e6);
  }
}

void AddProcess(const Api& api, MetricsText* text) {
  const auto started = api.info.started_at().time_since_epoch();
  text->Family("hutch_info", "gauge", "Always 1; the version is a label.");
  text->Sample({{"version", HUTCH_VERSION}}, 1);
  text->Gauge("hutch_start_time_seconds", "When the daemon started, since 1970.",
              std::chrono::duration<double>(started).count());
  struct rusage usage {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    text->Counter("hutch_cpu_seconds_total", "CPU time of the daemon.",
                  seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  const std::vector<std::string> statm = Split(ReadProc("/proc/self/statm"), ' ');
  if (const auto pages = ParseUint(statm.size() > 1 ? statm[1] : ""))
    text->Gauge("hutch_resident_memory_bytes", "Memory of the daemon.",
                static_cast<double>(*pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  if (const auto names = ListDirectory("/proc/self/fd"))
    text->Gauge("hutch_open_files", "Descriptors of the daemon.",
                static_cast<double>(names->size() - 1));  // without the one that reads
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    text->Gauge("hutch_open_files_limit", "The most descriptors it may have.",
                static_cast<double>(limit.rlim_cur));
}

void AddTraffic(const Api& api, MetricsText* text) {
  const Watching::Connections connections = api.watching.connections();
  text->Gauge("hutch_http_connections", "Open connections.", static_cast<double>(connections.open));
  text->Gauge("hutch_http_requests_under_way", "Requests that are not answered yet, this included.",
              static_cast<double>(connections.requests_under_way));
  text->Gauge("hutch_event_followers", "Clients that follow the events.",
              static_cast<double>(api.watching.events().listeners()));
  text->Family("hutch_events_total", "counter", "Events by kind.");
  for (size_t kind = 0; kind < kEventKinds; ++kind)
    text->Sample({{"kind", EventKindName(static_cast<EventKind>(kind))}},
                 static_cast<double>(api.watching.events().count(static_cast<EventKind>(kind))));
  text->Counter("hutch_audit_entries_lost_total", "Entries that the audit log could not take.",
                static_cast<double>(api.audit.state().lost));
}

}  // namespace

void HandleMetrics(Api& api, Request, Responder responder) {
  MetricsText text;
  AddCounters(api.watching.metrics(), &text);
  AddRequests(api.watching.metrics(), &text);
  AddSandboxes(api, &text);
  if (api.pools != nullptr) api.pools->AddMetrics(&text);
  AddTraffic(api, &text);
  AddMemory(&text);
  AddPressure(&text);
  AddProcess(api, &text);
  responder.Send(Reply{.status = 200,
                       .body = text.Take(),
                       .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace hutch::daemon
