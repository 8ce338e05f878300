// Running a contestant's program: for its time, or for its words.
#pragma once

#include "base/result.h"
#include "tools/bench/contestant.h"
#include "tools/process.h"

namespace hutch::tools {

// Milliseconds from the start of a program to its end; kBadState when it fails.
Result<double> TimeOf(const Argv& argv, const Streams& streams = {});

// Runs it once; when it fails kUnavailable with the last line it said.
Status Try(const Argv& argv, int in_fd = -1);

}  // namespace hutch::tools
