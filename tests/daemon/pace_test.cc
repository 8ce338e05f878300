#include "daemon/pace.h"

#include <gtest/gtest.h>

#include <thread>

namespace hutch::daemon {
namespace {

TEST(Pace, TheFirstPieceRunsAtOnce) {
  Loop loop;
  Pace pace(loop);
  bool ran = false;
  pace.Run([&] { ran = true; });
  EXPECT_TRUE(ran);
}

// Two that always have more to do: others' events come in between, and both get on.
TEST(Pace, FloodsTakeTurnsAndLeaveTimeForOthers) {
  Loop loop;
  Pace pace(loop);
  int pieces[2] = {}, others = 0;
  std::function<void(int)> flood = [&](int who) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++pieces[who];
    loop.Post([&, who] { pace.Run([&, who] { flood(who); }); });
  };
  for (const int who : {0, 1}) pace.Run([&, who] { flood(who); });
  std::function<void()> other = [&] {
    if (++others == 50 || pieces[0] + pieces[1] > 200) return loop.Stop();
    loop.Post(other);
  };
  loop.Post(other);
  loop.Run();
  EXPECT_EQ(others, 50);
  EXPECT_LE(pieces[0] + pieces[1], 50);
}

TEST(Pace, WhatWaitsRunsInOrder) {
  Loop loop;
  Pace pace(loop);
  std::string order;
  pace.Run([&] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  for (const char c : {'a', 'b', 'c'})
    pace.Run([&, c] {
      order += c;
      if (c == 'c') loop.Stop();
    });
  EXPECT_EQ(order, "");
  loop.Run();
  EXPECT_EQ(order, "abc");
}

}  // namespace
}  // namespace hutch::daemon
