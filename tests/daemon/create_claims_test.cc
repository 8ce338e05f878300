#include "daemon/create_claims.h"

#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;

class CreateClaimsTest : public testing::Test {
 protected:
  static CreateKeys Keys(const std::string& session, const std::string& idempotency,
                         const std::string& image = "a", uint32_t owner = 1) {
    return {.owner = owner,
            .session = session,
            .idempotency = idempotency,
            .digests = {{"image", image}, {"session_key", session}}};
  }
  bool UnderWay(const CreateKeys& keys) {
    const auto found = claims_.Find(keys);
    return found.has_value() && found->under_way != nullptr;
  }
  static WallTime Now() { return std::chrono::system_clock::now(); }

  CreateClaims claims_;
};

TEST_F(CreateClaimsTest, AreFoundByEitherKeyUntilTheyEnd) {
  auto claim = claims_.Claim(Keys("s", "i"));
  EXPECT_TRUE(UnderWay(Keys("s", "")));
  EXPECT_TRUE(UnderWay(Keys("s", "i")));
  EXPECT_TRUE(UnderWay(Keys("s", "other")));
  EXPECT_FALSE(UnderWay(Keys("t", "")));
  EXPECT_FALSE(UnderWay(Keys("s", "i", "a", 2)));  // another user's
  claim.reset();
  EXPECT_FALSE(UnderWay(Keys("s", "i")));
}

TEST_F(CreateClaimsTest, AnotherRequestIsAConflictWithTheField) {
  const auto claim = claims_.Claim(Keys("s", "i"));
  EXPECT_EQ(claims_.Find(Keys("s", "", "b")).error().field, "image");
  EXPECT_EQ(claims_.Find(Keys("", "i", "a")).error().code, Code::kExists);
  EXPECT_EQ(claims_.Find(Keys("", "i", "a")).error().field, "session_key");
}

TEST_F(CreateClaimsTest, AllThatWaitAreTold) {
  const auto claim = claims_.Claim(Keys("s", "i"));
  std::vector<int> told;
  claim->Wait([&](const CreateAnswer& answer) { told.push_back(answer.status); });
  claim->Wait([&](const CreateAnswer& answer) {
    told.push_back(answer.status);
    EXPECT_EQ((*answer.body)["id"], "sb-1");
    EXPECT_FALSE(UnderWay(Keys("s", "")));  // the keys are free by then
  });
  claim->Finish(201, {{"id", "sb-1"}});
  claim->Finish(500, Json::object());
  EXPECT_EQ(told, (std::vector<int>{201, 201}));
}

TEST_F(CreateClaimsTest, ThoseWhoWaitForOneThatIsGivenUpAreTold) {
  auto claim = claims_.Claim(Keys("s", ""));
  int status = 0;
  claim->Wait([&](const CreateAnswer& answer) { status = answer.status; });
  claim.reset();
  EXPECT_EQ(status, 503);
}

TEST_F(CreateClaimsTest, TheLastToLeaveIsTold) {
  auto claim = claims_.Claim(Keys("s", ""));
  int alone = 0;
  claim->OnAlone([&] {
    ++alone;
    claim.reset();
  });
  const auto held = claim;
  const uint64_t one = claim->Wait([](const CreateAnswer&) {});
  const uint64_t two = claim->Wait([](const CreateAnswer&) {});
  EXPECT_TRUE(claim->awaited());
  held->Leave(one);
  EXPECT_EQ(alone, 0);
  held->Leave(one);
  held->Leave(two);
  held->Leave(two);
  EXPECT_EQ(alone, 1);
}

TEST_F(CreateClaimsTest, ASuccessIsAnsweredAgainAndAFailureIsNot) {
  claims_.Claim(Keys("", "good"))->Finish(201, {{"id", "sb-1"}});
  claims_.Claim(Keys("", "bad"))->Finish(500, {{"error", Json::object()}});
  claims_.Claim(Keys("s", ""))->Finish(201, {{"id", "sb-2"}});
  const auto found = claims_.Find(Keys("", "good"));
  ASSERT_TRUE(found.has_value() && found->answer);
  EXPECT_EQ(found->answer->status, 201);
  EXPECT_EQ((*found->answer->body)["id"], "sb-1");
  EXPECT_FALSE(claims_.Find(Keys("", "bad"))->answer);
  EXPECT_FALSE(claims_.Find(Keys("s", ""))->answer);
  EXPECT_EQ(claims_.Find(Keys("", "good", "b")).error().field, "image");
  EXPECT_FALSE(claims_.Find(Keys("", "good", "b", 2))->answer);
  EXPECT_EQ(claims_.remembered(), 1u);
}

TEST_F(CreateClaimsTest, KeptAnswersAreBounded) {
  for (size_t i = 0; i < kMaxKeptAnswers + 10; ++i)
    claims_.Remember(Keys("", std::to_string(i)), 201, {{"id", i}}, Now());
  EXPECT_EQ(claims_.remembered(), kMaxKeptAnswers);
  EXPECT_FALSE(claims_.Find(Keys("", "9"))->answer);
  EXPECT_TRUE(claims_.Find(Keys("", "10"))->answer);
  const Json large = {{"env", std::string(1u << 20, 'x')}};
  for (size_t i = 0; i < 2 * kMaxKeptAnswerBytes / (1u << 20); ++i)
    claims_.Remember(Keys("", "large" + std::to_string(i)), 201, large, Now());
  EXPECT_LT(claims_.remembered(), kMaxKeptAnswerBytes / (1u << 20));
  EXPECT_GT(claims_.remembered(), 0u);
}

TEST_F(CreateClaimsTest, OldAnswersAreForgotten) {
  claims_.Remember(Keys("", "old"), 201, Json::object(), Now() - kKeptAnswerTime);
  claims_.Remember(Keys("", "new"), 201, Json::object(),
                   Now() - kKeptAnswerTime + std::chrono::hours(1));
  EXPECT_FALSE(claims_.Find(Keys("", "old"))->answer);
  EXPECT_TRUE(claims_.Find(Keys("", "new"))->answer);
}

TEST_F(CreateClaimsTest, OneKeptAgainIsNotForgottenWithItsOldSelf) {
  for (int i = 0; i < 3; ++i) claims_.Remember(Keys("", "k"), 201, {{"id", i}}, Now());
  EXPECT_EQ(claims_.remembered(), 1u);
  EXPECT_EQ((*claims_.Find(Keys("", "k"))->answer->body)["id"], 2);
}

TEST_F(CreateClaimsTest, AClaimMayOutliveThem) {
  auto claims = std::make_unique<CreateClaims>();
  const auto claim = claims->Claim(Keys("s", "i"));
  claims.reset();
  claim->Finish(201, Json::object());
}

}  // namespace
}  // namespace hutch::daemon
