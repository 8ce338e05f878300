#include "seccomp/program_builder.h"

#include <linux/seccomp.h>

#include <algorithm>

#include "base/check.h"

namespace hutch::seccomp {
namespace {

// A conditional jump spans at most 255 instructions; one Branch may write two BPF_JA in between.
constexpr size_t kMaxSpan = 253;
// Past this a new RET costs no more than the BPF_JA that reaches the old one.
constexpr size_t kShareSpan = 200;

}  // namespace

ProgramBuilder::Label ProgramBuilder::Write(sock_filter instruction) {
  reversed_.push_back(instruction);
  return reversed_.size() - 1;
}

ProgramBuilder::Label ProgramBuilder::Return(uint32_t action) {
  const auto it = std::find_if(exits_.begin(), exits_.end(),
                               [action](const Exit& exit) { return exit.action == action; });
  if (it != exits_.end() && Distance(it->label) < kShareSpan) return it->label;
  const Label label = Write({BPF_RET | BPF_K, 0, 0, action});
  if (it != exits_.end())
    it->label = label;
  else
    exits_.push_back({action, label});
  return label;
}

ProgramBuilder::Label ProgramBuilder::Reachable(Label target) {
  CHECK(target < reversed_.size());
  if (Distance(target) <= kMaxSpan) return target;
  return Write({BPF_JMP | BPF_JA, 0, 0, static_cast<uint32_t>(Distance(target))});
}

ProgramBuilder::Label ProgramBuilder::Branch(uint16_t op, uint32_t k, Label yes, Label no) {
  yes = Reachable(yes);
  no = Reachable(no);
  const auto code = static_cast<uint16_t>(BPF_JMP | op | BPF_K);
  return Write({code, static_cast<uint8_t>(Distance(yes)), static_cast<uint8_t>(Distance(no)), k});
}

ProgramBuilder::Label ProgramBuilder::Load(uint32_t offset, Label next) {
  if (Distance(next) != 0) Write({BPF_JMP | BPF_JA, 0, 0, static_cast<uint32_t>(Distance(next))});
  return Write({BPF_LD | BPF_W | BPF_ABS, 0, 0, offset});
}

Program ProgramBuilder::Finish(Label start) {
  CHECK(start + 1 == reversed_.size() && start < BPF_MAXINSNS);
  exits_.clear();
  Program program(reversed_.rbegin(), reversed_.rend());
  reversed_.clear();
  return program;
}

uint32_t NumberOffset() { return offsetof(seccomp_data, nr); }
uint32_t ArchOffset() { return offsetof(seccomp_data, arch); }
uint32_t ArgLowOffset(unsigned index) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
}

}  // namespace hutch::seccomp
