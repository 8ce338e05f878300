// One way to run a command in a sandbox. Each contestant is a row of kContestants.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

using Argv = std::vector<std::string>;

// What all contestants share.
struct Setup {
  std::string rootfs;            // absolute
  std::string work;              // for bundles and state
  std::string image;             // of hutch: the same root file system
  std::string socket;            // of hutchd
  std::string pools_off_socket;  // of a second hutchd with --pools=off; empty for none
  std::string hutch_program;     // the command line, for copies
  std::string oci_program;       // hutch-oci
  uint64_t copy_bytes = 0;       // of the largest copy: hutch's sandbox must have room
  bool with_docker = false;      // start a dockerd
};

class Contestant {
 public:
  virtual ~Contestant() = default;
  // Makes ready for `slots` commands at once; the error says why it is not usable here.
  virtual Status Prepare(size_t slots) = 0;
  // Milliseconds from nothing to the end of a command in a new sandbox, and of the sandbox where
  // it must be told to end. Callable from several threads, each with a slot of its own.
  virtual Result<double> Cold(const Argv& argv, size_t slot) = 0;
  // The same for one command in a sandbox that runs already. kUnsupported where there is none.
  virtual Result<double> Exec(const Argv& argv);
  // Milliseconds until a sandbox is ready, nothing run; it lives until RemoveCreated.
  virtual Result<double> Create(size_t slot);
  virtual void RemoveCreated() {}
  // Milliseconds that the contestant's own command takes to copy a file or directory of the host's
  // to a path in a running sandbox, or back. Neither is there yet.
  virtual Result<double> CopyIn(const std::string& from, const std::string& to);
  virtual Result<double> CopyOut(const std::string& from, const std::string& to);
  virtual void RemoveCopy(const std::string& path);  // what was copied in
};

struct ContestantRow {
  const char* name;
  const char* program;  // must be in PATH; "" for none
  std::unique_ptr<Contestant> (*make)(const Setup&);
};
std::span<const ContestantRow> AllContestants();

std::unique_ptr<Contestant> MakeHutch(const Setup& setup);  // hutch_contestant.cc
std::unique_ptr<Contestant> MakeHutchPoolsOff(const Setup& setup);

}  // namespace hutch::tools
