#include "network/netns.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/file.h"
#include "network/inside.h"

namespace hutch::network {
namespace {

ino_t InodeOf(int fd) {
  struct stat st {};
  EXPECT_EQ(::fstat(fd, &st), 0);
  return st.st_ino;
}

ino_t OwnNetns() {
  const auto fd = Open("/proc/thread-self/ns/net", O_RDONLY);
  return fd ? InodeOf(fd->get()) : 0;
}

TEST(Netns, EachIsNewAndTheThreadIsBackInItsOwn) {
  const ino_t own = OwnNetns();
  const auto a = MakeNetns(), b = MakeNetns();
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ((std::set<ino_t>{own, InodeOf(a->get()), InodeOf(b->get())}).size(), 3u);
  EXPECT_EQ(OwnNetns(), own);
}

TEST(Netns, LoopbackIsUpAndLowPortsAreFree) {
  const auto netns = MakeNetns();
  ASSERT_TRUE(netns.has_value());
  ASSERT_EQ(::setns(netns->get(), CLONE_NEWNET), 0);
  const auto start = ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", 64);
  if (start) {  // a kernel may lack the sysctl
    EXPECT_EQ(*start, "0\n");
  }
  const auto route = ReadFile("/proc/thread-self/net/dev", 4096);
  ASSERT_TRUE(route.has_value());
  EXPECT_NE(route->find("lo:"), std::string::npos);
}

TEST(NetnsPool, HandsOutDistinctOnesFasterThanItFills) {
  const auto pool = NetnsPool::Start(3);
  std::set<ino_t> seen;
  std::vector<UniqueFd> held;
  for (int i = 0; i < 8; ++i) {
    auto netns = pool->Take();
    ASSERT_TRUE(netns.has_value());
    seen.insert(InodeOf(netns->get()));
    held.push_back(std::move(*netns));
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(NetnsPool, WhatIsMadeFromNowOnIsOfTheKindPreferred) {
  const auto pool = NetnsPool::Start(2);
  const auto plain = pool->Take();
  ASSERT_TRUE(plain.has_value());
  EXPECT_FALSE(ReadCatch(plain->get()).has_value());
  pool->Prefer(NetnsKind::kCatch);
  bool prepared = false;
  for (int i = 0; i < 500 && !prepared; ++i) {
    while (pool->ready() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto netns = pool->Take();
    ASSERT_TRUE(netns.has_value());
    prepared = ReadCatch(netns->get()).has_value();
  }
  EXPECT_TRUE(prepared);
}

TEST(NetnsPool, LeavesSignalsToTheProgram) {
  const auto pool = NetnsPool::Start(2);
  sigset_t term, pending;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &term, nullptr), 0);
  ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);  // would end us if the pool's thread took it
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(sigismember(&pending, SIGTERM), 1);
}

}  // namespace
}  // namespace hutch::network
