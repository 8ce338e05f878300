// Gives memory of a sandbox back to the host: clean page cache, and what can be swapped out.
// Without swap what processes and tmpfs hold stays.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/layout.h"

namespace hutch::cgroups {

// From SandboxGroup::OpenReclaimer(). Owns its descriptor; may be used on any thread.
class Reclaimer {
 public:
  Reclaimer(UniqueFd dir, Mode mode) : dir_(std::move(dir)), mode_(mode) {}
  // May take long. The bytes that the sandbox holds less than before.
  Result<uint64_t> Run() const;

 private:
  UniqueFd dir_;
  Mode mode_;
};

}  // namespace hutch::cgroups
