// The image a sandbox is to be made from, pulled first where that was asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/create_request.h"
#include "daemon/progress_events.h"
#include "daemon/routes.h"

namespace hutch::daemon {

// Calls `then` with the name to resolve in the store: at once, with fields.image itself, when the
// policy fields.pull wants no pull (also when there is no such image, and no registry that could
// have it: the store's own words are the best); else when the pull has ended, whose progress and
// audit entry are taken care of. A client that hangs up leaves the pull, and `then` is not called.
// Errors are the pull's, field "image".
void WithImage(Api& api, const Peer& caller, const SandboxFields& fields,
               const std::shared_ptr<JobAnswer>& answer,
               std::function<void(Result<std::string> name)> then);

}  // namespace hutch::daemon
