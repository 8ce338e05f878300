// Writes a classic BPF program from its end to its start, so that every jump knows its target.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "seccomp/filters.h"

namespace hutch::seccomp {

class ProgramBuilder {
 public:
  using Label = size_t;  // an instruction already written

  // RET action. Shared while a conditional jump (8 bits) can still reach the last one.
  Label Return(uint32_t action);
  // if (A op k) goto yes; else goto no. op: BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JSET.
  Label Branch(uint16_t op, uint32_t k, Label yes, Label no);
  // A = 32-bit word of struct seccomp_data at `offset`; goto next.
  Label Load(uint32_t offset, Label next);
  // The program that starts at `start`; the builder is empty afterwards.
  Program Finish(Label start);

 private:
  struct Exit {
    uint32_t action;
    Label label;
  };
  Label Write(sock_filter instruction);
  size_t Distance(Label target) const { return reversed_.size() - 1 - target; }
  Label Reachable(Label target);  // target, or a BPF_JA to it close enough

  std::vector<sock_filter> reversed_;
  std::vector<Exit> exits_;
};

// Offsets for Load.
uint32_t NumberOffset();
uint32_t ArchOffset();
uint32_t ArgLowOffset(unsigned index);  // the 32 bits that the kernel looks at for an int argument

}  // namespace hutch::seccomp
