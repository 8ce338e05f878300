// ps, logs, attach, kill, wait: what runs in a sandbox's background.
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/file.h"
#include "base/text.h"
#include "tools/attachment.h"
#include "tools/commands.h"
#include "tools/exec_outcome.h"
#include "tools/interaction.h"
#include "tools/interrupts.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;
using Unknown = oci::ObjectReader::Unknown;

constexpr uint64_t kReplayBytes = uint64_t{64} << 10;  // what attach shows of the past
constexpr const char* kPageBytes = "1048576";

struct ProcessFacts {
  std::string id, state, signal, started_at;
  std::vector<std::string> command;
  bool terminal = false, stdin_open = false;
  uint64_t output_begin = 0, output_end = 0;
  std::string exit_code;  // as text, "" while there is none
};

Result<ProcessFacts> ReadProcess(const Json& process) {
  ProcessFacts facts;
  oci::ObjectReader reader(process, "process");
  reader.String("id", &facts.id)
      .String("state", &facts.state)
      .String("signal", &facts.signal)
      .String("started_at", &facts.started_at)
      .Strings("command", &facts.command)
      .Bool("terminal", &facts.terminal)
      .Bool("stdin_open", &facts.stdin_open)
      .Uint("output_begin", &facts.output_begin)
      .Uint("output_end", &facts.output_end);
  const Json* code = reader.Member("exit_code");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (code != nullptr && code->is_number_integer()) facts.exit_code = code->dump();
  return facts;
}

std::string TargetOf(const Options& options) { return ProcessTarget(options.id, options.process); }

std::string Quoted(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$`|&;<>()*?") == std::string::npos;
    text.append(text.empty() ? "" : " ").append(plain ? word : "'" + word + "'");
  }
  return text;
}

Cell StateCell(const ProcessFacts& facts) {
  if (facts.state == "running") return {facts.state, Colour::kGreen};
  return {facts.state, Colour::kDim};
}

Status PrintPiece(const Json& chunk) {
  ASSIGN_OR_RETURN(const OutputPiece piece, ReadOutputPiece(chunk));
  if (!piece.to_stderr) return WriteAll(STDOUT_FILENO, piece.bytes);
  IgnoreError(WriteAll(STDERR_FILENO, piece.bytes), "a closed stderr was the caller's choice");
  return OkStatus();
}

Status PrintLine(const Json& value) {
  return WriteAll(STDOUT_FILENO, oci::PrintJson(value) + "\n");
}

void NoteDropped(uint64_t bytes) {
  if (bytes > 0) Note(FormatSize(bytes) + " of older output are gone: the log kept no more");
}

struct Page {
  uint64_t next_cursor = 0, dropped_bytes = 0;
  const Json* chunks = nullptr;
};

Result<Page> ReadPage(const Json& reply) {
  Page page;
  oci::ObjectReader reader(reply, "");
  reader.Uint("next_cursor", &page.next_cursor).Uint("dropped_bytes", &page.dropped_bytes);
  page.chunks = reader.Member("chunks");
  RETURN_IF_ERROR(reader.Done(Unknown::kIgnore));
  if (page.chunks == nullptr || !page.chunks->is_array())
    return Error{.what = "the daemon's reply has no chunks"};
  return page;
}

Status PrintPages(Context& context, const std::string& query) {
  ASSIGN_OR_RETURN(const Json process, context.client.Get(TargetOf(context.options)));
  ASSIGN_OR_RETURN(const ProcessFacts facts, ReadProcess(process));
  const std::string stream =
      context.options.stream.empty() ? "" : "&stream=" + EncodeSegment(context.options.stream);
  std::string place = query;
  // What it writes from now on is not waited for: a busy one would never let us end.
  for (uint64_t cursor = 0; cursor < facts.output_end;) {
    ASSIGN_OR_RETURN(
        const Json reply,
        context.client.Get(TargetOf(context.options) + "/output?max_bytes=" + kPageBytes + place));
    ASSIGN_OR_RETURN(const Page page, ReadPage(reply));
    NoteDropped(place.find("&cursor=") != std::string::npos ? page.dropped_bytes : 0);
    for (const Json& chunk : *page.chunks)
      RETURN_IF_ERROR(context.options.json ? PrintLine(chunk) : PrintPiece(chunk));
    if (page.next_cursor <= cursor) break;
    cursor = page.next_cursor;
    place = stream + "&cursor=" + std::to_string(cursor);
  }
  return OkStatus();
}

Status Follow(Context& context, const std::string& query) {
  const std::string target = TargetOf(context.options) + "/output?follow=true" + query;
  bool ended = false;
  RETURN_IF_ERROR(context.client.ReadEvents({.target = target}, [&](const Json& event) -> Status {
    ended |= event["event"] == "exit";
    if (context.options.json) return PrintLine(event);
    if (event["event"] == "gap") NoteDropped(event.value("dropped_bytes", uint64_t{0}));
    return event["event"] == "output" ? PrintPiece(event) : OkStatus();
  }));
  if (ended) return OkStatus();
  return Error{.code = Code::kUnavailable,
               .what = "the daemon went away",
               .hint = "the process goes on; call logs again, with --since for what is new"};
}

}  // namespace

Result<int> RunProcesses(Context& context) {
  ASSIGN_OR_RETURN(
      const Json reply,
      context.client.Get("/v1/sandboxes/" + EncodeSegment(context.options.id) + "/processes"));
  if (context.options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return 0;
  }
  oci::ObjectReader reader(reply, "");
  const Json* processes = reader.Member("processes");
  if (processes == nullptr || !processes->is_array())
    return Error{.what = "the daemon's reply has no list of processes"};
  Table table({{"PROCESS"}, {"STATE"}, {"EXIT", Align::kRight}, {"STARTED"}, {"COMMAND"}});
  std::string ids;
  for (const Json& process : *processes) {
    ASSIGN_OR_RETURN(const ProcessFacts facts, ReadProcess(process));
    const std::string end = facts.exit_code.empty() ? facts.signal : facts.exit_code;
    ids += facts.id + "\n";
    table.Add({facts.id, StateCell(facts), end.empty() ? "-" : end, Age(facts.started_at) + " ago",
               Quoted(facts.command)});
  }
  RETURN_IF_ERROR(Print(context.options.ids_only ? ids : table.Render(context.colours)));
  return 0;
}

Result<int> RunLogs(Context& context) {
  ASSIGN_OR_RETURN(const std::string query,
                   PlanLogsQuery(context.options, std::chrono::system_clock::now()));
  const Status printed =
      context.options.follow ? Follow(context, query) : PrintPages(context, query);
  if (!printed && printed.error().sys != EPIPE) return printed.error();
  return 0;  // a reader that went away is no error: logs ... | head
}

Result<int> RunAttach(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const Json process, context.client.Get(TargetOf(options)));
  ASSIGN_OR_RETURN(const ProcessFacts facts, ReadProcess(process));
  ASSIGN_OR_RETURN(const UniqueFd signals, CatchSignals(Catch::kForTerminal));
  const uint64_t replay =
      facts.output_end > kReplayBytes ? facts.output_end - kReplayBytes : uint64_t{0};
  ASSIGN_OR_RETURN(const AttachmentEnd end,
                   Attach({.endpoint = context.client.endpoint(),
                           .sandbox = options.id,
                           .process = options.process,
                           .cursor = std::max(facts.output_begin, replay),
                           .signal_fd = signals.get(),
                           .terminal = facts.terminal && ::isatty(STDIN_FILENO) == 1,
                           .input = facts.terminal || facts.stdin_open}));
  if (end.how == AttachmentEnd::How::kExited) return PassOnEnd(end.process);
  if (end.how == AttachmentEnd::How::kOutputClosed) return 128 + SIGPIPE;
  Note("detached; process " + options.process + " goes on");
  return end.how == AttachmentEnd::How::kSignal ? 128 + end.signal : 0;
}

Result<int> RunKill(Context& context) {
  const Options& options = context.options;
  if (options.remove) {
    if (!options.signal.empty() || options.whole_tree)
      return Error{.code = Code::kInvalidArgument,
                   .what = "--rm does not go with --signal and --tree",
                   .hint = "it kills all of it, with SIGKILL"};
    RETURN_IF_ERROR(context.client.Delete(TargetOf(options)));
    return 0;
  }
  Json body = {{"signal", options.signal.empty() ? "SIGTERM" : options.signal}};
  const auto number = ParseUint(options.signal, 64);
  if (number) body["signal"] = *number;
  if (options.whole_tree) body["target"] = "tree";
  RETURN_IF_ERROR(context.client.Post(TargetOf(options) + "/signal", body));
  return 0;
}

Result<int> RunWait(Context& context) {
  if (context.options.process.empty()) return WaitForState(context);
  if (!context.options.state.empty() || !context.options.timeout.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "--for and --timeout are of a sandbox, not of a process"};
  for (;;) {
    ASSIGN_OR_RETURN(const Json process,
                     context.client.Get(TargetOf(context.options) + "?wait_seconds=3600"));
    ASSIGN_OR_RETURN(const ProcessFacts facts, ReadProcess(process));
    if (facts.state == "running") continue;
    if (!context.options.json) return PassOnEnd(process);
    RETURN_IF_ERROR(PrintJsonText(process));
    ASSIGN_OR_RETURN(const ExecOutcome outcome, ReadEnd(process));
    return outcome.exit_code;
  }
}

}  // namespace hutch::tools
