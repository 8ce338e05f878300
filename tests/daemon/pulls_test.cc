#include "daemon/pulls.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

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

}  // namespace
}  // namespace hutch::daemon
