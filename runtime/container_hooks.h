// Hooks of config.json: programs run one after another, with the container's state on stdin.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"
#include "runtime/container_state.h"

namespace hutch::runtime {

// What the hooks of one point need. Made ahead, so that a seccomp filter which is loaded meanwhile
// has little to forbid.
class HookRunner {
 public:
  // `directory` is their working directory; empty: the caller's.
  static Result<HookRunner> Make(const oci::Json& state, std::string directory);

  // Runs each hook in the caller's namespaces, with the environment of its own entry (or `env`,
  // where it has none) and nothing else, and no descriptor but stdin (the state), stdout and
  // stderr. Stops at the first that cannot be started, ends with another code than 0, or is not
  // ready in time (killed then): the error names it and has the end of what it wrote. `point`
  // ("createRuntime") is for messages.
  Status Run(const char* point, const std::vector<oci::Hook>& hooks,
             const std::vector<std::string>* env = nullptr) const;

  // As Run, for a point whose hooks cannot undo anything (poststop): every one runs; the errors
  // come back as text for the log.
  std::vector<std::string> RunAnyway(const char* point, const std::vector<oci::Hook>& hooks) const;

 private:
  HookRunner(UniqueFd state, UniqueFd output, std::string directory)
      : state_(std::move(state)), output_(std::move(output)), directory_(std::move(directory)) {}
  Status RunOne(const oci::Hook& hook, const std::vector<std::string>* env,
                const std::string& exit_words) const;

  UniqueFd state_, output_;
  std::string directory_;
};

// The container's bundle, or "/" when it is there no more.
std::string HookDirectory(const ContainerRecord& record);

// Runs the poststop hooks, in the bundle; the errors as text.
std::vector<std::string> RunPoststopHooks(const oci::ContainerConfig& config,
                                          const ContainerRecord& record);

}  // namespace hutch::runtime
