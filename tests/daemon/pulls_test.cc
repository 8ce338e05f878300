#include "daemon/pulls.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;

constexpr char kName[] = "registry.example:5000/team/app:1";
constexpr char kCreateIt[] = R"({"image":"registry.example:5000/team/app:1"})";
constexpr char kPullIt[] = R"({"reference":"registry.example:5000/team/app:1"})";

// A registry whose pulls end when the test says so, or when they are cancelled.
class PullsTest : public DaemonTest {
 protected:
  PullsTest() {
    run_pull_ = [this](const rootfs::PullRequest& request, const rootfs::ProgressFn& progress,
                       const std::atomic<bool>& cancelled) -> Result<rootfs::Image> {
      std::unique_lock lock(mutex_);
      requests_.push_back(request);
      progress({.stage = "download", .subject = "sha256:1", .done = 1, .total = 2});
      while (!ended_.wait_for(lock, std::chrono::milliseconds(1), [&] { return may_end_; }))
        if (cancelled) {
          ++cancelled_;
          return Error{.code = Code::kUnavailable, .what = "cancelled"};
        }
      if (fails_with_) return *fails_with_;
      store_.image.references = {request.reference.ToString()};
      return store_.image;
    };
  }
  ~PullsTest() override { LetEnd(); }

  void LetEnd() {
    const std::lock_guard lock(mutex_);
    may_end_ = true;
    ended_.notify_all();
  }
  size_t begun() {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool may_end_ = false;
  int cancelled_ = 0;
  std::optional<Error> fails_with_;
  std::vector<rootfs::PullRequest> requests_;
};

TEST_F(PullsTest, AMissingImageIsPulledOnceForAllWhoWantIt) {
  StartSandboxes();
  const auto first = Begin("POST", "/v1/sandboxes", kCreateIt);
  const auto second = Begin("POST", "/v1/sandboxes", kCreateIt);
  const auto third = Begin("POST", "/v1/images/pull", kPullIt);
  RunUntil([&] { return begun() == 1; });
  EXPECT_FALSE(first->done());
  LetEnd();
  RunUntil([&] { return first->done() && second->done() && third->done(); });
  EXPECT_EQ(first->json()["image"], kName);
  EXPECT_EQ(second->status(), 201) << second->reply->body;
  EXPECT_EQ(third->json()["references"][0], kName);
  EXPECT_EQ(begun(), 1u);
  EXPECT_EQ(pulls_.under_way(), 0u);
  EXPECT_EQ(Call("POST", "/v1/sandboxes", kCreateIt)->status(), 201);  // it is here now
  EXPECT_EQ(begun(), 1u);
}

TEST_F(PullsTest, NeverAndAlwaysMeanWhatTheySay) {
  LetEnd();
  StartSandboxes();
  const auto never = Call("POST", "/v1/sandboxes",
                          R"({"image":"registry.example:5000/team/app:1","pull":"never"})");
  EXPECT_EQ(never->code(), "not_found");
  EXPECT_EQ(begun(), 0u);
  const char* always = R"({"image":"registry.example:5000/team/app:1","pull":"always"})";
  EXPECT_EQ(Call("POST", "/v1/sandboxes", always)->status(), 201);
  EXPECT_EQ(Call("POST", "/v1/sandboxes", always)->status(), 201);
  EXPECT_EQ(begun(), 2u);
  EXPECT_EQ(
      Call("POST", "/v1/sandboxes", R"({"image":"x","pull":"often"})")->json()["error"]["field"],
      "pull");
}

TEST_F(PullsTest, ANameWithoutARegistryIsOnlyPulledFromTheDefaultOne) {
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"image":"app"})")->code(), "not_found");
  EXPECT_EQ(Call("POST", "/v1/images/pull", R"({"reference":"app"})")->code(), "invalid_argument");
  EXPECT_EQ(begun(), 0u);
  LetEnd();
  config_.registries.default_registry = "registry.example";
  EXPECT_EQ(Call("POST", "/v1/images/pull", R"({"reference":"team/app"})")->status(), 201);
  EXPECT_EQ(requests_.at(0).reference.ToString(), "registry.example/team/app:latest");
}

TEST_F(PullsTest, RegistriesThatAreNotAllowedAreNotAsked) {
  config_.allowed_registries = {"other.example"};
  EXPECT_EQ(Call("POST", "/v1/images/pull", kPullIt)->code(), "forbidden");
  const auto create = Call("POST", "/v1/sandboxes", kCreateIt);
  EXPECT_EQ(create->code(), "forbidden");
  EXPECT_EQ(create->json()["error"]["field"], "image");
  EXPECT_EQ(begun(), 0u);
}

TEST_F(PullsTest, AFailedPullSaysWhyTheSandboxIsNotMade) {
  fails_with_ = Error{.code = Code::kForbidden, .what = "registry.example:5000 wants a login"};
  LetEnd();
  const auto create = Call("POST", "/v1/sandboxes", kCreateIt);
  EXPECT_EQ(create->code(), "forbidden");
  EXPECT_THAT(create->reply->body, HasSubstr("wants a login"));
  EXPECT_EQ(create->json()["error"]["field"], "image");
  EXPECT_EQ(Call("GET", "/v1/sandboxes")->json()["sandboxes"].size(), 0u);
}

TEST_F(PullsTest, OnlyAPullThatNobodyWaitsForIsCancelled) {
  const auto first = Begin("POST", "/v1/images/pull", kPullIt);
  const auto second = Begin("POST", "/v1/sandboxes", kCreateIt);
  RunUntil([&] { return begun() == 1; });
  first->hangup();
  RunUntil([&] { return pulls_.under_way() == 1; });
  EXPECT_EQ(cancelled_, 0);
  second->hangup();
  RunUntil([&] { return pulls_.under_way() == 0; });
  EXPECT_EQ(cancelled_, 1);
  LetEnd();
  EXPECT_EQ(Call("POST", "/v1/images/pull", kPullIt)->status(), 201);  // begins anew
  EXPECT_EQ(begun(), 2u);
}

TEST_F(PullsTest, CredentialsOfOneClientServeNobodyElse) {
  const auto first =
      Begin("POST", "/v1/images/pull",
            R"({"reference":"registry.example:5000/team/app:1","username":"u","password":"p"})");
  const auto second = Begin("POST", "/v1/images/pull", kPullIt);
  RunUntil([&] { return begun() == 2; });
  LetEnd();
  RunUntil([&] { return first->done() && second->done(); });
  EXPECT_EQ(Call("POST", "/v1/images/pull",
                 R"({"reference":"registry.example:5000/team/app:1","username":"u"})")
                ->json()["error"]["field"],
            "password");
}

TEST_F(PullsTest, ALateListenerHearsHowFarItIs) {
  wants_events_ = true;
  const auto first = Begin("POST", "/v1/images/pull", kPullIt);
  RunUntil([&] { return first->events.size() == 1; });
  const auto late = Begin("POST", "/v1/sandboxes", kCreateIt);
  EXPECT_EQ(late->events, first->events);
  LetEnd();
  RunUntil([&] { return late->done(); });
  EXPECT_EQ(late->events.back().first, "result");
}

// --- listeners that leave while they are told

class ListenersTest : public DaemonTest {
 protected:
  void SetUp() override {
    run_pull_ = [this](const rootfs::PullRequest&, const rootfs::ProgressFn& progress,
                       const std::atomic<bool>&) -> Result<rootfs::Image> {
      ++begun_;
      progress({.stage = "download", .subject = "sha256:1", .done = 1, .total = 2});
      while (!may_end_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return store_.image;
    };
  }
  ~ListenersTest() override { may_end_ = true; }
  Pulls::Ticket Join(std::function<void()> progress, std::function<void()> done,
                     const std::string& name = kName) {
    rootfs::PullRequest request;
    request.reference = *rootfs::ParseReference(name, "");
    const Result<Pulls::Ticket> ticket =
        pulls_.Join(request, {.progress = [progress](const rootfs::Progress&) { progress(); },
                              .done = [done](const Result<rootfs::Image>&) { done(); }});
    EXPECT_TRUE(ticket.has_value());
    return ticket.has_value() ? *ticket : 0;
  }
  std::atomic<int> begun_ = 0;
  std::atomic<bool> may_end_ = false;
};

TEST_F(ListenersTest, OneThatHearsProgressMayLeaveAndTakeOthersAlong) {
  Pulls::Ticket first = 0, second = 0;
  int told = 0, second_told = 0;
  const std::string kept(100, 'k');  // is gone with the listener, if that is not kept
  first = Join(
      [&, kept] {
        pulls_.Leave(second);
        pulls_.Leave(first);
        told += kept == std::string(100, 'k') ? 1 : 100;
      },
      [] { ADD_FAILURE(); });
  second = Join([&] { ++second_told; }, [] { ADD_FAILURE(); });
  RunUntil([&] { return told == 1; });
  may_end_ = true;
  RunUntil([&] { return pulls_.under_way() == 0; });
  EXPECT_EQ(told, 1);
  EXPECT_EQ(second_told, 0);
}

TEST_F(ListenersTest, OneThatHearsTheEndMayTakeOthersAlong) {
  Pulls::Ticket second = 0;
  int ended = 0;
  Join([] {},
       [&] {
         ++ended;
         pulls_.Leave(second);
       });
  second = Join([] {}, [] { ADD_FAILURE(); });
  may_end_ = true;
  RunUntil([&] { return pulls_.under_way() == 0; });
  EXPECT_EQ(ended, 1);
}

TEST_F(ListenersTest, AQueuedPullThatNobodyWaitsForKeepsNoPlace) {
  const auto name = [](size_t i) { return "registry.example/app:" + std::to_string(i); };
  for (size_t i = 0; i < kPullsAtOnce; ++i) Join([] {}, [] {}, name(i));
  RunUntil([&] { return begun_ == static_cast<int>(kPullsAtOnce); });
  for (size_t i = 0; i < 2 * kMaxQueuedJobs; ++i) {
    const Pulls::Ticket ticket = Join([] {}, [] { ADD_FAILURE(); }, name(100 + i));
    ASSERT_NE(ticket, 0u) << i;
    pulls_.Leave(ticket);
    EXPECT_EQ(pulls_.under_way(), kPullsAtOnce);
  }
  may_end_ = true;
  RunUntil([&] { return pulls_.under_way() == 0; });
  EXPECT_EQ(begun_, static_cast<int>(kPullsAtOnce));
}

// A client that is found gone as it is told how far the pull is.
struct GoneAnswer final : ReplySink {
  std::shared_ptr<Answer> rest = std::make_shared<Answer>();
  void SendReply(Reply r) override { rest->SendReply(std::move(r)); }
  void SetHangupHandler(std::function<void()> handler) override { hangup = std::move(handler); }
  void ReceiveBody(UniqueFd, StreamDone) override {}
  void SendStream(StreamHead, UniqueFd, StreamDone) override {}
  void StartEvents() override {}
  void SendEvent(std::string_view, std::string, std::string_view) override {
    if (const auto handler = std::exchange(hangup, nullptr)) handler();
  }
  void EndEvents() override {}
  bool Congested() const override { return false; }
  void OnDrained(std::function<void()>) override {}
  Status StartWebSocket(WebSocketHandler) override { return OkStatus(); }
  void SendMessage(bool, std::string) override {}
  void PauseMessages(bool) override {}
  void CloseWebSocket(uint16_t, std::string) override {}
  std::function<void()> hangup;
};

TEST_F(ListenersTest, AClientThatGoesWhileItHearsHowFarItIsLeavesNothingBehind) {
  StartSandboxes();
  int told = 0;
  const Pulls::Ticket first = Join([&] { ++told; }, [] {});
  RunUntil([&] { return told == 1; });
  for (const char* path : {"/v1/sandboxes", "/v1/images/pull"}) {
    Request request;
    request.method = "POST";
    request.path = path;
    request.body = request.path == "/v1/sandboxes" ? kCreateIt : kPullIt;
    request.wants_events = true;
    Dispatch(api_, std::move(request), Responder(std::make_shared<GoneAnswer>()));
  }
  pulls_.Leave(first);  // the last one
  may_end_ = true;
  RunUntil([&] { return pulls_.under_way() == 0; });
  RunUntil([n = 0]() mutable { return ++n > 5; });
  EXPECT_TRUE(runtime_.requests.empty());
  EXPECT_EQ(Call("GET", "/v1/sandboxes")->json()["sandboxes"].size(), 0u);
}

}  // namespace
}  // namespace hutch::daemon
