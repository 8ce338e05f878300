#include "daemon/events.h"

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

TEST(EventLog, NumbersGoUpAndKindsAreNamed) {
  EventLog log;
  EXPECT_EQ(log.After(0), nullptr);
  log.Append({.kind = EventKind::kSandboxRunning, .sandbox = "a"});
  log.Append({.kind = EventKind::kExecFinished, .sandbox = "a"});
  log.Append({.kind = EventKind::kSandboxDestroyed, .sandbox = "a"});
  std::vector<std::string> names;
  for (const Event* event = log.After(0); event != nullptr; event = log.After(event->number))
    names.push_back(std::to_string(event->number) + EventKindName(event->kind));
  EXPECT_EQ(Join(names, " "), "1sandbox.running 2exec.finished 3sandbox.destroyed");
  for (size_t i = 0; i < kEventKinds; ++i) {
    const auto kind = static_cast<EventKind>(i);
    EXPECT_EQ(ParseEventKind(EventKindName(kind)), kind);
  }
  EXPECT_FALSE(ParseEventKind("sandbox").has_value());
}

TEST(EventLog, WhatIsKeptIsBoundedAndLossIsCounted) {
  EventLog log;
  const EventFilter all;
  for (size_t i = 0; i < kMaxKeptEvents; ++i) log.Append({.kind = EventKind::kExecFinished});
  EXPECT_EQ(log.LostAfter(0, all), 0u);
  for (size_t i = 0; i < 10; ++i) log.Append({.kind = EventKind::kExecFinished});
  EXPECT_EQ(log.LostAfter(0, all), 10u);
  EXPECT_EQ(log.LostAfter(4, all), 6u);
  EXPECT_EQ(log.LostAfter(10, all), 0u);
  EXPECT_EQ(log.After(0)->number, 11u);
}

TEST(EventLog, AFloodOfWhatATenantCausesKeepsTheRest) {
  EventLog log;
  log.Append({.kind = EventKind::kSandboxRunning});
  for (size_t i = 0; i < 2 * kMaxKeptEvents; ++i) log.Append({.kind = EventKind::kNetworkDenied});
  EXPECT_EQ(log.After(0)->kind, EventKind::kSandboxRunning);
  EXPECT_EQ(log.LostAfter(0, {.kinds = {EventKind::kSandboxRunning}}), 0u);
  EXPECT_EQ(log.LostAfter(0, {.kinds = {EventKind::kNetworkDenied}}), kMaxKeptEvents);
}

TEST(EventLog, DetailsAreBounded) {
  EXPECT_EQ(EventDetail({{"a", 1}}), R"({"a":1})");
  const std::string long_text(kMaxEventDetailBytes, 'x');
  EXPECT_EQ(EventDetail({{"a", long_text}}), R"({"too_long":true})");
}

TEST(EventLog, CursorsAreOfOneRun) {
  const EventLog one, other;
  EXPECT_NE(one.run(), other.run());
  const std::string text = FormatCursor({.run = 0x0123456789abcdef, .number = 42});
  EXPECT_EQ(text, "0123456789abcdef-42");
  const auto cursor = ParseCursor(text);
  ASSERT_TRUE(cursor.has_value());
  EXPECT_EQ(cursor->run, 0x0123456789abcdefu);
  EXPECT_EQ(cursor->number, 42u);
  for (const char* wrong :
       {"", "42", "0123456789abcdef-", "0123456789ABCDEF-1", "0123456789abcdef-x",
        "0123456789abcdef1", "123456789abcdef-1", "0123456789abcdef--1"})
    EXPECT_FALSE(ParseCursor(wrong).has_value()) << wrong;
}

TEST(EventFilter, AllThatIsAskedForMustFit) {
  const Event event{.kind = EventKind::kSandboxRunning,
                    .sandbox = "sb-1",
                    .name = "box",
                    .labels = LabelHashes({{"team", "a"}, {"x", "y"}})};
  EXPECT_TRUE(EventFilter{}.Fits(event));
  EXPECT_TRUE((EventFilter{.sandboxes = {"other", "box"}}.Fits(event)));
  EXPECT_FALSE(EventFilter{.sandboxes = {"other"}}.Fits(event));
  EXPECT_TRUE((EventFilter{.labels = {LabelHash("team=a"), LabelHash("x=y")}}.Fits(event)));
  EXPECT_FALSE((EventFilter{.labels = {LabelHash("team=a"), LabelHash("x=z")}}.Fits(event)));
  EXPECT_FALSE(EventFilter{.kinds = {EventKind::kSandboxDestroyed}}.Fits(event));
  EXPECT_FALSE((EventFilter{.since = event.at + std::chrono::seconds(1)}.Fits(event)));
  EXPECT_FALSE(EventFilter{.sandboxes = {""}}.Fits(Event{}));
}

class EventRequestTest : public DaemonTest {
 protected:
  static std::vector<std::string> Kinds(const oci::Json& page) {
    std::vector<std::string> kinds;
    for (const oci::Json& event : page["events"]) kinds.push_back(event["kind"]);
    return kinds;
  }
  std::shared_ptr<Answer> Follow(const std::string& query = "") {
    auto answer = Begin("GET", "/v1/events?follow=true" + query);
    followers_.push_back(answer);
    return answer;
  }
  // An answer that is never ended would keep itself alive.
  ~EventRequestTest() override {
    for (const auto& follower : followers_)
      if (follower->hangup) std::exchange(follower->hangup, nullptr)();
  }
  std::vector<std::shared_ptr<Answer>> followers_;
};

TEST_F(EventRequestTest, ALifeIsToldInOrder) {
  StartSandboxes();
  const auto follower = Follow();
  const std::string id = Create(R"(,"name":"box","labels":{"team":"a"})");
  Call("DELETE", "/v1/sandboxes/" + id);
  RunUntil([&] { return follower->events.size() >= 4; });
  EXPECT_EQ(follower->events[0].first, "following");
  EXPECT_EQ(follower->events[1].first, "sandbox.creating");
  EXPECT_EQ(follower->events[2].first, "sandbox.running");
  EXPECT_EQ(follower->events[3].first, "sandbox.destroyed");
  const oci::Json page = Call("GET", "/v1/events")->json();
  EXPECT_EQ(Join(Kinds(page), " "), "sandbox.creating sandbox.running sandbox.destroyed");
  EXPECT_EQ(page["events"][2]["name"], "box");
  EXPECT_EQ(page["events"][2]["sandbox"], id);
  EXPECT_EQ(page["events"][2]["detail"], oci::Json({{"cause", "deleted"}}));
  EXPECT_EQ(page["lost"], nullptr);
  EXPECT_EQ(page["events"][2]["cursor"], page["next_cursor"]);
  EXPECT_EQ(Call("GET", "/v1/events?label=team=a")->json()["events"].size(), 3u);
  EXPECT_EQ(Call("GET", "/v1/events?label=team=b")->json()["events"].size(), 0u);
  EXPECT_EQ(Call("GET", "/v1/events?kind=sandbox.destroyed")->json()["events"].size(), 1u);
}

TEST_F(EventRequestTest, OneThatCannotBeMadeIsToldWithTheReason) {
  StartSandboxes();
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "the disk is full"};
  Call("POST", "/v1/sandboxes", R"({"image":"busybox"})");
  const oci::Json page = Call("GET", "/v1/events")->json();
  EXPECT_EQ(Join(Kinds(page), " "), "sandbox.creating sandbox.failed");
  EXPECT_EQ(page["events"][1]["detail"]["error"]["code"], "no_space");
}

TEST_F(EventRequestTest, PagesAreBoundedAndFollowEachOther) {
  for (size_t i = 0; i < kMaxEventPage + 5; ++i)
    watching_.events().Append({.kind = EventKind::kImageDeleted});
  const oci::Json first = Call("GET", "/v1/events")->json();
  EXPECT_EQ(first["events"].size(), kMaxEventPage);
  const std::string cursor = first["next_cursor"];
  const oci::Json second = Call("GET", "/v1/events?cursor=" + cursor)->json();
  EXPECT_EQ(second["events"].size(), 5u);
  EXPECT_EQ(Call("GET", "/v1/events?cursor=" + std::string(second["next_cursor"]))
                ->json()["events"]
                .size(),
            0u);
}

TEST_F(EventRequestTest, ACursorOfAnEarlierDaemonIsNeverMisread) {
  watching_.events().Append({.kind = EventKind::kDaemonStarted});
  const std::string old = FormatCursor({.run = watching_.events().run() ^ 1, .number = 1});
  const oci::Json page = Call("GET", "/v1/events?cursor=" + old)->json();
  EXPECT_EQ(page["lost"], oci::Json({{"events", nullptr}, {"restarted", true}}));
  EXPECT_EQ(Join(Kinds(page), " "), "daemon.started");
  const std::string future = FormatCursor({.run = watching_.events().run(), .number = 2});
  EXPECT_EQ(Call("GET", "/v1/events?cursor=" + future)->code(), "invalid_argument");
  const oci::Json since = Call("GET", "/v1/events?since=2001-01-01T00:00:00.000Z")->json();
  EXPECT_EQ(since["lost"]["restarted"], true);
}

TEST_F(EventRequestTest, QueriesAreChecked) {
  for (const char* query : {"kind=nothing", "since=yesterday", "label=x", "label==x", "cursor=1",
                            "follow=maybe", "other=1"})
    EXPECT_EQ(Call("GET", std::string("/v1/events?") + query)->code(), "invalid_argument") << query;
}

TEST_F(EventRequestTest, FollowersAreBounded) {
  for (size_t i = 0; i < kMaxEventFollowers; ++i) EXPECT_FALSE(Follow()->reply.has_value());
  EXPECT_EQ(Follow()->code(), "limit");
  std::exchange(followers_[0]->hangup, nullptr)();
  EXPECT_FALSE(Follow()->reply.has_value());
}

TEST_F(EventRequestTest, ASlowReaderIsToldWhatItLost) {
  const auto follower = Follow();
  RunUntil([&] { return !follower->events.empty(); });
  follower->congested = true;
  for (size_t i = 0; i < kMaxKeptEvents + 7; ++i)
    watching_.events().Append({.kind = EventKind::kExecFinished});
  RunUntil([&] { return follower->drained != nullptr; });
  EXPECT_EQ(follower->events.size(), 1u);  // nothing was kept for it
  follower->congested = false;
  std::exchange(follower->drained, nullptr)();
  RunUntil([&] { return follower->events.size() == kMaxKeptEvents + 2; });
  EXPECT_EQ(follower->events[1].first, "lost");
  EXPECT_EQ(follower->events[1].second, R"({"events":7,"restarted":false})");
  EXPECT_EQ(follower->events.back().first, "exec.finished");
}

TEST_F(EventRequestTest, FollowersEndWithTheDaemonSlowOnesToo) {
  const auto follower = Follow(), slow = Follow();
  RunUntil([&] { return !slow->events.empty(); });
  slow->congested = true;
  watching_.events().Append({.kind = EventKind::kExecFinished});
  RunUntil([&] { return slow->drained != nullptr; });
  watching_.DaemonStops();
  RunUntil([&] { return follower->ended && slow->ended; });
  EXPECT_EQ(follower->events.back().first, "daemon.stopping");
  EXPECT_EQ(Follow()->code(), "unavailable");
}

}  // namespace
}  // namespace hutch::daemon
