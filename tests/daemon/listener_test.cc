#include "daemon/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "daemon/kept_sockets.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

TEST(Listener, OneDaemonForARunDirectory) {
  const TempDir directory;
  Result<UniqueFd> first = LockRunDirectory(directory / "run");
  ASSERT_TRUE(first.has_value());
  const Result<UniqueFd> second = LockRunDirectory(directory / "run");
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kExists);
  first->reset();
  EXPECT_TRUE(LockRunDirectory(directory / "run").has_value());
}

TEST(Listener, AStaleSocketIsReplacedAndAFileIsNot) {
  const TempDir directory;
  const std::string path = directory / "socket";
  ASSERT_TRUE(BindSocket(path, "").has_value());
  const Result<UniqueFd> again = BindSocket(path, "no-such-group");
  ASSERT_TRUE(again.has_value()) << again.error().what;
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0660u);
  ASSERT_TRUE(WriteFileAtomic(directory / "file", "precious", Durability::kMemory).has_value());
  EXPECT_FALSE(BindSocket(directory / "file", "").has_value());
  EXPECT_TRUE(PathExists(directory / "file"));
  EXPECT_FALSE(BindSocket(directory / std::string(200, 'x'), "").has_value());
}

TEST(Listener, PassedSocketsAreForTheProcessNamedOnly) {
  ::setenv("LISTEN_PID", "1", 1);
  ::setenv("LISTEN_FDS", "1", 1);
  KeptSockets kept;
  ASSERT_TRUE(kept.TakePassed().has_value());
  EXPECT_FALSE(kept.TakeActivated().has_value());
  EXPECT_EQ(::getenv("LISTEN_FDS"), nullptr);
}

TEST(Listener, SystemdIsToldByADatagram) {
  const TempDir directory;
  const std::string path = directory / "notify";
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(
      ::bind(socket.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0);
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(NotifySystemd("READY=1").has_value());
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  EXPECT_TRUE(NotifySystemd("READY=1").has_value());
  char buffer[64];
  const ssize_t count = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  EXPECT_EQ(std::string_view(buffer, static_cast<size_t>(std::max<ssize_t>(count, 0))), "READY=1");
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace hutch::daemon
