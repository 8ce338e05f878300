#include "daemon/exec_request.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::ObjectReader;

Status ParseCommand(ObjectReader& reader, std::vector<std::string>* args) {
  const oci::Json* command = reader.Member("command");
  if (command == nullptr) {
    reader.Fail("command", "is required");
  } else if (command->is_string()) {
    *args = {"/bin/sh", "-c", command->get<std::string>()};
  } else {
    reader.Strings("command", args, kMaxCommandArgs);
    if (args->empty() || args->front().empty()) reader.Fail("command", "must name a program");
  }
  for (const std::string& arg : *args)
    if (arg.find('\0') != std::string::npos) reader.Fail("command", "holds a NUL");
  return OkStatus();
}

void ParseStdin(ObjectReader& reader, ExecFields* fields) {
  const oci::Json* text = reader.Member("stdin");
  const oci::Json* base64 = reader.Member("stdin_base64");
  fields->has_stdin = text != nullptr || base64 != nullptr;
  if (text != nullptr && base64 != nullptr) reader.Fail("stdin_base64", "\"stdin\" is given, too");
  reader.String("stdin", &fields->stdin_bytes, kMaxBodyBytes);
  if (base64 == nullptr) return;
  std::string encoded;
  reader.String("stdin_base64", &encoded, kMaxBodyBytes);
  if (!Base64Decode(encoded, &fields->stdin_bytes)) reader.Fail("stdin_base64", "is not base64");
}

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

std::string SignalName(int number) {
  const char* abbreviation = sigabbrev_np(number);
  if (abbreviation != nullptr) return std::string("SIG") + abbreviation;
  if (number >= SIGRTMIN && number <= SIGRTMAX)
    return "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
  return "SIG" + std::to_string(number);
}

}  // namespace

Result<ExecFields> ParseExecFields(const oci::Json& json, const Config& config) {
  ExecFields fields;
  fields.timeout_seconds = config.defaults.exec_timeout_seconds;
  fields.max_output_bytes = config.defaults.max_output_bytes;
  const Amounts& ceilings = config.ceilings;
  ObjectReader reader(json, "");
  RETURN_IF_ERROR(ParseCommand(reader, &fields.args));
  reader.StringMap("env", &fields.env)
      .String("workdir", &fields.workdir)
      .String("user", &fields.user, 256);
  ParseStdin(reader, &fields);
  reader.Number("timeout_seconds", &fields.timeout_seconds, 0, 1e9)
      .Uint("max_output_bytes", &fields.max_output_bytes, 0, uint64_t{1} << 40)
      .Bool("track_files", &fields.track_files);
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  RETURN_IF_ERROR(CheckEnv(fields.env, "env"));
  RETURN_IF_ERROR(CheckWorkdir(fields.workdir, "workdir"));
  if (ceilings.exec_timeout_seconds > 0) {
    if (fields.timeout_seconds == 0) fields.timeout_seconds = ceilings.exec_timeout_seconds;
    if (fields.timeout_seconds > ceilings.exec_timeout_seconds)
      return Error{.code = Code::kLimit,
                   .what = "above the operator's ceiling of " +
                           std::to_string(ceilings.exec_timeout_seconds),
                   .field = "timeout_seconds"};
  }
  if (ceilings.max_output_bytes > 0 && fields.max_output_bytes > ceilings.max_output_bytes)
    return Error{
        .code = Code::kLimit,
        .what = "above the operator's ceiling of " + std::to_string(ceilings.max_output_bytes),
        .field = "max_output_bytes"};
  return fields;
}

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

oci::Json FilesJson(const std::optional<rootfs::ChangeSet>& files) {
  if (!files) return nullptr;
  oci::Json list = oci::Json::array();
  for (const rootfs::FileChange& change : files->changes) {
    const bool text = IsUtf8(change.path);
    oci::Json entry = {{"path", text ? change.path : Base64Encode(change.path)},
                       {"action", rootfs::ChangeActionName(change.action)},
                       {"size_bytes", change.size_bytes},
                       {"type", rootfs::FileKindName(change.kind)}};
    if (!text) entry["path_encoding"] = "base64";
    list.push_back(std::move(entry));
  }
  return list;
}

oci::Json ExecJson(ExecResult result) {
  const EndFacts& facts = result.facts;
  oci::Json json;
  const bool exited = !facts.sandbox_ended && WIFEXITED(facts.wait_status);
  json["exit_code"] = exited ? oci::Json(WEXITSTATUS(facts.wait_status)) : oci::Json();
  json["signal"] =
      exited ? oci::Json()
             : oci::Json(facts.sandbox_ended ? "SIGKILL" : SignalName(WTERMSIG(facts.wait_status)));
  json["cause"] = CauseName(DecideCause(facts));
  json["stdout"] = std::move(result.out.text);
  json["stderr"] = std::move(result.err.text);
  json["stdout_encoding"] = result.out.encoding;
  json["stderr_encoding"] = result.err.encoding;
  json["stdout_bytes"] = result.out.total_bytes;
  json["stderr_bytes"] = result.err.total_bytes;
  json["stdout_truncated"] = result.out.truncated;
  json["stderr_truncated"] = result.err.truncated;
  json["duration_ms"] = result.duration_ms;
  json["timed_out"] = facts.timed_out && !exited;
  json["oom_killed"] = facts.oom_killed;
  json["pids_limit_hit"] = result.pids_limit_hit;
  json["usage"] = {{"memory_peak_bytes", result.usage.memory_peak_bytes},
                   {"cpu_user_ms", result.usage.cpu_user_ms},
                   {"cpu_system_ms", result.usage.cpu_system_ms}};
  json["files_changed"] = FilesJson(result.files);
  json["files_changed_truncated"] = result.files && !result.files->complete;
  json["process_id"] = "p" + std::to_string(result.process);
  return json;
}

}  // namespace hutch::daemon
