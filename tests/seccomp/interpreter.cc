#include "tests/seccomp/interpreter.h"

#include <cstring>

#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

bool Compare(uint16_t code, uint32_t a, uint32_t k) {
  switch (BPF_OP(code)) {
    case BPF_JEQ:
      return a == k;
    case BPF_JGT:
      return a > k;
    case BPF_JGE:
      return a >= k;
    default:
      return (a & k) != 0;
  }
}

}  // namespace

uint32_t Interpret(const Program& program, const seccomp_data& data) {
  uint32_t a = 0;
  for (size_t pc = 0; pc < program.size(); ++pc) {
    const sock_filter& at = program[pc];
    switch (BPF_CLASS(at.code)) {
      case BPF_LD:
        if (at.code != (BPF_LD | BPF_W | BPF_ABS) || at.k % 4 != 0 || at.k > sizeof data - 4)
          return kBadProgram;
        std::memcpy(&a, reinterpret_cast<const char*>(&data) + at.k, sizeof a);
        break;
      case BPF_ALU:
        if (at.code != (BPF_ALU | BPF_AND | BPF_K)) return kBadProgram;
        a &= at.k;
        break;
      case BPF_JMP:
        if (BPF_OP(at.code) == BPF_JA)
          pc += at.k;
        else
          pc += Compare(at.code, a, at.k) ? at.jt : at.jf;
        break;
      case BPF_RET:
        return at.code == (BPF_RET | BPF_K) ? at.k : kBadProgram;
      default:
        return kBadProgram;
    }
  }
  return kBadProgram;
}

seccomp_data Call(uint32_t number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                  uint64_t a5) {
  seccomp_data data = {};
  data.nr = static_cast<int>(number);
  data.arch = kNativeArch;
  const uint64_t args[] = {a0, a1, a2, a3, a4, a5};
  std::memcpy(data.args, args, sizeof args);
  return data;
}

}  // namespace hutch::seccomp
