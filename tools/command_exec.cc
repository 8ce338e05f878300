// run, exec and shell: a command in a sandbox, its streams and its exit code passed on.
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "tools/commands.h"
#include "tools/creation.h"
#include "tools/exec_outcome.h"
#include "tools/interaction.h"
#include "tools/interrupts.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr size_t kMaxStdinBytes = size_t{1} << 30;  // the daemon has its own, lower bound

Result<std::string> StdinBytes(const Options& options) {
  if (!options.read_stdin) return std::string();
  return ReadAll(STDIN_FILENO, kMaxStdinBytes);
}

bool IsInteractive(const Options& options) { return options.interactive || options.terminal; }

std::string ExecTarget(const std::string& sandbox) {
  return "/v1/sandboxes/" + EncodeSegment(sandbox) + "/exec";
}

// The answer as a whole: --json, and --wait, which the daemon answers in no other way.
Result<int> ExecWhole(Context& context, const std::string& sandbox, const Json& body) {
  const auto reply = context.client.Post(ExecTarget(sandbox), body);
  if (!reply) return Failed(reply.error(), context.options);
  const auto running = reply->find("running");
  const bool goes_on = running != reply->end() && *running == true;
  ASSIGN_OR_RETURN(const ExecOutcome outcome, ReadExecReply(*reply));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(*reply));
    return goes_on ? kExitStillRunning : outcome.exit_code;
  }
  RETURN_IF_ERROR(Print(outcome.out));
  IgnoreError(WriteAll(STDERR_FILENO, outcome.err), "a closed stderr was the caller's choice");
  for (const std::string& note : outcome.notes) Note(note);
  if (!goes_on) return outcome.exit_code;
  const std::string named = sandbox + " " + reply->value("process_id", "PROCESS");
  Note("it goes on in the background; `hutch logs " + named + " --follow` shows its output, " +
       "`hutch wait " + named + "` its end");
  return kExitStillRunning;
}

// Output as it comes. A reader that went away ends the command, as SIGPIPE would end it here.
Result<int> ExecLive(Context& context, const std::string& sandbox, const Json& body) {
  bool nobody_reads = false;
  Json end;
  const Status read = context.client.ReadEvents(
      {.method = "POST", .target = ExecTarget(sandbox), .body = oci::PrintJson(body)},
      [&](const Json& event) -> Status {
        if (event["event"] == "exit") end = event;
        if (event["event"] != "output") return OkStatus();
        ASSIGN_OR_RETURN(const OutputPiece piece, ReadOutputPiece(event));
        const Status written =
            WriteAll(piece.to_stderr ? STDERR_FILENO : STDOUT_FILENO, piece.bytes);
        nobody_reads = !written && !piece.to_stderr;
        if (!nobody_reads) IgnoreError(written, "a closed stderr was the caller's choice");
        return nobody_reads ? written : OkStatus();
      });
  if (nobody_reads && read.error().sys == EPIPE) return 128 + SIGPIPE;
  if (nobody_reads) return read.error();
  if (!read && read.error().what == "interrupted") return read.error();
  if (!read) return Failed(read.error(), context.options);
  if (end.is_null())
    return Error{.code = Code::kUnavailable,
                 .what = "the daemon went away before the command ended"};
  return PassOnEnd(end);
}

Result<int> Exec(Context& context, const std::string& sandbox, const Json& body) {
  const bool whole = context.options.json || !context.options.wait.empty();
  return whole ? ExecWhole(context, sandbox, body) : ExecLive(context, sandbox, body);
}

Result<int> ExecDetached(Context& context, const Json& body) {
  const auto started = StartProcess(context.client, context.options.id, body);
  if (!started) return Failed(started.error(), context.options);
  if (context.options.json)
    RETURN_IF_ERROR(PrintJsonText(*started));
  else
    RETURN_IF_ERROR(Print(started->value("id", "") + "\n"));
  return 0;
}

// Whatever its end, the sandbox of `run` goes; one that went by itself (out of memory, its
// lifetime) is as destroyed as it should be.
void RemoveSandbox(Client& client, const std::string& id) {
  const auto removed = client.Delete("/v1/sandboxes/" + EncodeSegment(id));
  if (!removed && removed.error().code != Code::kNotFound)
    Note("sandbox " + id + " is left over (" + removed.error().what + "); `hutch rm " + id +
         "` destroys it");
}

Result<int> RunIn(Context& context, const std::string& id, const Json& body, int signal_fd,
                  bool* keep) {
  if (IsInteractive(context.options)) {
    ASSIGN_OR_RETURN(const Interaction done, Interact(context, id, body, signal_fd));
    *keep = done.detached;
    return done.exit_code;
  }
  context.client.set_interrupt_fd(signal_fd);
  auto exit_code = Exec(context, id, body);
  context.client.set_interrupt_fd(-1);
  const bool interrupted = !exit_code && exit_code.error().what == "interrupted";
  return interrupted ? 128 + NextSignal(signal_fd) : exit_code;
}

Result<Json> PlanBody(const Options& options, ExecIn where) {
  RETURN_IF_ERROR(CheckExecOptions(options));
  if (!options.detach) RETURN_IF_ERROR(CheckTerminal(options));
  ASSIGN_OR_RETURN(const std::string input, StdinBytes(options));
  if (IsInteractive(options) || options.detach)
    return PlanProcessBody(options, input, SizeOfTerminal(STDIN_FILENO), where);
  return PlanExecBody(options, input, where);
}

}  // namespace

Result<int> RunExec(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const Json body, PlanBody(options, ExecIn::kExistingSandbox));
  if (options.detach) return ExecDetached(context, body);
  if (!IsInteractive(options)) return Exec(context, options.id, body);
  ASSIGN_OR_RETURN(const UniqueFd signals, CatchSignals(Catch::kForTerminal));
  ASSIGN_OR_RETURN(const Interaction done, Interact(context, options.id, body, signals.get()));
  return done.exit_code;
}

Result<int> RunShell(Context& context) {
  Options options = context.options;
  options.terminal = true;
  Context terminal = {options, context.client, context.colours};
  return RunExec(terminal);
}

Result<int> RunRun(Context& context) {
  ASSIGN_OR_RETURN(const Json create, PlanCreateBody(context.options));
  ASSIGN_OR_RETURN(const Json body, PlanBody(context.options, ExecIn::kOwnSandbox));
  ASSIGN_OR_RETURN(UniqueFd signals, CatchSignals(Catch::kEnds));
  context.client.set_interrupt_fd(signals.get());  // a pull or a template may take long
  auto made = CreateSandbox(context, create);
  context.client.set_interrupt_fd(-1);
  if (!made && made.error().what == "interrupted") return 128 + NextSignal(signals.get());
  ASSIGN_OR_RETURN(const Json sandbox, std::move(made));
  if (IsInteractive(context.options)) {
    ASSIGN_OR_RETURN(signals, CatchSignals(Catch::kForTerminal));
  }
  std::string id;
  RETURN_IF_ERROR(
      oci::ObjectReader(sandbox, "").String("id", &id).Done(oci::ObjectReader::Unknown::kIgnore));
  bool keep = false;
  auto exit_code = RunIn(context, id, body, signals.get(), &keep);
  if (!keep) RemoveSandbox(context.client, id);
  return exit_code;
}

}  // namespace hutch::tools
