#include "tools/options.h"

#include <charconv>
#include <cmath>

namespace hutch::tools {
namespace {

constexpr OptionRow kOptions[] = {
    {kGlobal, "--socket", &Options::socket, "PATH",
     "The daemon's socket (or HUTCH_SOCKET; default /run/hutch/hutchd.sock)"},
    {kGlobal, "--json", &Options::json, "", "Print the daemon's JSON instead of text"},
    {kSandbox, "--name", &Options::name, "NAME", "A name, usable wherever an id is"},
    {kSandbox, "--label", &Options::labels, "KEY=VALUE", "A label (repeatable)"},
    {kSandbox, "--owner", &Options::owner, "TEXT", "Whom the sandbox belongs to"},
    {kSandbox | kExecOnly, "--env", &Options::env, "KEY=VALUE",
     "An environment variable (repeatable)"},
    {kSandbox | kExecOnly, "--workdir", &Options::workdir, "DIR", "The working directory"},
    {kSandbox | kExecOnly, "--user", &Options::user, "USER", "UID, UID:GID or root"},
    {kSandbox, "--memory", &Options::memory, "SIZE", "Memory, e.g. 512MiB (default 512MiB)"},
    {kSandbox, "--cpus", &Options::cpus, "NUMBER", "CPUs, e.g. 0.5 (default 1)"},
    {kSandbox, "--pids", &Options::pids, "COUNT", "Processes and threads (default 256)"},
    {kSandbox, "--disk", &Options::disk, "SIZE", "All that is written together (default 1GiB)"},
    {kSandbox, "--open-files", &Options::open_files, "COUNT",
     "Open files of one process (default 4096)"},
    {kSandbox, "--writable", &Options::writable, "",
     "A writable root file system (default: read-only but for /workspace, /tmp and home)"},
    {kSandbox, "--idle", &Options::idle, "TIME",
     "Destroy after this time without a call, e.g. 30m; 0 never (default 30m)"},
    {kSandbox, "--lifetime", &Options::lifetime, "TIME",
     "Destroy after this time in any case, e.g. 24h; 0 never (default 24h)"},
    {kSandbox, "--relax-proc-full", &Options::relax_proc_full, "",
     "Weaker: a full /proc (logged by the daemon)"},
    {kSandbox, "--relax-new-privileges", &Options::relax_new_privileges, "",
     "Weaker: set-user-id programs work (logged by the daemon)"},
    {kSandbox, "--relax-seccomp", &Options::relax_seccomp, "FILE",
     "Weaker: another seccomp profile, OCI's JSON (logged by the daemon)"},
    {kExec, "--timeout", &Options::timeout, "TIME",
     "Stop the command after this time, e.g. 90 or 5m; 0 never (default 60)"},
    {kExec, "--stdin", &Options::read_stdin, "",
     "Send all of stdin to the command (default: its stdin is empty)"},
    {kExec, "--max-output", &Options::max_output, "SIZE",
     "Keep this much of each stream, head and tail (default 1MiB)"},
    {kList, "--label", &Options::labels, "KEY=VALUE", "Only with this label (repeatable)"},
    {kList, "--state", &Options::state, "STATE", "Only in this state: creating, running, stopped"},
    {kList, "-a,--all", &Options::show_all, "", "Also those that stopped within the last minute"},
    {kAudit, "--since", &Options::since, "TIME",
     "Only what happened within this time: 45s, 5m, 2h, 1d"},
    {kAudit, "--kind", &Options::kind, "KIND",
     "Only this kind of entry: exec, denial, sandbox_created, ..."},
    {kQuiet, "-q,--quiet", &Options::ids_only, "", "Print ids only"},
    {kImport, "--name", &Options::reference, "NAME:TAG", "The image's name in the store"},
};

}  // namespace

std::span<const OptionRow> AllOptions() { return kOptions; }

Result<double> ParseSeconds(const std::string& text) {
  double value = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(rest, text.data() + text.size());
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1;
  if (unit == "m") factor = 60;
  if (unit == "h") factor = 3600;
  if (unit == "d") factor = 86400;
  if (failed != std::errc() || factor == 0 || !(value >= 0) || !std::isfinite(value))
    return Error{.code = Code::kInvalidArgument,
                 .what = "\"" + text + "\" is not a time",
                 .hint = "write 45, 45s, 5m, 2h or 1d; 0 is never"};
  return value * factor;
}

}  // namespace hutch::tools
