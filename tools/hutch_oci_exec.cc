// exec.
#include <memory>

#include "base/text.h"
#include "tools/hutch_oci_commands.h"
#include "tools/hutch_oci_foreground.h"

namespace hutch::tools {
namespace {

struct ExecOptions {
  std::string id, user, cwd, apparmor, label;
  runtime::ExecRequest request;
  bool tty = false, detach = false, no_new_privileges = false;
};

Status TakeUser(const std::string& text, runtime::ExecRequest* request) {
  if (text.empty()) return OkStatus();
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() > 2)
    return Error{.code = Code::kInvalidArgument,
                 .what = "\"" + text + "\" is no user",
                 .field = "--user",
                 .hint = "uid or uid:gid, as numbers"};
  std::pair<uint32_t, std::optional<uint32_t>> user;
  ASSIGN_OR_RETURN(user.first, ParseId(parts[0]));
  if (parts.size() > 1) {
    ASSIGN_OR_RETURN(user.second, ParseId(parts[1]));
  }
  request->user = user;
  return OkStatus();
}

Result<int> Exec(const OciGlobals& globals, ExecOptions& options) {
  ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
  runtime::ExecRequest& request = options.request;
  RETURN_IF_ERROR(TakeUser(options.user, &request));
  if (!options.cwd.empty()) request.cwd = options.cwd;
  if (!options.apparmor.empty()) request.apparmor = options.apparmor;
  if (!options.label.empty()) request.process_label = options.label;
  if (options.no_new_privileges) request.no_new_privileges = true;
  request.terminal = options.tty;
  if (request.process_file.empty() && request.args.empty())
    return Error{.code = Code::kInvalidArgument, .what = "process args cannot be empty"};
  Foreground foreground;
  if (!options.detach) {
    RETURN_IF_ERROR(foreground.Prepare());
    request.size = Foreground::SizeOfOurs();
  }
  ASSIGN_OR_RETURN(runtime::CreatedContainer made,
                   runtime::ExecInContainer(host, options.id, request));
  if (options.detach) return 0;
  return foreground.Relay(made.init, std::move(made.terminal));
}

}  // namespace

OciCommand AddExec(CLI::App& app, const OciGlobals& globals) {
  const auto options = std::make_shared<ExecOptions>();
  runtime::ExecRequest& request = options->request;
  app.prefix_command();  // what follows the id is the command's, options too
  app.add_option("id", options->id, "the container's name")->required();
  app.add_option("-p,--process", request.process_file, "file with a process object");
  app.add_option("--console-socket", request.console_socket, "socket that gets the terminal");
  app.add_option("--pid-file", request.pid_file, "file for the process's pid");
  app.add_option("--pidfd-socket", request.pidfd_socket, "socket that gets a pidfd of it");
  app.add_option("--cwd", options->cwd, "working directory");
  app.add_option("-e,--env", request.env, "NAME=value, added")->allow_extra_args(false);
  app.add_option("-u,--user", options->user, "uid[:gid]");
  app.add_option("-g,--additional-gids", request.additional_gids, "more groups")
      ->allow_extra_args(false);
  app.add_option("-c,--cap", request.capabilities, "a capability, added")->allow_extra_args(false);
  app.add_option("--apparmor", options->apparmor, "AppArmor profile");
  app.add_option("--process-label", options->label, "SELinux label");
  app.add_option("--cgroup", request.cgroups, "group below the container's")
      ->allow_extra_args(false);
  app.add_option("--preserve-fds", request.preserve_fds, "descriptors to pass, from 3 on");
  app.add_flag("-t,--tty", options->tty, "with a terminal");
  app.add_flag("-d,--detach", options->detach, "do not wait");
  app.add_flag("--no-new-privs", options->no_new_privileges, "no new privileges");
  app.add_flag("--ignore-paused", request.ignore_paused, "in a paused container, too");
  CLI::App* command = &app;
  return [options, command, &globals] {
    options->request.args = command->remaining();
    if (!options->request.args.empty() && options->request.args.front() == "--")
      options->request.args.erase(options->request.args.begin());
    return Exec(globals, *options);
  };
}

}  // namespace hutch::tools
