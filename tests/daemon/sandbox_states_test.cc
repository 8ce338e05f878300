#include "daemon/sandbox_states.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using S = SandboxState;
using C = MoveCause;

TEST(SandboxStates, OnlyTheMovesOfTheTableAreAllowed) {
  EXPECT_TRUE(MayMove(S::kCreating, S::kRunning, C::kReady));
  EXPECT_FALSE(MayMove(S::kCreating, S::kRunning, C::kRequested));
  EXPECT_FALSE(MayMove(S::kCreating, S::kPaused, C::kRequested));
  EXPECT_TRUE(MayMove(S::kRunning, S::kPaused, C::kIdleTimeout));
  EXPECT_FALSE(MayMove(S::kPaused, S::kExpired, C::kIdleTimeout)) << "nothing idles while paused";
  EXPECT_TRUE(MayMove(S::kPaused, S::kRunning, C::kExec));
}

TEST(SandboxStates, NothingLeadsOutOfAnEndOrBackToTheBeginning) {
  for (const MoveRow& row : Moves()) {
    EXPECT_FALSE(HasEnded(row.from)) << StateName(row.from);
    EXPECT_TRUE(row.to != S::kCreating || row.from == S::kStopped) << StateName(row.from);
    EXPECT_NE(row.from, row.to);
  }
}

TEST(SandboxStates, ACauseLeadsToOneEndFromEachState) {
  for (const MoveRow& row : Moves()) {
    if (!HasEnded(row.to)) continue;
    EXPECT_EQ(EndOf(row.from, row.cause), row.to);
  }
  EXPECT_EQ(EndOf(S::kRunning, C::kLifetime), S::kExpired) << "though it may lead to a pause";
  EXPECT_EQ(EndOf(S::kDestroyed, C::kDeleted), std::nullopt);
}

TEST(SandboxStates, EveryEndCanBeReachedFromWhatLives) {
  for (const S from : {S::kCreating, S::kRunning, S::kPaused})
    EXPECT_EQ(EndOf(from, C::kDeleted), S::kDestroyed);
  for (const S from : {S::kRunning, S::kPaused})
    for (const C cause : {C::kAgentDied, C::kOutOfMemory, C::kTemplateFailed})
      EXPECT_EQ(EndOf(from, cause), S::kFailed);
}

TEST(SandboxStates, NamesComeBack) {
  for (size_t i = 0; i < kSandboxStates; ++i)
    EXPECT_EQ(ParseState(StateName(static_cast<S>(i))), static_cast<S>(i));
  for (const MoveRow& row : Moves()) EXPECT_EQ(ParseMoveCause(CauseName(row.cause)), row.cause);
  EXPECT_EQ(ParseState("stopped"), S::kStopped);
  EXPECT_FALSE(ParseState("started"));
}

TEST(SandboxStates, TheTableIsTheOneInTheDocumentation) {
  const auto docs = ReadFile(std::string(HUTCH_SOURCE_DIR) + "/docs/api.md", 1 << 20);
  ASSERT_TRUE(docs.has_value());
  std::string lines;
  for (const MoveRow& row : Moves()) {
    const std::string line = std::string("| `") + StateName(row.from) + "` | `" +
                             StateName(row.to) + "` | `" + CauseName(row.cause) + "` |";
    EXPECT_NE(docs->find(line), std::string::npos) << line;
  }
}

TEST(SandboxStates, AHistoryKeepsItsBeginningAndItsEndAndComesBack) {
  History history;
  AddToHistory({S::kCreating, C::kRequested, WallTime()}, &history);
  for (size_t i = 0; i < kMaxHistory * 2; ++i)
    AddToHistory({i % 2 == 0 ? S::kRunning : S::kPaused, C::kRequested,
                  WallTime() + std::chrono::seconds(i)},
                 &history);
  ASSERT_EQ(history.size(), kMaxHistory);
  EXPECT_EQ(history.front().state, S::kCreating);
  EXPECT_EQ(history.back().at, WallTime() + std::chrono::seconds(kMaxHistory * 2 - 1));
  EXPECT_EQ(HistoryJson(LoadHistory(HistoryJson(history))), HistoryJson(history));
}

TEST(SandboxStates, WhatIsNoHistoryIsLeftOut) {
  EXPECT_TRUE(LoadHistory(oci::Json(7)).empty());
  const oci::Json mixed = {
      7,
      {{"state", "gone"}, {"cause", "ready"}, {"at", "2026-01-01T00:00:00.000Z"}},
      {{"state", "running"}, {"cause", "ready"}, {"at", "yesterday"}},
      {{"state", "running"}, {"cause", "ready"}, {"at", "2026-01-01T00:00:00.000Z"}}};
  EXPECT_EQ(LoadHistory(mixed).size(), 1u);
}

}  // namespace
}  // namespace hutch::daemon
