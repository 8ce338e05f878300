#include "base/fault_point.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <set>

namespace hutch {
namespace {

// The variable is read before main(): each case is a process of its own.
struct FaultPoints : testing::Test {
  FaultPoints() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void Reach() {
  FaultPoint("state file written");
  StepFault(StepMoment::kBeforeUndo, "create cgroups");
  FaultPoint("state file written");
  std::_Exit(0);
}

TEST_F(FaultPoints, WithoutTheVariableNothingHappens) {
  ::unsetenv("HUTCH_FAULT");
  EXPECT_EXIT(Reach(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultPoints, AreReachedByNameAndNumber) {
  struct Row {
    const char* fault;
    bool killed;
  };
  for (const Row& row : {Row{"state file written", true}, Row{"state file written#2", true},
                         Row{"state file written#3", false}, Row{"state file written#0", false},
                         Row{"before undoing create cgroups", true},
                         Row{"before create cgroups", false}, Row{"create cgroups", false}}) {
    ::setenv("HUTCH_FAULT", row.fault, 1);
    if (row.killed)
      EXPECT_EXIT(Reach(), testing::KilledBySignal(SIGKILL), "") << row.fault;
    else
      EXPECT_EXIT(Reach(), testing::ExitedWithCode(0), "") << row.fault;
  }
  ::unsetenv("HUTCH_FAULT");
}

TEST_F(FaultPoints, HaveNamesOfTheirOwn) {
  EXPECT_EQ(std::set(kFaultPoints.begin(), kFaultPoints.end()).size(), kFaultPoints.size());
}

}  // namespace
}  // namespace hutch
