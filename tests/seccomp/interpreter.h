// Runs a seccomp program as the kernel would, for tests: any instruction that a filter may not
// hold, or a jump out of the program, fails the test instead of passing for an answer.
#pragma once

#include <linux/seccomp.h>

#include <cstdint>

#include "seccomp/filters.h"

namespace hutch::seccomp {

inline constexpr uint32_t kBadProgram = 0xdead0000;  // no action looks like this

uint32_t Interpret(const Program& program, const seccomp_data& data);

// One call of this machine's architecture.
seccomp_data Call(uint32_t number, uint64_t a0 = 0, uint64_t a1 = 0, uint64_t a2 = 0,
                  uint64_t a3 = 0, uint64_t a4 = 0, uint64_t a5 = 0);

}  // namespace hutch::seccomp
