// What hutchd believes of the descriptor that an agent keeps.
#include "runtime/scratch_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "rootfs/overlay.h"
#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {

// A child that keeps `fd` where an agent keeps its scratch (-1: nothing there).
class Keeper {
 public:
  explicit Keeper(int fd) {
    auto ready = MakePipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      const int high = fd < 0 ? -1 : ::fcntl(fd, F_DUPFD, 100);
      const int write_end = ::fcntl(ready->write.get(), F_DUPFD, 100);
      ::close(kScratchFd);
      if (high >= 0) ::dup2(high, kScratchFd);
      const bool told = ::write(write_end, "x", 1) == 1;
      while (told) ::pause();
      ::_exit(1);
    }
    char byte;
    EXPECT_EQ(::read(ready->read.get(), &byte, 1), 1);
    pidfd_ = Pidfd::Open(pid_).value();
  }
  ~Keeper() {
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  }
  const Pidfd& pidfd() const { return pidfd_; }

 private:
  pid_t pid_;
  Pidfd pidfd_;
};

class ScratchViewTest : public testing::Test {
 protected:
  void SetUp() override {
    auto scratch = rootfs::Scratch::Make(1 << 20), other = rootfs::Scratch::Make(1 << 20);
    ASSERT_TRUE(scratch && other);
    scratch_ = std::move(*scratch);
    other_ = std::move(*other);
    ASSERT_EQ(::mkdirat(scratch_.mount_fd(), "m0", 0755), 0);
    auto view = Duplicate(scratch_.mount_fd());
    auto saved = SaveScratch({std::move(*view), {{"m0", "/tmp", false}, {"upper", "/", true}}});
    ASSERT_TRUE(saved.has_value());
    saved_ = *saved;
  }
  Code RefusedWith(int fd) {
    const Keeper keeper(fd);
    const auto taken = TakeUpScratch(keeper.pidfd(), saved_);
    EXPECT_FALSE(taken.has_value());
    return taken ? Code::kInternal : taken.error().code;
  }
  rootfs::Scratch scratch_, other_;
  oci::Json saved_;
};

TEST_F(ScratchViewTest, ItsOwnScratchIsTakenUpWithItsRoots) {
  const Keeper keeper(scratch_.mount_fd());
  const auto taken = TakeUpScratch(keeper.pidfd(), saved_);
  ASSERT_TRUE(taken.has_value()) << taken.error().ToString();
  ASSERT_EQ(taken->roots.size(), 2u);
  EXPECT_EQ(taken->roots[0].target, "/tmp");
  EXPECT_FALSE(taken->roots[0].is_upper);
  EXPECT_TRUE(taken->roots[1].is_upper);
  struct stat st {};
  EXPECT_EQ(::fstatat(taken->fd.get(), "m0", &st, 0), 0);
}

TEST_F(ScratchViewTest, AnAgentCanHandOverNothingElse) {
  const UniqueFd host(::open("/etc", O_PATH | O_CLOEXEC));
  const UniqueFd shm(::open("/dev/shm", O_PATH | O_CLOEXEC));
  auto below = scratch_.OpenDirectory("m0");
  EXPECT_EQ(RefusedWith(host.get()), Code::kCorrupt);
  EXPECT_EQ(RefusedWith(shm.get()), Code::kCorrupt);
  EXPECT_EQ(RefusedWith(other_.mount_fd()), Code::kCorrupt);
  EXPECT_EQ(RefusedWith(below->get()), Code::kCorrupt);
  EXPECT_EQ(RefusedWith(-1), Code::kKernel);
}

}  // namespace
}  // namespace hutch::runtime
