// config.json, whole and in the two parts that come alone: no text may crash a parser.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "oci/container_config.h"
#include "oci/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = hutch::oci::ParseJson({reinterpret_cast<const char*>(data), size});
  if (!json.has_value()) return 0;
  hutch::IgnoreError(hutch::oci::ParseContainerConfig(*json), "any answer will do");
  hutch::IgnoreError(hutch::oci::ParseContainerProcess(*json), "any answer will do");
  hutch::IgnoreError(hutch::oci::ParseContainerResources(*json), "any answer will do");
  return 0;
}
