#include "tools/interaction.h"

#include <unistd.h>

#include <csignal>

#include "tools/attachment.h"
#include "tools/exec_outcome.h"

namespace hutch::tools {
namespace {

using oci::Json;
using How = AttachmentEnd::How;

constexpr const char* kShells[] = {"/bin/bash", "/bin/sh"};

Result<std::string> IdOf(const Json& process) {
  std::string id;
  RETURN_IF_ERROR(
      oci::ObjectReader(process, "").String("id", &id).Done(oci::ObjectReader::Unknown::kIgnore));
  return id;
}

// One that went by itself is as gone as it should be.
void RemoveProcess(Client& client, const std::string& sandbox, const std::string& process) {
  const auto removed = client.Delete(ProcessTarget(sandbox, process));
  if (!removed && removed.error().code != Code::kNotFound)
    Note("process " + process + " of " + sandbox + " may be left over (" + removed.error().what +
         "); `hutch kill --rm " + sandbox + " " + process + "` removes it");
}

Result<Interaction> Conclude(const AttachmentEnd& end, const std::string& sandbox,
                             const std::string& process) {
  switch (end.how) {
    case How::kDetached:
      Note("detached; process " + process + " goes on, `hutch attach " + sandbox + " " + process +
           "` joins it again");
      return Interaction{.detached = true};
    case How::kSignal:
      return Interaction{.exit_code = 128 + end.signal};
    case How::kOutputClosed:
      return Interaction{.exit_code = 128 + SIGPIPE};
    case How::kExited:
      break;
  }
  ASSIGN_OR_RETURN(const int exit_code, PassOnEnd(end.process));
  return Interaction{.exit_code = exit_code};
}

}  // namespace

int Failed(const Error& error, const Options& options) {
  PrintError(error, options);
  return ExitCodeFor(error);
}

Result<int> PassOnEnd(const Json& end) {
  ASSIGN_OR_RETURN(const ExecOutcome outcome, ReadEnd(end));
  for (const std::string& note : outcome.notes) Note(note);
  return outcome.exit_code;
}

Status CheckTerminal(const Options& options) {
  if (!options.terminal || ::isatty(STDIN_FILENO) == 1) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "standard input is no terminal",
               .hint = "-i without -t passes it on as it is"};
}

Result<Json> StartProcess(Client& client, const std::string& sandbox, Json body) {
  const std::string target = "/v1/sandboxes/" + EncodeSegment(sandbox) + "/processes";
  if (body.contains("command")) return client.Post(target, body);
  Result<Json> started = Error{};
  for (const char* shell : kShells) {
    body["command"] = Json::array({shell});
    started = client.Post(target, body);
    if (started || started.error().code != Code::kCommandNotFound) break;
  }
  return started;
}

Result<Interaction> Interact(Context& context, const std::string& sandbox, Json body,
                             int signal_fd) {
  const auto started = StartProcess(context.client, sandbox, std::move(body));
  if (!started) return Interaction{.exit_code = Failed(started.error(), context.options)};
  ASSIGN_OR_RETURN(const std::string process, IdOf(*started));
  const auto end = Attach({.endpoint = context.client.endpoint(),
                           .sandbox = sandbox,
                           .process = process,
                           .signal_fd = signal_fd,
                           .terminal = context.options.terminal,
                           .input = true});
  if (!end || end->how != How::kDetached) RemoveProcess(context.client, sandbox, process);
  if (!end) return end.error();
  return Conclude(*end, sandbox, process);
}

}  // namespace hutch::tools
