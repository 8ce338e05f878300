// Calls that take long, with their progress on standard error.
#pragma once

#include "base/result.h"
#include "oci/json.h"
#include "tools/commands.h"

namespace hutch::tools {

// Client::PostWithProgress, showing each event as it comes unless --json was given. The value and
// the errors are its.
Result<oci::Json> PostShowingProgress(Context& context, const char* target, const oci::Json& body);

}  // namespace hutch::tools
