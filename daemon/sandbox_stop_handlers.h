// Starting a stopped sandbox, for whoever asks for it.
#pragma once

#include "daemon/handlers.h"
#include "daemon/sandbox_stops.h"

namespace hutch::daemon {

// As SandboxStops::Start, with its volumes.
void StartStopped(Api& api, SandboxEntry& entry, const Peer& caller, StartDone done);

}  // namespace hutch::daemon
