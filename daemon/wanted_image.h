// The image a sandbox is to be made from, pulled first where that was asked for.
#pragma once

#include <functional>
#include <string>

#include "daemon/create_request.h"
#include "daemon/progress_events.h"
#include "daemon/routes.h"

namespace hutch::daemon {

// Calls `then` with the name to resolve in the store: at once, with fields.image itself, when the
// policy fields.pull wants no pull (also when there is no such image, and no registry that could
// have it: the store's own words are the best); else when the pull has ended. Errors are the
// pull's, field "image". The audit log gets the pull.
// While there is a pull to wait for, returns what leaves it, to be called when the client is gone:
// `then` is not called after that. Empty when `then` was called already.
std::function<void()> WithImage(Api& api, const Peer& caller, const SandboxFields& fields,
                                Progress progress,
                                std::function<void(Result<std::string> name)> then);

}  // namespace hutch::daemon
