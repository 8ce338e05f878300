// Hooks of config.json: programs run one after another, with the container's state on stdin.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "oci/container_config.h"
#include "runtime/container_state.h"

namespace hutch::runtime {

// Runs each hook in the caller's namespaces, with the environment of its own entry and nothing
// else, `directory` as working directory ("/" where the caller may not enter it) and no descriptor
// but stdin (the state), stdout and stderr. Stops at the first that cannot be started, ends with
// another code than 0, or is not ready in time (killed then): the error names it and has the end of
// what it wrote. `point` ("createRuntime") is for messages.
Status RunHooks(const char* point, const std::vector<oci::Hook>& hooks, const oci::Json& state,
                const std::string& directory);

// As RunHooks, for a point whose hooks cannot undo anything (poststop): every one runs; the errors
// come back as text for the log.
std::vector<std::string> RunHooksAnyway(const char* point, const std::vector<oci::Hook>& hooks,
                                        const oci::Json& state, const std::string& directory);

}  // namespace hutch::runtime
