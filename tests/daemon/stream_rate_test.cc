#include "daemon/stream_rate.h"

#include <gtest/gtest.h>

namespace hutch::daemon {
namespace {

using std::chrono::seconds;

TEST(StreamRate, ATrickleEndsWithItsFirstWindow) {
  const StreamRate::Time begin{};
  StreamRate rate(begin);
  EXPECT_TRUE(rate.Add(1, begin + seconds(30)));
  EXPECT_TRUE(rate.Add(StreamRate::kLeastBytes - 2, begin + seconds(59)));
  EXPECT_FALSE(rate.Add(0, begin + seconds(60)));
}

TEST(StreamRate, EachWindowCountsForItself) {
  const StreamRate::Time begin{};
  StreamRate rate(begin);
  EXPECT_TRUE(rate.Add(StreamRate::kLeastBytes * 9, begin + seconds(61)));
  EXPECT_TRUE(rate.Add(StreamRate::kLeastBytes, begin + seconds(120)));
  EXPECT_TRUE(rate.Add(0, begin + seconds(121)));
  EXPECT_FALSE(rate.Add(5, begin + seconds(181)));
}

}  // namespace
}  // namespace hutch::daemon
