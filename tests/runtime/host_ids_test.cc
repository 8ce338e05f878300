#include "runtime/host_ids.h"

#include <gtest/gtest.h>

#include <set>

namespace hutch::runtime {
namespace {

constexpr uint32_t kStart = 0x70000000;

TEST(HostIds, RangesNeverOverlapAndRunOut) {
  HostIds ids(kStart, 3);
  std::set<uint32_t> taken;
  for (int i = 0; i < 3; ++i) taken.insert(*ids.Take());
  EXPECT_EQ(taken, (std::set<uint32_t>{kStart, kStart + 65536, kStart + 131072}));
  EXPECT_EQ(ids.Take().error().code, Code::kLimit);
  ids.Release(kStart + 65536);
  ids.Release(kStart + 65536);  // twice is once
  EXPECT_EQ(*ids.Take(), kStart + 65536);
  EXPECT_FALSE(ids.Take().has_value());
}

TEST(HostIds, AClaimedRangeIsNotHandedOut) {
  HostIds ids(kStart, 2);
  EXPECT_TRUE(ids.Claim(kStart).has_value());
  EXPECT_EQ(*ids.Take(), kStart + 65536);
  EXPECT_FALSE(ids.Take().has_value());
  for (const uint32_t foreign : {kStart, kStart + 1, kStart - 65536, kStart + 2 * 65536, 0u})
    EXPECT_FALSE(ids.Claim(foreign).has_value()) << foreign;
  ids.Release(kStart);
  EXPECT_EQ(*ids.Take(), kStart);
}

}  // namespace
}  // namespace hutch::runtime
