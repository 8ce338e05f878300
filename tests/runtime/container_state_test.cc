#include "runtime/container_state.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "runtime/container_namespaces.h"

namespace hutch::runtime {
namespace {

class ContainerStateTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(root_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  char root_[32] = "/tmp/container_state.XXXXXX";
};

TEST_F(ContainerStateTest, WhoWaitedForTheLockOfARemovedOneWaitsForThatOfItsSuccessor) {
  std::optional<ContainerDirectory> first = *ContainerDirectory::Make(root_, "c");
  auto waiting = std::async(std::launch::async, [this] {
    return ContainerDirectory::Open(root_, "c", ContainerDirectory::Lock::kExclusive).has_value();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has the old directory open
  ASSERT_TRUE(first->Remove());
  std::optional<ContainerDirectory> second = *ContainerDirectory::Make(root_, "c");
  first.reset();
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  second.reset();
  EXPECT_TRUE(waiting.get());
}

TEST_F(ContainerStateTest, NamespacesOfAnEndedProcessAreNotThoseOfWhoHasItsNumber) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  Result<Pidfd> process = Pidfd::Open(child);
  ASSERT_TRUE(process);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  UniqueFd fd(::dup(process->fd()));
  const Pidfd reused(std::move(fd), ::getpid());  // our number, as if the kernel had given it again
  const Result<int> flags = NamespacesUnlikeOurs(reused);
  ASSERT_FALSE(flags);
  EXPECT_EQ(flags.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace hutch::runtime
