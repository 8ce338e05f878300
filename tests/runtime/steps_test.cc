#include "runtime/steps.h"

#include <gtest/gtest.h>

#include <string>

namespace hutch::runtime {
namespace {

struct Trace {
  std::string done;
  int fail_at = -1;
  int busy = 0;
};

template <char kName, int kIndex>
Status Run(Trace& t) {
  t.done += kName;
  if (t.fail_at == kIndex) return Error{.code = Code::kKernel, .what = "no"};
  return OkStatus();
}
template <char kName>
Status Undo(Trace& t) {
  if (t.busy > 0) {
    --t.busy;
    return Error{.code = Code::kBadState, .what = "busy"};
  }
  t.done += kName;
  return OkStatus();
}

constexpr StepRow<Trace> kRows[] = {
    {"a", Run<'a', 0>, Undo<'A'>}, {"b", Run<'b', 1>, nullptr}, {"c", Run<'c', 2>, Undo<'C'>}};

TEST(Steps, RunDownwardsAndUndoUpwardsFromTheRowThatFailed) {
  std::vector<Timing> timings;
  Trace all;
  EXPECT_TRUE(RunSteps<Trace>(kRows, all, &timings).has_value());
  EXPECT_EQ(all.done, "abc");
  EXPECT_EQ(timings.size(), 3u);
  const std::string expected[] = {"aA", "abA", "abcCA"};
  for (int i = 0; i < 3; ++i) {
    Trace t{.done = {}, .fail_at = i};
    const Status status = RunSteps<Trace>(kRows, t, &timings);
    ASSERT_FALSE(status.has_value());
    EXPECT_STREQ(status.error().step, kRows[i].name);
    EXPECT_EQ(t.done, expected[i]);
  }
}

TEST(Steps, AFailedUndoIsTold) {
  std::vector<Timing> timings;
  Trace t{.done = {}, .fail_at = 2, .busy = 1};
  const Status status = RunSteps<Trace>(kRows, t, &timings);
  EXPECT_NE(status.error().what.find("busy"), std::string::npos);
  EXPECT_TRUE(UndoSteps<Trace>(kRows, t).has_value()) << "and can be done again";
}

}  // namespace
}  // namespace hutch::runtime
