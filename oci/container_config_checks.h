// What a config.json that parses can still contradict: the specification's rules between members.
#pragma once

#include "base/result.h"
#include "oci/container_config.h"

namespace hutch::oci {

// Pure. kInvalidArgument with the JSON path of the member that asks for the other.
Status CheckContainerConfig(const ContainerConfig& config);

}  // namespace hutch::oci
