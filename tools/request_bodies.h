// Options to the API's request bodies, with the sizes and times that people write turned into the
// API's units. Every error is kInvalidArgument and names the option.
#pragma once

#include <string_view>

#include "base/result.h"
#include "oci/json.h"
#include "tools/options.h"

namespace hutch::tools {

// POST /v1/sandboxes. Reads the file of --relax-seccomp. Only what was said is in the body: the
// daemon owns the defaults.
Result<oci::Json> PlanCreateBody(const Options& options);

// POST .../exec. `stdin_bytes` go as text when they are UTF-8, else as base64. With kOwnSandbox
// (run) environment, directory and user belong to the sandbox and are left out here.
enum class ExecIn { kOwnSandbox, kExistingSandbox };
Result<oci::Json> PlanExecBody(const Options& options, std::string_view stdin_bytes, ExecIn where);

// "?label=a%3Db&state=running", or empty.
std::string PlanListQuery(const Options& options);

}  // namespace hutch::tools
