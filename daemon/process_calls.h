// What the handlers of commands and processes share.
#pragma once

#include <functional>
#include <memory>

#include "daemon/background.h"
#include "daemon/exec_request.h"
#include "daemon/message.h"
#include "daemon/routes.h"

namespace hutch::daemon {

// "p3" to 3; kNotFound.
Result<uint32_t> ParseProcessId(const std::string& text);
// The sandbox for a command: one that is paused goes on if the request says so. kBadState.
Result<SandboxEntry*> ReadyFor(Api& api, SandboxEntry& entry, const CommandFields& fields);
// By the first two parameters of the path. kNotFound, kBadState.
Result<std::shared_ptr<BackgroundProcess>> FindProcess(Api& api, const Request& request);

// Calls `answer` once: when `done` is true after a change of the process, or after `seconds` (below
// 0: never so). Not at all when the client hangs up before.
void WaitFor(Api& api, std::shared_ptr<BackgroundProcess> process, double seconds,
             Responder responder, std::function<bool(const BackgroundProcess&)> done,
             std::function<void(Responder&, const BackgroundProcess&)> answer);

}  // namespace hutch::daemon
