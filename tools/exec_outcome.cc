#include "tools/exec_outcome.h"

#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/base64.h"
#include "base/text.h"
#include "tools/commands.h"

namespace hutch::tools {
namespace {

using oci::Json;

struct Fields {
  bool timed_out = false, oom_killed = false, pids_limit_hit = false;
  bool stdout_truncated = false, stderr_truncated = false;
  uint64_t stdout_bytes = 0, stderr_bytes = 0;
  double duration_ms = 0;
  std::string cause, signal;
};

std::string Seconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", ms / 1000);
  return text;
}

// ObjectReader::String refuses NUL bytes, which a command may well write.
Result<std::string> Stream(const Json& reply, const char* name, const std::string& encoding_name) {
  const auto stream = reply.is_object() ? reply.find(name) : reply.end();
  if (stream == reply.end() || !stream->is_string())
    return Error{.what = std::string("the daemon's reply has no ") + name};
  const auto& text = stream->get_ref<const std::string&>();
  const auto encoding = reply.find(encoding_name);
  if (encoding == reply.end() || *encoding != "base64") return text;
  std::string bytes;
  if (!Base64Decode(text, &bytes))
    return Error{.code = Code::kInvalidArgument, .what = "malformed base64"};
  return bytes;
}

std::vector<std::string> Notes(const Fields& f) {
  std::vector<std::string> notes;
  if (f.timed_out)
    notes.push_back("the command was stopped by its time-out after " + Seconds(f.duration_ms) +
                    "; --timeout 5m allows more, --timeout 0 any time");
  if (f.oom_killed)
    notes.push_back(
        "the command ran out of memory and was killed; --memory at create or run allows more");
  if (f.pids_limit_hit)
    notes.push_back(
        "the limit of processes was reached, so some could not start; --pids at create or run "
        "allows more");
  if (f.stdout_truncated)
    notes.push_back("the middle of stdout was left out: " + FormatSize(f.stdout_bytes) +
                    " were written; --max-output keeps more");
  if (f.stderr_truncated)
    notes.push_back("the middle of stderr was left out: " + FormatSize(f.stderr_bytes) +
                    " were written; --max-output keeps more");
  if (f.cause == "killed") notes.push_back("the command was killed by another request");
  if (f.cause == "sandbox_ended")
    notes.push_back("the sandbox ended while the command ran; `hutch inspect` says why");
  return notes;
}

}  // namespace

int SignalNumber(const std::string& name) {
  for (int number = 1; number < NSIG; ++number)
    if (const char* known = sigabbrev_np(number);
        known != nullptr && name == std::string("SIG") + known)
      return number;
  if (!name.starts_with("SIGRTMIN")) return 0;
  const size_t plus = name.find('+');
  const auto offset = plus == std::string::npos ? 0 : ParseUint(name.substr(plus + 1), 30);
  return offset ? SIGRTMIN + static_cast<int>(*offset) : 0;
}

Result<ExecOutcome> ReadEnd(const Json& end) {
  Fields f;
  oci::ObjectReader reader(end, "");
  const Json* code = reader.Member("exit_code");
  reader.String("signal", &f.signal)
      .String("cause", &f.cause)
      .Bool("timed_out", &f.timed_out)
      .Bool("oom_killed", &f.oom_killed)
      .Bool("pids_limit_hit", &f.pids_limit_hit)
      .Bool("stdout_truncated", &f.stdout_truncated)
      .Bool("stderr_truncated", &f.stderr_truncated)
      .Uint("stdout_bytes", &f.stdout_bytes)
      .Uint("stderr_bytes", &f.stderr_bytes)
      .Number("duration_ms", &f.duration_ms, 0, 1e15);
  if (const auto read = reader.Done(oci::ObjectReader::Unknown::kIgnore); !read)
    return Error{.what = "the daemon's reply: " + read.error().what};
  ExecOutcome outcome;
  outcome.notes = Notes(f);
  const int signal = SignalNumber(f.signal);
  if (f.timed_out)
    outcome.exit_code = kExitTimedOut;
  else if (code != nullptr && code->is_number_integer())
    outcome.exit_code = code->get<int>();
  else
    outcome.exit_code = signal != 0 ? 128 + signal : kExitOwnError;
  return outcome;
}

Result<ExecOutcome> ReadExecReply(const Json& reply) {
  ASSIGN_OR_RETURN(ExecOutcome outcome, ReadEnd(reply));
  ASSIGN_OR_RETURN(outcome.out, Stream(reply, "stdout", "stdout_encoding"));
  ASSIGN_OR_RETURN(outcome.err, Stream(reply, "stderr", "stderr_encoding"));
  return outcome;
}

Result<OutputPiece> ReadOutputPiece(const Json& event) {
  OutputPiece piece;
  ASSIGN_OR_RETURN(piece.bytes, Stream(event, "data", "encoding"));
  const auto stream = event.find("stream");
  piece.to_stderr = stream != event.end() && *stream == "stderr";
  return piece;
}

int ExitCodeFor(const Error& error) {
  if (error.code == Code::kCommandNotFound) return kExitNotFound;
  if (error.code == Code::kCommandNotExecutable) return kExitNotExecutable;
  return kExitOwnError;
}

}  // namespace hutch::tools
