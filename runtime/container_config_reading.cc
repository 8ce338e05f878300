#include "runtime/container_config_reading.h"

#include "base/file.h"
#include "oci/json.h"
#include "seccomp/filters.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxConfigBytes = 16u << 20;

}  // namespace

Result<std::string> ReadContainerConfigFile(const std::string& path) {
  Result<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (text || text.error().code != Code::kNotFound) return text;
  return Error{.code = Code::kNotFound,
               .sys = ENOENT,
               .what = "JSON specification file " + path + " not found"};
}

Result<oci::ContainerConfig> ParseContainerConfigText(std::string_view text) {
  ASSIGN_OR_RETURN(const oci::Json json, oci::ParseJson(text, {.max_bytes = kMaxConfigBytes}));
  return oci::ParseContainerConfig(json);
}

Status PlanFromConfig(const oci::ContainerConfig& config, Confinement* plan) {
  const auto kept = config.annotations.find("run.oci.keep_original_groups");
  plan->keep_groups = kept != config.annotations.end() && kept->second == "1";
  if (!config.linux_.seccomp) return OkStatus();
  ASSIGN_OR_RETURN(
      const seccomp::SharedFilters filters,
      seccomp::CompileFilters(*config.linux_.seccomp, plan->process->capabilities.bounding));
  plan->filter = filters->process;
  plan->filter_flags = filters->process_flags;
  plan->filter_notifies = !config.linux_.seccomp->listener_path.empty();
  return OkStatus();
}

}  // namespace hutch::runtime
