// Seccomp profiles as JSON: `linux.seccomp` of a config.json, and the profile files of Docker and
// podman.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "oci/json.h"
#include "oci/runtime_spec.h"

namespace hutch::oci {

// Unknown members: the runtime-spec wants them ignored; in a profile file a misspelt member would
// silently change what a sandbox may do, so it is an error there.
enum class SeccompDialect { kRuntimeSpec, kProfileFile };

// `path` is where the object stands in its document, for error messages ("linux.seccomp"). Names of
// actions, operators and calls are not judged here (seccomp/ does); types, ranges and required
// members are. kInvalidArgument with the field; kUnsupported for listenerPath and listenerMetadata
// in a profile file.
Result<LinuxSeccomp> ParseSeccomp(const Json& value, const std::string& path,
                                  SeccompDialect dialect);

// The text of a profile file.
Result<LinuxSeccomp> ParseSeccompProfile(std::string_view text);

}  // namespace hutch::oci
