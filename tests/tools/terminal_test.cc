#include "tools/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/unique_fd.h"

namespace hutch::tools {
namespace {

TEST(DetachKeys, OnlyBothKeysInARowDetach) {
  DetachKeys keys;
  EXPECT_EQ(keys.Feed("a\x10"), "a");
  EXPECT_TRUE(keys.waits());
  EXPECT_EQ(keys.Feed("b"),
            "\x10"
            "b");
  EXPECT_EQ(keys.Feed("\x11"), "\x11");
  EXPECT_FALSE(keys.detached());
  EXPECT_EQ(keys.Feed("c\x10\x10"), "c\x10");
  EXPECT_EQ(keys.Feed("\x11rest"), "");
  EXPECT_TRUE(keys.detached());
}

TEST(DetachKeys, TheFirstKeyAloneIsPassedOnLater) {
  DetachKeys keys;
  EXPECT_EQ(keys.Feed("\x10"), "");
  EXPECT_EQ(keys.TakeWaiting(), "\x10");
  EXPECT_FALSE(keys.waits());
  EXPECT_EQ(keys.TakeWaiting(), "");
  EXPECT_EQ(keys.Feed("\x11"), "\x11");
}

TEST(RawMode, TheFormerModeComesBack) {
  const UniqueFd main(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::grantpt(main.get()), 0);
  ASSERT_EQ(::unlockpt(main.get()), 0);
  const UniqueFd side(::open(::ptsname(main.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(side.valid());
  const winsize size = {.ws_row = 7, .ws_col = 9, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(side.get(), TIOCSWINSZ, &size), 0);
  EXPECT_EQ(SizeOfTerminal(side.get()).rows, 7);
  EXPECT_EQ(SizeOfTerminal(side.get()).columns, 9);
  termios before = {}, during = {}, after = {};
  ASSERT_EQ(::tcgetattr(side.get(), &before), 0);
  {
    RawMode raw(side.get());
    ASSERT_TRUE(raw.Enter());
    ASSERT_EQ(::tcgetattr(side.get(), &during), 0);
    raw.Leave();
    ASSERT_TRUE(raw.Enter());
  }
  ASSERT_EQ(::tcgetattr(side.get(), &after), 0);
  EXPECT_EQ(during.c_lflag & (ICANON | ECHO | ISIG), 0u);
  EXPECT_EQ(before.c_lflag, after.c_lflag);
  EXPECT_EQ(before.c_iflag, after.c_iflag);
  EXPECT_EQ(before.c_oflag, after.c_oflag);
}

TEST(RawMode, WhatIsNoTerminalIsRefused) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  RawMode raw(null.get());
  EXPECT_FALSE(raw.Enter());
  EXPECT_EQ(SizeOfTerminal(null.get()).rows, 24);
}

}  // namespace
}  // namespace hutch::tools
