#include "daemon/kept_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "daemon/listener.h"
#include "daemon/tcp_listener.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

UniqueFd ListenTcp(std::string* address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_in local {};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&local), sizeof local), 0);
  EXPECT_EQ(::listen(fd.get(), 1), 0);
  *address = *ListeningAddress(fd.get());
  return fd;
}

TEST(KeptSockets, AreKnownByTheirAddresses) {
  const TempDir directory;
  const std::string path = directory / "socket";
  UniqueFd local = *BindSocket(path, "");
  EXPECT_EQ(*ListeningAddress(local.get()), path);
  std::string address;
  UniqueFd tcp = ListenTcp(&address);
  EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
  const int number = tcp.get();
  KeptSockets kept;
  ASSERT_TRUE(kept.Add(std::move(local)).has_value());
  ASSERT_TRUE(kept.Add(std::move(tcp)).has_value());
  EXPECT_TRUE(kept.Has(path));
  EXPECT_FALSE(kept.Take("127.0.0.1:1").valid());
  EXPECT_EQ(kept.Take(address).get(), number);
  EXPECT_FALSE(kept.Take(address).valid()) << "once";
  kept.CloseRest();
  EXPECT_FALSE(kept.Has(path));
}

TEST(KeptSockets, WhatDoesNotListenIsRefused) {
  KeptSockets kept;
  EXPECT_FALSE(kept.Add(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))).has_value());
  EXPECT_FALSE(kept.Add(UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0))).has_value());
  EXPECT_FALSE(kept.Add(*Open("/dev/null", O_RDONLY)).has_value());
}

TEST(KeptSockets, AreHandedOverUntilTheyAreDroppedOrReleased) {
  std::string first, second;
  const UniqueFd one = ListenTcp(&first), two = ListenTcp(&second);
  KeptSockets kept;
  kept.Keep(one.get());
  kept.Keep(two.get());
  EXPECT_EQ(kept.kept().size(), 2u);
  kept.Drop(first);
  EXPECT_EQ(kept.kept().size(), 1u);
  EXPECT_FALSE(kept.stores(second)) << "there is no systemd";
  kept.Release();
  EXPECT_TRUE(kept.kept().empty());
}

}  // namespace
}  // namespace hutch::daemon
