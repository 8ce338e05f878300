#include "daemon/loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"

namespace hutch::daemon {
namespace {

TEST(Loop, PostedTasksRunOnTheLoop) {
  Loop loop;
  std::thread other([&] { loop.Post([&] { loop.Stop(); }); });
  loop.Run();
  other.join();
}

TEST(Loop, AnArmedWatchFiresOnceForEachArming) {
  Loop loop;
  Result<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.has_value());
  int fired = 0;
  Watch watch;
  Timer end;
  watch = loop.Add(pipe->read.get(), [&](Ready) {
    if (++fired < 3) watch.Arm(Ready::kReadable);  // still unread: armed again it fires again
  });
  watch.Arm(Ready::kReadable);
  ASSERT_EQ(::write(pipe->write.get(), "x", 1), 1);
  end.Start(loop, Milliseconds(50), [&] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(fired, 3);
}

TEST(Loop, AWatchMayDestroyItselfInItsCallback) {
  Loop loop;
  Result<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.has_value());
  Watch watch;
  watch = loop.Add(pipe->read.get(), [&](Ready) {
    watch.Reset();
    pipe->read.reset();
    loop.Stop();
  });
  watch.Arm(Ready::kReadable);
  pipe->write.reset();
  loop.Run();
  EXPECT_FALSE(watch.active());
}

TEST(Loop, ADescriptorCanBeWatchedAgain) {
  Loop loop;
  Result<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.has_value());
  for (int i = 0; i < 3; ++i) {
    Watch watch = loop.Add(pipe->write.get(), [&](Ready) { loop.Stop(); });
    ASSERT_TRUE(watch.active());
    watch.Arm(Ready::kWritable);
    loop.Run();
  }
}

TEST(Loop, TimersRunInOrderAndCancelledOnesDoNot) {
  Loop loop;
  std::string log;
  Timer late, early, cancelled;
  late.Start(loop, Milliseconds(20), [&] {
    log += "late";
    loop.Stop();
  });
  early.Start(loop, Milliseconds(5), [&] {
    log += "early ";
    cancelled.Cancel();
  });
  cancelled.Start(loop, Milliseconds(10), [&] { log += "never "; });
  loop.Run();
  EXPECT_EQ(log, "early late");
}

TEST(Loop, ATimerMayStartItselfAgain) {
  Loop loop;
  int count = 0;
  Timer timer;
  std::function<void()> tick = [&] {
    if (++count == 3) return loop.Stop();
    timer.Start(loop, Milliseconds(1), tick);
  };
  timer.Start(loop, Milliseconds(1), tick);
  loop.Run();
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace hutch::daemon
