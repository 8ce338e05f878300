// What can be said on hutch's command line, and the tables it is read from, completed from and
// documented from.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/text.h"

namespace hutch::tools {

struct Options {
  std::string socket, host, token_file;
  bool json = false;
  // create and run
  std::string image, template_name, pull, name, owner, workdir, user;
  std::vector<std::string> labels, env;
  std::string memory, cpus, pids, disk, open_files, idle, lifetime, on_expiry;
  bool writable = false;
  bool relax_proc_full = false, relax_new_privileges = false;
  std::vector<std::string> publish;  // [[ADDRESS:][HOST]:]PORT
  std::vector<std::string> volumes;  // NAME:TARGET[:OPTION]...
  std::string size;                  // of a volume
  std::string relax_seccomp;         // a file with a profile in OCI's JSON
  // a sandbox's network
  std::string network;
  std::vector<std::string> allow, join, net_limits;
  std::string root, write;  // of net preset packages
  // exec and run
  std::string timeout, max_output;
  bool read_stdin = false, interactive = false, terminal = false;
  std::vector<std::string> command;
  // exec
  bool detach = false, resume = false;
  std::string wait;
  // a process
  std::string process, signal;
  bool whole_tree = false, remove = false;
  std::string since, tail, stream;  // since: of the audit log and events, too
  bool follow = false;
  // files
  std::string source, destination;
  std::vector<std::string> places;
  bool recursive = false, parents = false;
  // the others
  std::string id;                // one sandbox or image
  std::vector<std::string> ids;  // several
  std::string state;             // of ls; that wait waits for
  bool reclaim = false;          // of pause
  bool ids_only = false, show_all = false;
  std::string path, reference, input, output, format;
  bool dry_run = false;
  std::string username;  // of a registry
  bool password_stdin = false, plain_http = false;
  std::string shell;
  std::string kind;  // of the audit log
  // a port
  std::string port, label;
  bool print_only = false;
  // events, stats and top
  std::vector<std::string> kinds, sandboxes;
  std::string cursor, sort;
  bool no_follow = false, no_stream = false;
  std::string session_key, idempotency_key;
  std::vector<std::string> selectors;
  bool yes = false;
  std::string count;        // of forks
  std::string ready, most;  // of a pool
  bool demand = false;
};

using Field =
    std::variant<std::string Options::*, std::vector<std::string> Options::*, bool Options::*>;

// Which commands take an option.
enum OptionGroup : uint64_t {
  kGlobal = 1ull << 0,
  kSandbox = 1ull << 1,     // what a sandbox is made from
  kExec = 1ull << 2,        // how a command runs
  kPassesExit = 1ull << 3,  // no options: its exit code is the command's
  kInSandbox = 1ull << 4,   // where in an existing sandbox
  kList = 1ull << 5,
  kQuiet = 1ull << 6,
  kImport = 1ull << 7,
  kAudit = 1ull << 8,
  kYield = 1ull << 9,  // a command that need not be waited for
  kLogs = 1ull << 10,
  kKill = 1ull << 11,
  kRemoveFiles = 1ull << 12,
  kMakeDirectory = 1ull << 13,
  kPull = 1ull << 14,
  kPrune = 1ull << 15,
  kSave = 1ull << 16,
  kLoad = 1ull << 17,
  kNetwork = 1ull << 18,  // what a sandbox may reach
  kNetPreset = 1ull << 19,
  kPort = 1ull << 20,
  kOpen = 1ull << 21,
  kEvents = 1ull << 22,
  kStats = 1ull << 23,
  kTop = 1ull << 24,
  kSelect = 1ull << 25,  // sandboxes by their labels
  kKeyed = 1ull << 26,   // a sandbox that may be asked for again
  kWait = 1ull << 27,
  kPause = 1ull << 28,
  kFork = 1ull << 29,
  kStop = 1ull << 30,
  kPool = 1ull << 31,  // what is kept ready
  kVolume = 1ull << 32,
};

struct OptionRow {
  uint64_t groups;
  const char* flags;  // as CLI11 takes them: "-q,--quiet"
  Field field;
  const char* value;  // what --help shows for the value; "" for a flag
  const char* help;
};
std::span<const OptionRow> AllOptions();

// What a positional argument names, for completion.
enum class Names {
  kNothing,
  kSandboxes,
  kImages,
  kCatalog,
  kShells,
  kFiles,
  kCommand,
  kTemplates,
  kProcesses,  // of the sandbox that the positional before it names
  kPlaces,     // SANDBOX:/path
  kNetworks,
  kPresets,    // that can be found on this host
  kForwarded,  // ports of the sandbox before it, that are forwarded
  kListening,  // that somebody listens on
  kPools,
  kVolumes,
};

struct Positional {
  const char* name;  // "IMAGE"
  Field field;
  Names names;
  bool required;
};

// "45", "45s", "1.5m", "2h", "1d" as seconds; kInvalidArgument otherwise.
Result<double> ParseSeconds(const std::string& text);
// "10m" ago, or a time of RFC 3339, as the latter; kInvalidArgument otherwise.
Result<std::string> ParseSince(const std::string& text, WallTime now);

}  // namespace hutch::tools
