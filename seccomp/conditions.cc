#include "seccomp/conditions.h"

#include <sys/utsname.h>

#include <algorithm>

#include "base/text.h"
#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

bool Holds(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// "4.8", or "6" for 6.0.
Result<std::pair<uint64_t, uint64_t>> ParseVersion(std::string_view text) {
  const size_t dot = text.find('.');
  ASSIGN_OR_RETURN(const uint64_t major, ParseUint(text.substr(0, dot), 9999));
  if (dot == std::string_view::npos) return std::pair(major, uint64_t{0});
  ASSIGN_OR_RETURN(const uint64_t minor, ParseUint(text.substr(dot + 1), 9999));
  return std::pair(major, minor);
}

Result<bool> KernelIsAtLeast(const std::string& release, const std::string& wanted) {
  auto version = ParseVersion(wanted);
  if (!version)
    return Error{.code = Code::kInvalidArgument,
                 .what = "minKernel \"" + wanted + "\" is not a version like 4.8"};
  const std::vector<std::string> parts = Split(release, '.');
  if (parts.size() < 2) return Error{.what = "kernel release \"" + release + "\""};
  const std::string minor = parts[1].substr(0, parts[1].find_first_not_of("0123456789"));
  ASSIGN_OR_RETURN(const auto running, ParseVersion(parts[0] + "." + minor));
  return running >= *version;
}

}  // namespace

Surroundings SurroundingsHere(const std::vector<std::string>& capabilities) {
  struct utsname name = {};
  CHECK(::uname(&name) == 0);
  return {capabilities, kNativeArchGoName, name.release};
}

Result<bool> RuleApplies(const oci::SeccompSyscall& rule, const Surroundings& where) {
  bool applies = rule.includes_arches.empty() || Holds(rule.includes_arches, where.architecture);
  if (Holds(rule.excludes_arches, where.architecture)) applies = false;
  for (const std::string& needed : rule.includes_caps)
    if (!Holds(where.capabilities, needed)) applies = false;
  for (const std::string& unwanted : rule.excludes_caps)
    if (Holds(where.capabilities, unwanted)) applies = false;
  if (!rule.includes_min_kernel.empty()) {
    ASSIGN_OR_RETURN(const bool new_enough,
                     KernelIsAtLeast(where.kernel_release, rule.includes_min_kernel));
    if (!new_enough) applies = false;
  }
  if (!rule.excludes_min_kernel.empty()) {
    ASSIGN_OR_RETURN(const bool too_new,
                     KernelIsAtLeast(where.kernel_release, rule.excludes_min_kernel));
    if (too_new) applies = false;
  }
  return applies;
}

}  // namespace hutch::seccomp
