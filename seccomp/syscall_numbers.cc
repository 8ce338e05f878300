#include "seccomp/syscall_numbers.h"

#include <seccomp.h>

#include <string_view>

namespace hutch::seccomp {
namespace {

// Calls newer than Debian 12's libseccomp. From 424 on, every architecture has the same numbers.
constexpr struct {
  std::string_view name;
  uint32_t number;
} kNewer[] = {
    {"cachestat", 451},         {"fchmodat2", 452},        {"map_shadow_stack", 453},
    {"futex_wake", 454},        {"futex_wait", 455},       {"futex_requeue", 456},
    {"statmount", 457},         {"listmount", 458},        {"lsm_get_self_attr", 459},
    {"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
    {"setxattrat", 463},        {"getxattrat", 464},       {"listxattrat", 465},
    {"removexattrat", 466},     {"open_tree_attr", 467},   {"file_getattr", 468},
    {"file_setattr", 469},
};

}  // namespace

SyscallName FindSyscall(const std::string& name) {
  for (const auto& row : kNewer)
    if (row.name == name) return {SyscallName::kHere, row.number};
  const int number = seccomp_syscall_resolve_name(name.c_str());
  if (number == __NR_SCMP_ERROR) return {};
  // Negative numbers are libseccomp's own, for calls that this architecture lacks.
  if (number < 0) return {SyscallName::kElsewhere, 0};
  return {SyscallName::kHere, static_cast<uint32_t>(number)};
}

}  // namespace hutch::seccomp
