// What can be said on hutch's command line, and the tables it is read from, completed from and
// documented from.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

struct Options {
  std::string socket;
  bool json = false;
  // create and run
  std::string image, name, owner, workdir, user;
  std::vector<std::string> labels, env;
  std::string memory, cpus, pids, disk, open_files, idle, lifetime;
  bool writable = false;
  bool relax_proc_full = false, relax_new_privileges = false;
  std::string relax_seccomp;  // a file with a profile in OCI's JSON
  // exec and run
  std::string timeout, max_output;
  bool read_stdin = false;
  std::vector<std::string> command;
  // the others
  std::string id;                // one sandbox or image
  std::vector<std::string> ids;  // several
  std::string state;
  bool ids_only = false, show_all = false;
  std::string path, reference;
  std::string shell;
  std::string since, kind;  // of the audit log
};

using Field =
    std::variant<std::string Options::*, std::vector<std::string> Options::*, bool Options::*>;

// Which commands take an option.
enum OptionGroup : unsigned {
  kGlobal = 1u << 0,
  kSandbox = 1u << 1,  // what a sandbox is made from
  kExec = 1u << 2,     // how a command runs
  kExecOnly = 1u << 4,
  kList = 1u << 5,
  kQuiet = 1u << 6,
  kImport = 1u << 7,
  kAudit = 1u << 8,
};

struct OptionRow {
  unsigned groups;
  const char* flags;  // as CLI11 takes them: "-q,--quiet"
  Field field;
  const char* value;  // what --help shows for the value; "" for a flag
  const char* help;
};
std::span<const OptionRow> AllOptions();

// What a positional argument names, for completion.
enum class Names { kNothing, kSandboxes, kImages, kCatalog, kShells, kFiles, kCommand };

struct Positional {
  const char* name;  // "IMAGE"
  Field field;
  Names names;
  bool required;
};

// "45", "45s", "1.5m", "2h", "1d" as seconds; kInvalidArgument otherwise.
Result<double> ParseSeconds(const std::string& text);

}  // namespace hutch::tools
