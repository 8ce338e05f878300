#include "base/fd_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/file.h"

namespace hutch {
namespace {

size_t OpenDescriptors() { return ListDirectory("/proc/self/fd")->size(); }

struct FdSocket : testing::Test {
  SocketPair pair = *MakeSeqpacketPair();

  Status Send(std::string_view bytes, std::span<const int> fds = {}) {
    return SendMessage(pair.a.get(), {&bytes, 1}, fds);
  }
};

TEST_F(FdSocket, MessagesKeepTheirBoundaries) {
  ASSERT_TRUE(Send("one").has_value());
  ASSERT_TRUE(Send("two").has_value());
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 100)->bytes, "one");
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 100)->bytes, "two");
}

TEST_F(FdSocket, PartsArriveAsOneMessage) {
  const std::string_view parts[] = {"head", "", "body"};
  ASSERT_TRUE(SendMessage(pair.a.get(), parts, {}).has_value());
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 100)->bytes, "headbody");
}

TEST_F(FdSocket, DescriptorsArriveCloseOnExecAndAreTheSameFile) {
  const auto pipe = MakePipe();
  const int fds[] = {pipe->write.get(), pipe->read.get()};
  ASSERT_TRUE(Send("x", fds).has_value());
  const auto message = ReceiveMessage(pair.b.get(), 10);
  ASSERT_TRUE(message.has_value());
  ASSERT_EQ(message->fds.size(), 2u);
  struct stat sent {
  }, got{};
  ASSERT_EQ(::fstat(pipe->write.get(), &sent), 0);
  ASSERT_EQ(::fstat(message->fds[0].get(), &got), 0);
  EXPECT_EQ(sent.st_ino, got.st_ino);
  for (const UniqueFd& fd : message->fds) EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FdSocket, AMessageTooLongIsDroppedWholeWithItsDescriptors) {
  const int fds[] = {0, 1};
  const size_t before = OpenDescriptors();
  ASSERT_TRUE(Send("twelve bytes", fds).has_value());
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 11).error().code, Code::kTooLarge);
  EXPECT_EQ(OpenDescriptors(), before);
  ASSERT_TRUE(Send("next").has_value());
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 11)->bytes, "next");
}

TEST_F(FdSocket, ADescriptorListTooLongIsDroppedWhole) {
  // A peer that is not ours may send up to SCM_MAX_FD descriptors.
  constexpr size_t kCount = kMaxFdsPerMessage + 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kCount * sizeof(int))] = {};
  char byte = 'x';
  iovec iov{&byte, 1};
  msghdr header{};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  *rights = {CMSG_LEN(kCount * sizeof(int)), SOL_SOCKET,
             SCM_RIGHTS};  // zeros: descriptor 0, many times
  ASSERT_EQ(::sendmsg(pair.a.get(), &header, 0), 1);
  const size_t before = OpenDescriptors();
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 10).error().code, Code::kTooLarge);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(FdSocket, AClosedPeerIsAnEmptyMessageAndABadState) {
  pair.a.reset();
  const auto message = ReceiveMessage(pair.b.get(), 10);
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->bytes.empty() && message->fds.empty());
  const std::string_view bytes = "x";
  EXPECT_EQ(SendMessage(pair.b.get(), {&bytes, 1}, {}).error().code, Code::kBadState);
}

TEST_F(FdSocket, NothingToReadIsUnavailable) {
  EXPECT_EQ(ReceiveMessage(pair.b.get(), 10, MSG_DONTWAIT).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace hutch
