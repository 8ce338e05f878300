// A request to make a sandbox that has a key: what was made for the key before is the answer, or is
// waited for.
#pragma once

#include <memory>

#include "daemon/create_claims.h"
#include "daemon/routes.h"

namespace hutch::daemon {

// kToBeMade: `claim` is the caller's, and the responder is still to be answered. kAnswered: it is,
// or will be.
enum class Keyed { kAnswered, kToBeMade };
Keyed AnswerByKeys(Api& api, const Request& request, const CreateKeys& keys, Responder& responder,
                   std::shared_ptr<CreateClaim>* claim);

}  // namespace hutch::daemon
