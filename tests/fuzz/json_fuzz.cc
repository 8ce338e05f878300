// JSON text from a client or an image: whatever is accepted prints to text that is accepted again
// with the same value.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "oci/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = hutch::oci::ParseJson({reinterpret_cast<const char*>(data), size});
  if (!value.has_value()) return 0;
  const auto again = hutch::oci::ParseJson(hutch::oci::PrintJson(*value), {.max_bytes = 64u << 20});
  if (!again.has_value() || *again != *value) std::abort();
  return 0;
}
