// hutch-oci: an OCI runtime. Each command is a short-lived program of one thread.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fault_point.h"
#include "runtime/container_features.h"
#include "tools/hutch_oci_commands.h"
#include "tools/hutch_oci_log.h"

namespace hutch::tools {
namespace {

constexpr int kExecFailed = 255;  // runc's

constexpr OciCommandRow kOciCommands[] = {
    {"create", "make a container; its program waits for start", AddCreate},
    {"start", "execute the program of a created container", AddStart},
    {"run", "create, start, wait and delete", AddRun},
    {"exec", "run one more process in a running container", AddExec},
    {"state", "print a container's state", AddState},
    {"list", "list containers", AddList},
    {"kill", "send a signal to a container's first process", AddKill},
    {"delete", "remove a stopped container", AddDelete},
    {"ps", "list the processes of a container", AddPs},
    {"pause", "freeze every process", AddPause},
    {"resume", "thaw every process", AddResume},
    {"mounts", "add or remove mounts of a container that runs", AddMountsCommand},
    {"update", "change resource limits", AddUpdate},
    {"events", "print statistics and out-of-memory events", AddEvents},
    {"features", "print what this runtime supports", AddFeatures},
    {"spec", "write a config.json to start from", AddSpec},
};

void AddGlobals(CLI::App& app, OciGlobals* globals) {
  app.add_option("--root", globals->root, "directory of the state files");
  app.add_option("--log", globals->log, "file for errors and warnings");
  app.add_option("--log-format", globals->log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--log-level", "accepted, without effect");
  app.add_option("--rootless", globals->rootless, "true, false or auto");
  app.add_option("--cgroup-manager", globals->cgroup_manager, "cgroupfs, systemd or disabled")
      ->check(CLI::IsMember({"cgroupfs", "systemd", "disabled"}));
  app.add_option("--criu", "accepted, without effect");
  app.add_flag("--debug", globals->debug, "say more");
  app.add_flag("--systemd-cgroup", globals->systemd_cgroup, "groups are scopes of systemd");
}

int PrintVersion() {
  std::printf("hutch-oci version %s\nspec: %s\n", HUTCH_VERSION, runtime::kOciVersion);
  return 0;
}

// Engines start runtimes with whatever umask, signals and descriptors they have.
Status Prepare() {
  // A descriptor of our own must not become the container's stdin.
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd)
      return SysError(errno, "open /dev/null");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // ignored, children would not wait to be reaped
  ::umask(022);
  TakeFaultVariable();
  return OkStatus();
}

// The kernel's words begin in lower case: engines compare them with those of runc, a Go program.
std::string TextOf(const Error& error) {
  std::string text = error.ToString();
  const char* description = error.sys != 0 ? ::strerrordesc_np(error.sys) : nullptr;
  if (description == nullptr) return text;
  const size_t at = text.rfind(": " + std::string(description));
  if (at == std::string::npos) return text;
  char& first = text[at + 2];
  const bool one_word_in_capitals = std::isupper(static_cast<unsigned char>(text[at + 3])) != 0;
  if (!one_word_in_capitals)
    first = static_cast<char>(std::tolower(static_cast<unsigned char>(first)));
  return text;
}

int Main(int argc, char** argv) {
  if (const Status ready = Prepare(); !ready) return 1;
  CLI::App app("OCI runtime", "hutch-oci");
  app.require_subcommand(0, 1);  // `exec ID ps` has one, whatever the program is called
  OciGlobals globals;
  globals.argv = argv;
  AddGlobals(app, &globals);
  bool version = false;
  app.add_flag("-v,--version", version, "print the version");
  OciCommand chosen;
  for (const OciCommandRow& row : kOciCommands) {
    CLI::App* command = app.add_subcommand(row.name, row.help);
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], row.name) == 0) {  // options of the others cost time only
        const OciCommand run = row.add(*command, globals);
        command->callback([run, &chosen] { chosen = run; });
        break;
      }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help of a command that is none
    const std::vector<std::string> left = app.remaining();
    if (error.get_exit_code() == 0 && app.get_subcommands().empty() && !left.empty()) {
      std::fprintf(stderr, "hutch-oci: No help topic for '%s'\n", left.front().c_str());
      return 1;
    }
    const int code = app.exit(error);
    if (code != 0) WriteOciLog(globals.log, globals.log_format, "error", error.what());
    return code == 0 ? 0 : 1;
  }
  if (version) return PrintVersion();
  if (!chosen) {
    std::fputs(app.help().c_str(), stderr);
    return 1;
  }
  const Status log = CheckOciLog(globals.log);
  const Result<int> done = log ? chosen() : Result<int>(log.error());
  if (done) return *done;
  const std::string text = TextOf(done.error());
  WriteOciLog(globals.log, globals.log_format, "error", text);
  std::fprintf(stderr, "hutch-oci: %s\n", text.c_str());
  // 1 could be the code of exec's program.
  return app.got_subcommand("exec") ? kExecFailed : 1;
}

}  // namespace

Result<runtime::ContainerHost> ContainerHostOf(const OciGlobals& globals) {
  runtime::ContainerHost host;
  const bool ordinary = ::geteuid() != 0 || globals.rootless == "true";
  host.user = ordinary ? cgroups::GroupUser::kOrdinary : cgroups::GroupUser::kRoot;
  host.root = globals.root;
  if (host.root.empty()) {
    const char* run = ::getenv("XDG_RUNTIME_DIR");
    if (::geteuid() == 0)
      host.root = "/run/hutch-oci";
    else if (run != nullptr && *run == '/')
      host.root = std::string(run) + "/hutch-oci";
    else
      return Error{.code = Code::kInvalidArgument,
                   .what = "XDG_RUNTIME_DIR is not set",
                   .hint = "or give --root"};
  }
  if (globals.systemd_cgroup || globals.cgroup_manager == "systemd")
    host.manager = cgroups::GroupManager::kSystemd;
  host.no_group = globals.cgroup_manager == "disabled";
  host.warn = [&globals](const std::string& message) {
    WriteOciLog(globals.log, globals.log_format, "warning", message);
    if (globals.log.empty()) std::fprintf(stderr, "hutch-oci: warning: %s\n", message.c_str());
  };
  if (globals.debug)
    host.debug = [&globals](const std::string& message) {
      WriteOciLog(globals.log, globals.log_format, "debug", message);
      if (globals.log.empty())
        std::fputs(OciLogLine(globals.log_format, "debug", message).c_str(), stderr);
    };
  return host;
}

}  // namespace hutch::tools

int main(int argc, char** argv) { return hutch::tools::Main(argc, argv); }
