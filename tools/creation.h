// Making a sandbox: one answer, or what its template's commands do as it comes.
#pragma once

#include "base/result.h"
#include "oci/json.h"
#include "tools/commands.h"

namespace hutch::tools {

// POST /v1/sandboxes; the value is the sandbox. With a template each command that begins is a line
// on standard error, and so is all that it writes; with --json neither is.
Result<oci::Json> CreateSandbox(Context& context, const oci::Json& body);

}  // namespace hutch::tools
