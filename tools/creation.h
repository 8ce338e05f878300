// Making a sandbox: what the pull of its image and its template's commands do is told as it comes.
#pragma once

#include "base/result.h"
#include "oci/json.h"
#include "tools/commands.h"

namespace hutch::tools {

// POST /v1/sandboxes; the value is the sandbox. A pull shows its progress on standard error;
// of a template each command that begins is a line there, and all that it writes; with --json
// nothing is.
Result<oci::Json> CreateSandbox(Context& context, const oci::Json& body);

}  // namespace hutch::tools
