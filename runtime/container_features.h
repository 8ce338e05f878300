// What the OCI runtime supports, as the "features" document of the specification.
#pragma once

#include "oci/json.h"

namespace hutch::runtime {

// The newest version of the specification whose properties are all known; any 1.x is taken.
inline constexpr char kOciVersion[] = "1.3.0";
inline constexpr char kOldestOciVersion[] = "1.0.0";

// Of this program, whatever the host has.
oci::Json ContainerFeatures();

}  // namespace hutch::runtime
