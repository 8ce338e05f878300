#include "daemon/timeouts.h"

#include <gtest/gtest.h>

namespace hutch::daemon {
namespace {

using std::chrono::seconds;

SteadyTime At(int s) { return SteadyTime(seconds(s)); }

Result<Timeouts> Parse(const char* text, Timeouts timeouts = {}) {
  const Status status = ParseTimeouts(*oci::ParseJson(text), &timeouts);
  if (!status.has_value()) return status.error();
  return timeouts;
}

TEST(Timeouts, WhatIsNotNamedStaysAsItIs) {
  const Timeouts before{.idle_seconds = 5, .lifetime_seconds = 6, .on_expiry = OnExpiry::kPause};
  const Result<Timeouts> after = Parse(R"({"idle_seconds":0,"activity":["heartbeat"]})", before);
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(TimeoutsJson(*after), oci::Json({{"idle_seconds", 0},
                                             {"lifetime_seconds", 6},
                                             {"on_expiry", "pause"},
                                             {"activity", {"heartbeat"}}}));
  EXPECT_FALSE(after->Counts(Activity::kCall));
}

TEST(Timeouts, WhatCannotBeDoneIsRefusedByName) {
  EXPECT_EQ(Parse(R"({"on_expiry":"freeze"})").error().code, Code::kInvalidArgument);
  EXPECT_EQ(Parse(R"({"on_expiry":"explode"})").error().field, "timeouts.on_expiry");
  EXPECT_EQ(Parse(R"({"activity":["call","noise"]})").error().field, "timeouts.activity");
  EXPECT_EQ(Parse(R"({"idle":5})").error().field, "timeouts.idle");
}

TEST(Timeouts, ZeroIsAsLongAsTheOperatorAllows) {
  Amounts ceilings{};
  ceilings.idle_seconds = 10;
  Timeouts timeouts;
  ASSERT_TRUE(KeepCeilings(ceilings, &timeouts).has_value());
  EXPECT_EQ(timeouts.idle_seconds, 10u);
  timeouts.idle_seconds = 11;
  EXPECT_EQ(KeepCeilings(ceilings, &timeouts).error().code, Code::kLimit);
}

TEST(Deadlines, WithoutAnyNothingIsDue) {
  Deadlines deadlines;
  const Deadlines::Look look = deadlines.LookAt(At(1000), seconds(60));
  EXPECT_FALSE(look.expired);
  EXPECT_FALSE(look.next);
}

TEST(Deadlines, OneIsWarnedOfOnceAndThenExpires) {
  Deadlines deadlines;
  deadlines.Set(MoveCause::kLifetime, At(1000), seconds(1000));
  Deadlines::Look look = deadlines.LookAt(At(0), seconds(60));
  EXPECT_EQ(look.next, At(940));
  look = deadlines.LookAt(At(940), seconds(60));
  ASSERT_EQ(look.warnings.size(), 1u);
  EXPECT_EQ(look.warnings[0].seconds_left, 60u);
  EXPECT_EQ(look.next, At(1000));
  EXPECT_TRUE(deadlines.LookAt(At(950), seconds(60)).warnings.empty());
  EXPECT_FALSE(deadlines.LookAt(At(999), seconds(60)).expired);
  EXPECT_EQ(deadlines.LookAt(At(1000), seconds(60)).expired, MoveCause::kLifetime);
}

TEST(Deadlines, TheSameAgainIsNotWarnedOfTwiceAndANewOneIs) {
  Deadlines deadlines;
  deadlines.Set(MoveCause::kIdleTimeout, At(100), seconds(100));
  EXPECT_EQ(deadlines.LookAt(At(90), seconds(20)).warnings.size(), 1u);
  deadlines.Set(MoveCause::kIdleTimeout, At(100), seconds(100));
  EXPECT_EQ(deadlines.LookAt(At(91), seconds(20)).warnings.size(), 0u);
  deadlines.Set(MoveCause::kIdleTimeout, At(191), seconds(100));
  EXPECT_EQ(deadlines.LookAt(At(92), seconds(20)).next, At(171));
  EXPECT_EQ(deadlines.LookAt(At(171), seconds(20)).warnings.size(), 1u);
}

TEST(Deadlines, AShortTimeIsWarnedOfInItsMiddle) {
  Deadlines deadlines;
  deadlines.Set(MoveCause::kIdleTimeout, At(10), seconds(10));
  EXPECT_EQ(deadlines.LookAt(At(0), seconds(60)).next, At(5));
  EXPECT_EQ(deadlines.LookAt(At(5), seconds(60)).warnings.at(0).seconds_left, 5u);
}

TEST(Deadlines, NoWarningsWhenNoneAreWanted) {
  Deadlines deadlines;
  deadlines.Set(MoveCause::kIdleTimeout, At(10), seconds(10));
  const Deadlines::Look look = deadlines.LookAt(At(9), seconds(0));
  EXPECT_TRUE(look.warnings.empty());
  EXPECT_EQ(look.next, At(10));
}

TEST(Deadlines, TheLifetimeIsTheReasonWhenBothAreOver) {
  Deadlines deadlines;
  deadlines.Set(MoveCause::kIdleTimeout, At(10), seconds(10));
  deadlines.Set(MoveCause::kLifetime, At(11), seconds(11));
  EXPECT_EQ(deadlines.LookAt(At(12), seconds(0)).expired, MoveCause::kLifetime);
  deadlines.Set(MoveCause::kLifetime, std::nullopt, seconds(0));
  EXPECT_EQ(deadlines.LookAt(At(12), seconds(0)).expired, MoveCause::kIdleTimeout);
}

}  // namespace
}  // namespace hutch::daemon
