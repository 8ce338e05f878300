#include "daemon/timers.h"

#include <gtest/gtest.h>

#include <string>

namespace hutch::daemon {
namespace {

SteadyTime At(int ms) { return SteadyTime(std::chrono::milliseconds(ms)); }

TEST(Timers, RunsWhatIsDueInOrderOfDeadlines) {
  Timers timers;
  std::string log;
  timers.Add(At(30), [&] { log += "c"; });
  timers.Add(At(10), [&] { log += "a"; });
  timers.Add(At(20), [&] { log += "b"; });
  EXPECT_EQ(timers.NextDeadline(), At(10));
  timers.RunDue(At(20));
  EXPECT_EQ(log, "ab");
  EXPECT_EQ(timers.size(), 1u);
}

TEST(Timers, CancelledOnesDoNotRun) {
  Timers timers;
  bool ran = false;
  const Timers::Id id = timers.Add(At(10), [&] { ran = true; });
  timers.Cancel(id);
  timers.Cancel(id);
  timers.RunDue(At(100));
  EXPECT_FALSE(ran);
  EXPECT_EQ(timers.NextDeadline(), std::nullopt);
}

TEST(Timers, CallbacksMayAddAndCancel) {
  Timers timers;
  std::string log;
  Timers::Id other;
  timers.Add(At(1), [&] {
    log += "a";
    timers.Cancel(other);
    timers.Add(At(0),
               [&] { log += "new"; });  // due at once, but not in this round: no endless loop
  });
  other = timers.Add(At(2), [&] { log += "never"; });
  timers.RunDue(At(10));
  EXPECT_EQ(log, "a");
  timers.RunDue(At(10));
  EXPECT_EQ(log, "anew");
}

}  // namespace
}  // namespace hutch::daemon
