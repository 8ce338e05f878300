// podman and docker as contestants.
#pragma once

#include <memory>

#include "tools/bench/contestant.h"

namespace hutch::tools {

std::unique_ptr<Contestant> MakePodman(const Setup& setup);
// nullptr unless the setup wants docker: it starts a dockerd for the run.
std::unique_ptr<Contestant> MakeDocker(const Setup& setup);

}  // namespace hutch::tools
