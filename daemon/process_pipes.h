// Pipes between hutchd and a process in a sandbox. hutchd's end never blocks.
#pragma once

#include "base/file.h"
#include "base/result.h"
#include "oci/runtime_spec.h"

namespace hutch::daemon {

// `user` as inside; the pipe belongs to it, so that /dev/stdout can be opened again there. kKernel.
Result<Pipe> MakeOutputPipe(uint32_t host_id_start, const oci::User& user);  // read end is ours
Result<Pipe> MakeInputPipe(uint32_t host_id_start, const oci::User& user);   // write end is ours

}  // namespace hutch::daemon
