#include "seccomp/program_builder.h"

#include <gtest/gtest.h>

#include "tests/seccomp/interpreter.h"

namespace hutch::seccomp {
namespace {

TEST(ProgramBuilder, ReachesTargetsBeyondEightBits) {
  ProgramBuilder b;
  const auto hit = b.Return(1);
  auto next = b.Return(2);
  const auto miss = next;
  for (uint32_t k = 2000; k-- > 0;) next = b.Branch(BPF_JEQ, k * 2, hit, k == 1999 ? miss : next);
  const Program program = b.Finish(b.Load(NumberOffset(), next));
  for (uint32_t nr = 0; nr < 4002; ++nr)
    ASSERT_EQ(Interpret(program, Call(nr)), nr % 2 == 0 && nr < 4000 ? 1u : 2u) << nr;
}

TEST(ProgramBuilder, BothTargetsFar) {
  ProgramBuilder b;
  const auto yes = b.Return(1);
  const auto no = b.Return(2);
  auto filler = b.Return(3);
  for (uint32_t k = 0; k < 400; ++k) filler = b.Load(0, filler);
  const Program program = b.Finish(b.Load(NumberOffset(), b.Branch(BPF_JGE, 10, yes, no)));
  EXPECT_EQ(Interpret(program, Call(10)), 1u);
  EXPECT_EQ(Interpret(program, Call(9)), 2u);
}

TEST(ProgramBuilder, SharesReturnsNearby) {
  ProgramBuilder b;
  const auto one = b.Return(7);
  EXPECT_EQ(b.Return(7), one);
  EXPECT_NE(b.Return(8), one);
}

TEST(ProgramBuilder, LoadJumpsToATargetThatDoesNotFollow) {
  ProgramBuilder b;
  const auto wanted = b.Return(1);
  b.Return(2);
  const Program program = b.Finish(b.Load(ArchOffset(), wanted));
  EXPECT_EQ(Interpret(program, Call(0)), 1u);
}

}  // namespace
}  // namespace hutch::seccomp
