#include "base/pidfd.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hutch {
namespace {

pid_t StartSleeper() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  return pid;
}

TEST(Pidfd, SeesTheEndAndSignalsWithoutComplaintAfterwards) {
  const pid_t pid = StartSleeper();
  const auto process = Pidfd::Open(pid);
  ASSERT_TRUE(process.has_value());
  EXPECT_FALSE(process->HasEnded());
  EXPECT_FALSE(process->WaitEnded(10));
  ASSERT_TRUE(process->Signal(SIGKILL).has_value());
  EXPECT_TRUE(process->WaitEnded(5000));
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(process->HasEnded());
  EXPECT_TRUE(
      process->Signal(SIGKILL).has_value());  // reaped: the pid may be another's, the handle is not
}

TEST(Pidfd, NoSuchProcessIsNotFound) {
  const pid_t pid = StartSleeper();
  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(Pidfd::Open(pid).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace hutch
