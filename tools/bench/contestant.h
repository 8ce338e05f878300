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
