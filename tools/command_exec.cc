// run and exec: a command in a sandbox, its streams and its exit code passed on.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "tools/commands.h"
#include "tools/exec_outcome.h"
#include "tools/request_bodies.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr size_t kMaxStdinBytes = size_t{1} << 30;  // the daemon has its own, lower bound

// Turns SIGINT, SIGTERM and SIGHUP into a readable descriptor, so that run still destroys its
// sandbox when it is interrupted.
Result<UniqueFd> CatchInterrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return SysError(errno, "sigprocmask");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return SysError(errno, "signalfd");
  return fd;
}

int CaughtSignal(int signal_fd) {
  signalfd_siginfo info = {};
  const ssize_t n = ::read(signal_fd, &info, sizeof info);
  return n == sizeof info ? static_cast<int>(info.ssi_signo) : SIGINT;
}

void Note(const std::string& text) {
  IgnoreError(WriteAll(STDERR_FILENO, "hutch: " + text + "\n"), "nowhere is left to say it");
}

Result<std::string> StdinBytes(const Options& options) {
  if (!options.read_stdin) return std::string();
  return ReadAll(STDIN_FILENO, kMaxStdinBytes);
}

Result<int> PassOn(const Json& reply, const Options& options) {
  ASSIGN_OR_RETURN(const ExecOutcome outcome, ReadExecReply(reply));
  if (options.json) {
    RETURN_IF_ERROR(PrintJsonText(reply));
    return outcome.exit_code;
  }
  RETURN_IF_ERROR(Print(outcome.out));
  IgnoreError(WriteAll(STDERR_FILENO, outcome.err), "a closed stderr was the caller's choice");
  for (const std::string& note : outcome.notes) Note(note);
  return outcome.exit_code;
}

// The error is printed here because its exit code depends on its kind.
int Failed(const Error& error, const Options& options) {
  PrintError(error, options);
  return ExitCodeFor(error);
}

Result<Json> Exec(Client& client, const std::string& id, const Json& body) {
  return client.Post("/v1/sandboxes/" + EncodeSegment(id) + "/exec", body);
}

}  // namespace

Result<int> RunExec(Context& context) {
  ASSIGN_OR_RETURN(const std::string input, StdinBytes(context.options));
  ASSIGN_OR_RETURN(const Json body, PlanExecBody(context.options, input, ExecIn::kExistingSandbox));
  auto reply = Exec(context.client, context.options.id, body);
  if (!reply) return Failed(reply.error(), context.options);
  return PassOn(*reply, context.options);
}

Result<int> RunRun(Context& context) {
  ASSIGN_OR_RETURN(const Json create, PlanCreateBody(context.options));
  ASSIGN_OR_RETURN(const std::string input, StdinBytes(context.options));
  ASSIGN_OR_RETURN(const Json exec, PlanExecBody(context.options, input, ExecIn::kOwnSandbox));
  ASSIGN_OR_RETURN(const UniqueFd interrupts, CatchInterrupts());
  ASSIGN_OR_RETURN(const Json sandbox, context.client.Post("/v1/sandboxes", create));
  std::string id;
  RETURN_IF_ERROR(
      oci::ObjectReader(sandbox, "").String("id", &id).Done(oci::ObjectReader::Unknown::kIgnore));

  context.client.set_interrupt_fd(interrupts.get());
  auto reply = Exec(context.client, id, exec);
  context.client.set_interrupt_fd(-1);
  const bool interrupted = !reply && reply.error().what == "interrupted";
  Result<int> exit_code = interrupted ? 128 + CaughtSignal(interrupts.get())
                          : !reply    ? Failed(reply.error(), context.options)
                                      : PassOn(*reply, context.options);
  // A sandbox that went by itself (out of memory, its lifetime) is as destroyed as it should be.
  const auto removed = context.client.Delete("/v1/sandboxes/" + EncodeSegment(id));
  if (!removed && removed.error().code != Code::kNotFound)
    Note("sandbox " + id + " is left over (" + removed.error().what + "); `hutch rm " + id +
         "` destroys it");
  return exit_code;
}

}  // namespace hutch::tools
