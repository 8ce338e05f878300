// What create and exec say about their steps.
#pragma once

#include <vector>

#include "base/result.h"
#include "runtime/container.h"
#include "runtime/container_confine.h"
#include "runtime/sandbox.h"

namespace hutch::runtime {

// Without the name of the step where a program cannot be executed: engines know those words by
// their beginning.
Status WithoutStep(Status status);

// To host.debug, when there is one: each step with its time, and the flags of the filter.
void TellSteps(const ContainerHost& host, const std::vector<Timing>& timings,
               const Confinement& confinement);

}  // namespace hutch::runtime
