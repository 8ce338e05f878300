#include "tools/options.h"

#include <charconv>
#include <cmath>

namespace hutch::tools {
namespace {

constexpr OptionRow kOptions[] = {
    {kGlobal, "--socket", &Options::socket, "PATH",
     "The daemon's socket (or HUTCH_SOCKET; default /run/hutch/hutchd.sock)"},
    {kGlobal, "--host", &Options::host, "URL",
     "Its TCP listener instead, http://127.0.0.1:PORT (or HUTCH_HOST)"},
    {kGlobal, "--token-file", &Options::token_file, "FILE",
     "The token for it (or HUTCH_TOKEN_FILE, HUTCH_TOKEN)"},
    {kGlobal, "--json", &Options::json, "", "Print the daemon's JSON instead of text"},
    {kSandbox, "--template", &Options::template_name, "NAME",
     "Instead of IMAGE: a template (hutch template ls lists them)"},
    {kSandbox, "--name", &Options::name, "NAME", "A name, usable wherever an id is"},
    {kSandbox, "--pull", &Options::pull, "WHEN",
     "Get the image from its registry: missing (default), never, always"},
    {kSandbox, "--label", &Options::labels, "KEY=VALUE", "A label (repeatable)"},
    {kKeyed, "--session-key", &Options::session_key, "KEY",
     "The same key gives the same living sandbox, made when there is none"},
    {kKeyed, "--idempotency-key", &Options::idempotency_key, "KEY",
     "Asking again with it gives the same answer again"},
    {kSandbox, "--owner", &Options::owner, "TEXT", "Whom the sandbox belongs to"},
    {kSandbox | kInSandbox, "-e,--env", &Options::env, "KEY=VALUE",
     "An environment variable (repeatable)"},
    {kSandbox | kInSandbox, "-w,--workdir", &Options::workdir, "DIR", "The working directory"},
    {kSandbox | kInSandbox, "-u,--user", &Options::user, "USER", "UID, UID:GID or root"},
    {kSandbox, "--memory", &Options::memory, "SIZE", "Memory, e.g. 512MiB (default 512MiB)"},
    {kSandbox, "--cpus", &Options::cpus, "NUMBER", "CPUs, e.g. 0.5 (default 1)"},
    {kSandbox, "--pids", &Options::pids, "COUNT", "Processes and threads (default 256)"},
    {kSandbox, "--disk", &Options::disk, "SIZE", "All that is written together (default 1GiB)"},
    {kSandbox, "--open-files", &Options::open_files, "COUNT",
     "Open files of one process (default 4096)"},
    {kSandbox, "--writable", &Options::writable, "",
     "A writable root file system (default: read-only but for /workspace, /tmp and home)"},
    {kSandbox, "-p,--publish", &Options::publish, "PORT",
     "Reach a port inside from the host: PORT, HOST:PORT or ADDRESS:HOST:PORT (repeatable)"},
    {kSandbox, "-v,--volume", &Options::volumes, "NAME:TARGET",
     "A volume at this path; behind more colons ro, and size=SIZE to have it made (repeatable)"},
    {kSandbox, "--idle", &Options::idle, "TIME",
     "Destroy after this time without a call, e.g. 30m; 0 never (default 30m)"},
    {kSandbox, "--lifetime", &Options::lifetime, "TIME",
     "Destroy after this time in any case, e.g. 24h; 0 never (default 24h)"},
    {kSandbox, "--on-expiry", &Options::on_expiry, "ACTION",
     "What happens when one of these is over: destroy (the default), pause or stop"},
    {kSandbox, "--relax-proc-full", &Options::relax_proc_full, "",
     "Weaker: a full /proc (logged by the daemon)"},
    {kSandbox, "--relax-new-privileges", &Options::relax_new_privileges, "",
     "Weaker: set-user-id programs work (logged by the daemon)"},
    {kSandbox, "--relax-seccomp", &Options::relax_seccomp, "FILE",
     "Weaker: another seccomp profile, OCI's JSON (logged by the daemon)"},
    {kNetwork, "--network", &Options::network, "MODE",
     "What it reaches: none (the default), allowlist (the default with --allow), open"},
    {kNetwork, "--allow", &Options::allow, "RULE",
     "HOST, *.HOST, RANGE/BITS, each with :PORT or :FIRST-LAST, preset:NAME, or a rule's JSON "
     "(repeatable)"},
    {kNetwork, "--join", &Options::join, "NETWORK",
     "Reach the other sandboxes of this network (repeatable; hutch network create)"},
    {kNetwork, "--net-limit", &Options::net_limits, "KEY=VALUE",
     "rate=SIZE a second each way, total=SIZE, connections=COUNT (repeatable)"},
    {kNetPreset, "--write", &Options::write, "FILE",
     "Put what was found into the daemon's file of presets"},
    {kNetPreset, "--root", &Options::root, "DIR", "Look at the system below this directory"},
    {kExec, "--timeout", &Options::timeout, "TIME",
     "Stop the command after this time, e.g. 90 or 5m; 0 never (default 60; never with -i, -t, -d "
     "or --wait)"},
    {kExec, "--stdin", &Options::read_stdin, "",
     "Read stdin to its end, then send it, up to 6 MiB (default: the command's stdin is empty)"},
    {kExec, "-i,--interactive", &Options::interactive, "",
     "Pass stdin on as it comes, of any length"},
    {kExec, "-t,--tty", &Options::terminal, "",
     "A terminal, as ssh gives one; ctrl-p ctrl-q leaves the command running"},
    {kExec, "--max-output", &Options::max_output, "SIZE",
     "With --json or --wait, keep this much of each stream, head and tail (default 1MiB)"},
    {kYield, "--resume", &Options::resume, "", "Go on with a paused sandbox first"},
    {kWait, "--for", &Options::state, "STATE",
     "Until it is in one of these states: running (the default), paused, destroyed, ..."},
    {kWait, "--timeout", &Options::timeout, "TIME",
     "Give up after this time, with exit code 124 (default: never)"},
    {kPool, "--ready", &Options::ready, "COUNT", "Sandboxes kept ready (default 1)"},
    {kPool, "--max", &Options::most, "COUNT", "As many as --demand may make of it"},
    {kPool, "--demand", &Options::demand, "", "Keep more ready the more often they are taken"},
    {kPause, "--reclaim", &Options::reclaim, "", "Also give its file cache back to the host"},
    {kFork, "-n,--count", &Options::count, "COUNT", "So many of them (default 1)"},
    {kFork, "--name", &Options::name, "NAME", "Call them NAME-1, NAME-2, ..."},
    {kStop, "--timeout", &Options::timeout, "TIME",
     "Kill what has not ended by itself after this time (default 10)"},
    {kYield, "-d,--detach", &Options::detach, "",
     "Start a process in the background and print its id"},
    {kYield, "--wait", &Options::wait, "TIME",
     "Wait so long; then the command goes on in the background (exit code 123)"},
    {kLogs, "-f,--follow", &Options::follow, "", "Go on until the process has ended"},
    {kLogs, "--since", &Options::since, "TIME", "Only what is newer: 10m, or 2026-01-31T09:00:00Z"},
    {kLogs, "--tail", &Options::tail, "SIZE", "Only the last so many bytes"},
    {kLogs, "--stream", &Options::stream, "STREAM", "Only stdout, or only stderr"},
    {kKill, "-s,--signal", &Options::signal, "SIGNAL", "A name or a number (default SIGTERM)"},
    {kKill, "--tree", &Options::whole_tree, "", "Also everything that it started"},
    {kKill, "--rm", &Options::remove, "",
     "Kill it with everything it started, then remove it with its log"},
    {kRemoveFiles, "-r,--recursive", &Options::recursive, "", "Directories with all they hold"},
    {kMakeDirectory, "-p,--parents", &Options::parents, "",
     "Also the directories above; one that is there is no error"},
    {kList | kSelect, "-l,--label,--filter", &Options::selectors, "SELECTOR",
     "Only these: KEY=VALUE, KEY!=VALUE, KEY (has one), !KEY (has none); all of them (repeatable)"},
    {kSelect, "-y,--yes", &Options::yes, "", "Without it --label only says what would go"},
    {kList, "--session-key", &Options::session_key, "KEY", "Only of this session key"},
    {kList, "--state", &Options::state, "STATE",
     "Only in this state: creating, running, paused, stopped, destroyed, expired, failed"},
    {kList, "-a,--all", &Options::show_all, "", "Also those that ended a while ago, and why"},
    {kAudit, "--since", &Options::since, "TIME",
     "Only what happened within this time: 45s, 5m, 2h, 1d"},
    {kAudit, "--kind", &Options::kind, "KIND",
     "Only this kind of entry: exec, denial, sandbox_created, ..."},
    {kPort, "--label", &Options::label, "TEXT", "What it is for"},
    {kOpen, "--print", &Options::print_only, "", "Print the address and open nothing"},
    {kEvents, "--kind", &Options::kinds, "KIND",
     "Only this kind: sandbox.expired, network.denied, ... (repeatable)"},
    {kEvents, "--sandbox", &Options::sandboxes, "ID", "Only of this sandbox (repeatable)"},
    {kEvents, "--label", &Options::labels, "KEY=VALUE",
     "Only of sandboxes with this label (repeatable)"},
    {kEvents, "--since", &Options::since, "TIME",
     "Also what the daemon remembers from then on: 10m, or 2026-01-31T09:00:00Z"},
    {kEvents, "--cursor", &Options::cursor, "CURSOR", "Go on behind this event"},
    {kEvents, "--no-follow", &Options::no_follow, "", "Only what the daemon remembers"},
    {kStats, "--no-stream", &Options::no_stream, "", "Once, on a terminal too"},
    {kTop, "--sort", &Options::sort, "BY", "cpu (the default) or memory"},
    {kQuiet, "-q,--quiet", &Options::ids_only, "", "Print ids only"},
    {kImport | kLoad, "--name", &Options::reference, "NAME:TAG", "The image's name in the store"},
    {kPrune, "-a,--all", &Options::show_all, "", "Also images with a name that no sandbox uses"},
    {kPrune, "--dry-run", &Options::dry_run, "", "Only say what would go"},
    {kSave, "-o,--output", &Options::output, "FILE", "Where to; - (the default) is stdout"},
    {kSave, "--format", &Options::format, "FORMAT", "oci (the default) or docker"},
    {kLoad, "-i,--input", &Options::input, "FILE", "Where from; - (the default) is stdin"},
    {kPull, "--username", &Options::username, "NAME", "For this pull, instead of the daemon's own"},
    {kPull, "--password-stdin", &Options::password_stdin, "",
     "Read the password that goes with --username from standard input"},
    {kPull, "--plain-http", &Options::plain_http, "", "Ask the registry without TLS"},
    {kVolume, "--size", &Options::size, "SIZE", "The most that it holds (default 1GiB)"},
    {kVolume, "--owner", &Options::owner, "UID:GID",
     "Of its root directory, as seen inside (default 1000:1000)"},
    {kVolume, "--label", &Options::labels, "KEY=VALUE", "A label (repeatable)"},
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

Result<std::string> ParseSince(const std::string& text, WallTime now) {
  // Whole seconds, too: that is how people write them.
  const bool whole = text.ends_with('Z') && text.find('.') == std::string::npos;
  const auto time = ParseRfc3339(whole ? text.substr(0, text.size() - 1) + ".000Z" : text);
  if (time) return FormatRfc3339(*time);
  const auto ago = ParseSeconds(text);
  if (!ago)
    return Error{.code = Code::kInvalidArgument,
                 .what = "--since: \"" + text + "\" is not a time",
                 .hint = "write 10m for ten minutes ago, or 2026-01-31T09:00:00Z"};
  const auto before = std::chrono::duration<double>(*ago);
  return FormatRfc3339(now - std::chrono::duration_cast<WallTime::duration>(before));
}

}  // namespace hutch::tools
