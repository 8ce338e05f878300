#include "tools/live_view.h"

#include <gtest/gtest.h>

namespace hutch::tools {
namespace {

TEST(LiveView, AFrameFitsTheTerminal) {
  EXPECT_EQ(Frame("abcd\nef\n", 24, 80), "\x1b[Habcd\x1b[K\r\nef\x1b[K\r\n\x1b[J");
  EXPECT_EQ(Frame("abcd\nef\ngh\n", 3, 3), "\x1b[Habc\x1b[K\r\nef\x1b[K\r\n\x1b[J");
  EXPECT_EQ(Frame("", 24, 80), "\x1b[H\x1b[J");
}

TEST(LiveView, CharactersAreNotCutInTwo) {
  EXPECT_EQ(Frame("\xc3\xa4\xc3\xb6x\n", 24, 1), "\x1b[H\xc3\xa4\x1b[K\r\n\x1b[J");
  EXPECT_EQ(Frame("\xc3\xa4\xc3\xb6x\n", 24, 2), "\x1b[H\xc3\xa4\xc3\xb6\x1b[K\r\n\x1b[J");
}

}  // namespace
}  // namespace hutch::tools
