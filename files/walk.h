// Walking a tree in a fixed order with bounded memory, so that an answer can be cut anywhere and
// the next one goes on from there.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "files/limits.h"

namespace hutch::files {

struct WalkedEntry {
  int dir_fd;  // of the directory it is in, borrowed
  const std::string& name;
  const std::string& relative;  // to the directory walked
  bool is_directory;            // as the directory says; races are the visitor's business
};

enum class Step { kGoOn, kSkipBelow, kStop };

struct WalkOptions {
  uint64_t max_steps = kMaxWalkSteps;  // names looked at
  size_t max_depth = 1;                // 1: the directory's own names only
  std::string after = {};              // a relative path: only what comes behind it is visited
};

struct WalkOutcome {
  bool stopped = false;     // by the visitor, or for the number of names looked at
  std::string last = {};    // the last entry that was visited and not stopped at
  uint64_t unreadable = 0;  // directories that could not be opened below the first
};

// Visits everything below `path`, a directory: the names of each in the order of their bytes,
// what is below a directory right behind it. Symlinks are not followed. Stops by itself after
// max_steps names, and does not descend more than kMaxTreeDepth.
Result<WalkOutcome> Walk(const std::string& path, const WalkOptions& options,
                         const std::function<Result<Step>(const WalkedEntry&)>& visit);

}  // namespace hutch::files
