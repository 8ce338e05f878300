// config.json from its file to what the steps use.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "oci/container_config.h"
#include "runtime/container_confine.h"

namespace hutch::runtime {

// The text of a configuration, of at most 16 MiB.
Result<std::string> ReadContainerConfigFile(const std::string& path);
Result<oci::ContainerConfig> ParseContainerConfigText(std::string_view text);

// What more of config.json decides over every process of the container: linux.seccomp as a program,
// and annotations.
Status PlanFromConfig(const oci::ContainerConfig& config, Confinement* plan);

}  // namespace hutch::runtime
