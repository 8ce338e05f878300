#include "cgroups/pressure.h"

#include <gtest/gtest.h>

namespace hutch::cgroups {
namespace {

TEST(Pressure, BothLinesAreRead) {
  const auto pressure = ParsePressure(
      "some avg10=1.50 avg60=0.25 avg300=0.00 total=42\n"
      "full avg10=0.50 avg60=0.00 avg300=0.00 total=7\n");
  ASSERT_TRUE(pressure.has_value());
  EXPECT_EQ(pressure->some.avg10, 1.5);
  EXPECT_EQ(pressure->some.avg60, 0.25);
  EXPECT_EQ(pressure->some.total_us, 42u);
  ASSERT_TRUE(pressure->full.has_value());
  EXPECT_EQ(pressure->full->total_us, 7u);
}

TEST(Pressure, WhatIsNoneIsNone) {
  EXPECT_FALSE(ParsePressure("").has_value());
  EXPECT_FALSE(ParsePressure("some avg10=x avg60=0.00 avg300=0.00 total=1\n").has_value());
  EXPECT_FALSE(ParsePressure("full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n").has_value());
  const auto alone = ParsePressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
  ASSERT_TRUE(alone.has_value());
  EXPECT_FALSE(alone->full.has_value());
}

}  // namespace
}  // namespace hutch::cgroups
