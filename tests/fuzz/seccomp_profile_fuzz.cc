// Profile JSON from a client, through the parser and the compiler: neither may crash, and what
// compiles must fit the kernel.
#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "oci/seccomp_json.h"
#include "seccomp/filters.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile = hutch::oci::ParseSeccompProfile({reinterpret_cast<const char*>(data), size});
  if (!profile.has_value()) return 0;
  const auto filters = hutch::seccomp::CompileFilters(*profile);
  if (!filters.has_value()) return 0;
  const hutch::seccomp::Program& program = (*filters)->process;
  if (program.empty() || program.size() > BPF_MAXINSNS) std::abort();
  return 0;
}
