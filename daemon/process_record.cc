// The record of a background process: what SaveProcess and LoadProcess make of ProcessFacts.
#include "daemon/background.h"
#include "oci/json.h"

namespace hutch::daemon {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kMaxRecordBytes = 8 * 1024 * 1024;

Status LoadTime(const std::string& text, const char* field, WallTime* time) {
  Result<WallTime> parsed = ParseRfc3339(text);
  if (!parsed.has_value())
    return Error{.code = Code::kCorrupt, .what = "malformed time", .field = field};
  *time = *parsed;
  return OkStatus();
}

}  // namespace

std::string SaveProcess(const ProcessFacts& facts) {
  oci::Json json = {{"version", kVersion},
                    {"number", facts.number},
                    {"args", facts.args},
                    {"workdir", facts.workdir},
                    {"user", facts.user},
                    {"terminal", facts.terminal},
                    {"merge_output", facts.merge_output},
                    {"stdin_open", facts.stdin_open},
                    {"timeout_seconds", facts.timeout_seconds},
                    {"log_bytes", facts.log_bytes},
                    {"started_at", FormatRfc3339(facts.started_at)},
                    {"oom_kills_before", facts.before.oom_kills},
                    {"pids_limit_hits_before", facts.before.pids_limit_hits},
                    {"paused_ms_before", facts.paused_before_ms},
                    {"timed_out", facts.timed_out},
                    {"kill_asked", facts.kill_asked}};
  if (facts.end) {
    json["end"] = SaveEnd(*facts.end);
    json["ended_at"] = FormatRfc3339(facts.ended_at);
  }
  return oci::PrintJson(json);
}

Result<ProcessFacts> LoadProcess(const std::string& text) {
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = kMaxRecordBytes, .max_depth = 8}));
  ProcessFacts facts;
  uint64_t version = 0, number = 0;
  std::string started_at, ended_at;
  oci::ObjectReader reader(json, "");
  reader.Uint("version", &version, kVersion, kVersion)
      .Uint("number", &number, 1, UINT32_MAX)
      .Strings("args", &facts.args, kMaxCommandArgs)
      .String("workdir", &facts.workdir)
      .String("user", &facts.user)
      .Bool("terminal", &facts.terminal)
      .Bool("merge_output", &facts.merge_output)
      .Bool("stdin_open", &facts.stdin_open)
      .Number("timeout_seconds", &facts.timeout_seconds, 0, 1e9)
      .Uint("log_bytes", &facts.log_bytes, kMinLogBytes, kMaxLogBytes)
      .String("started_at", &started_at)
      .String("ended_at", &ended_at)
      .Uint("oom_kills_before", &facts.before.oom_kills)
      .Uint("pids_limit_hits_before", &facts.before.pids_limit_hits)
      .Uint("paused_ms_before", &facts.paused_before_ms)
      .Bool("timed_out", &facts.timed_out)
      .Bool("kill_asked", &facts.kill_asked);
  const oci::Json* end = reader.Member("end");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  facts.number = static_cast<uint32_t>(number);
  RETURN_IF_ERROR(LoadTime(started_at, "started_at", &facts.started_at));
  if (end == nullptr) return facts;
  ASSIGN_OR_RETURN(facts.end, LoadEnd(*end, "end"));
  RETURN_IF_ERROR(LoadTime(ended_at, "ended_at", &facts.ended_at));
  return facts;
}

}  // namespace hutch::daemon
