// create, start, run.
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "tools/hutch_oci_commands.h"
#include "tools/hutch_oci_foreground.h"

namespace hutch::tools {
namespace {

struct CreateOptions {
  std::string id, bundle = ".", config, console_socket, pid_file, pidfd_socket;
  unsigned preserve_fds = 0;
  bool no_pivot = false, no_new_keyring = false, detach = false, keep = false;
  bool no_subreaper = false;
};

std::shared_ptr<CreateOptions> AddCreateOptions(CLI::App& app) {
  auto options = std::make_shared<CreateOptions>();
  app.add_option("id", options->id, "the container's name")->required();
  app.add_option("-b,--bundle", options->bundle, "directory with config.json");
  app.add_option("-f,--config", options->config, "another name of config.json");
  app.add_option("--console-socket", options->console_socket, "socket that gets the terminal");
  app.add_option("--pid-file", options->pid_file, "file for the first process's pid");
  app.add_option("--pidfd-socket", options->pidfd_socket, "socket that gets a pidfd of it");
  app.add_option("--preserve-fds", options->preserve_fds, "descriptors to pass, from 3 on");
  app.add_flag("--no-pivot", options->no_pivot, "MS_MOVE and chroot in place of pivot_root");
  app.add_flag("--no-new-keyring", options->no_new_keyring, "keep the session keyring");
  return options;
}

Result<std::string> Absolute(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return SysError(errno, path);
  return std::string(resolved);
}

Result<runtime::CreateRequest> RequestOf(const CreateOptions& options) {
  runtime::CreateRequest request;
  request.id = options.id;
  ASSIGN_OR_RETURN(request.bundle, Absolute(options.bundle));
  request.config_file = options.config.empty() ? "config.json" : options.config;
  if (request.config_file[0] != '/')
    request.config_file = request.bundle + "/" + request.config_file;
  request.console_socket = options.console_socket;
  if (!options.pid_file.empty() && options.pid_file[0] != '/') {
    ASSIGN_OR_RETURN(const std::string here, Absolute("."));
    request.pid_file = here + "/" + options.pid_file;
  } else {
    request.pid_file = options.pid_file;
  }
  request.pidfd_socket = options.pidfd_socket;
  request.preserve_fds = options.preserve_fds;
  request.no_pivot = options.no_pivot;
  request.no_new_keyring = options.no_new_keyring;
  return request;
}

Result<int> Create(const OciGlobals& globals, const CreateOptions& options) {
  ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
  ASSIGN_OR_RETURN(const runtime::CreateRequest request, RequestOf(options));
  ASSIGN_OR_RETURN(const runtime::CreatedContainer made, runtime::CreateContainer(host, request));
  if (!made.terminal.valid()) return 0;
  IgnoreError(runtime::DeleteContainer(host, options.id, runtime::DeleteMode::kForce),
              "the error below is the first one");
  return Error{.code = Code::kInvalidArgument,
               .what = "cannot allocate tty if runc will detach without setting console socket"};
}

Result<int> Run(const OciGlobals& globals, const CreateOptions& options) {
  ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
  ASSIGN_OR_RETURN(runtime::CreateRequest request, RequestOf(options));
  Foreground foreground;
  if (!options.detach) {
    RETURN_IF_ERROR(foreground.Prepare());
    request.size = Foreground::SizeOfOurs();
  }
  ASSIGN_OR_RETURN(runtime::CreatedContainer made, runtime::CreateContainer(host, request));
  const auto remove = [&host, &options] {
    return runtime::DeleteContainer(host, options.id, runtime::DeleteMode::kForce);
  };
  if (options.detach && made.terminal.valid()) {
    IgnoreError(remove(), "the error below is the first one");
    return Error{.code = Code::kInvalidArgument,
                 .what = "cannot allocate tty if runc will detach without setting console socket"};
  }
  if (Status started = runtime::StartContainer(host, options.id); !started) {
    IgnoreError(remove(), "the error below is the first one");
    return std::move(started).error();
  }
  if (options.detach) return 0;
  Result<int> code = foreground.Relay(made.init, std::move(made.terminal));
  if (!options.keep) {
    if (Status removed = remove(); !removed) {
      if (code) return std::move(removed).error();
    }
  }
  return code;
}

}  // namespace

OciCommand AddCreate(CLI::App& app, const OciGlobals& globals) {
  const auto options = AddCreateOptions(app);
  return [options, &globals] { return Create(globals, *options); };
}

OciCommand AddRun(CLI::App& app, const OciGlobals& globals) {
  const auto options = AddCreateOptions(app);
  app.add_flag("-d,--detach", options->detach, "do not wait");
  app.add_flag("--keep", options->keep, "do not delete the container afterwards");
  app.add_flag("--no-subreaper", options->no_subreaper, "accepted, without effect");
  return [options, &globals] { return Run(globals, *options); };
}

OciCommand AddStart(CLI::App& app, const OciGlobals& globals) {
  const auto id = std::make_shared<std::string>();
  app.add_option("id", *id, "the container's name")->required();
  return [id, &globals]() -> Result<int> {
    ASSIGN_OR_RETURN(const runtime::ContainerHost host, ContainerHostOf(globals));
    RETURN_IF_ERROR(runtime::StartContainer(host, *id));
    return 0;
  };
}

}  // namespace hutch::tools
