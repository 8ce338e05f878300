#include "daemon/keyed_create.h"

#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using runtime::AgentEvent;

class KeyedCreateTest : public DaemonTest {
 protected:
  struct Ask {
    std::string body = R"({"image":"busybox"})";
    std::string key = {};  // Idempotency-Key
    uid_t uid = 1000;
    bool events = false;
  };
  std::shared_ptr<Answer> Post(const Ask& ask) {
    auto answer = std::make_shared<Answer>();
    Request request;
    request.method = "POST";
    request.path = "/v1/sandboxes";
    request.body = ask.body;
    request.peer.uid = ask.uid;
    request.wants_events = ask.events;
    if (!ask.key.empty()) request.headers = {{"Idempotency-Key", ask.key}};
    Dispatch(api_, std::move(request), Responder(answer));
    return answer;
  }
  std::shared_ptr<Answer> Made(const Ask& ask) {
    const auto answer = Post(ask);
    RunUntil([&] { return answer->done(); });
    return answer;
  }
  static Ask Session(const std::string& key, const std::string& more = "") {
    return {.body = R"({"image":"busybox","session_key":")" + key + '"' + more + "}"};
  }
  static std::string Id(const std::shared_ptr<Answer>& answer) {
    return answer->json().value("id", "");
  }
  static std::string Header(const std::shared_ptr<Answer>& answer, const std::string& name) {
    for (const auto& [key, value] : answer->reply->headers)
      if (key == name) return value;
    return "";
  }
  void Ready() { Last().Say({.kind = AgentEvent::Kind::kReady}); }
};

TEST_F(KeyedCreateTest, TheSameSessionKeyIsTheSameLivingSandbox) {
  const auto first = Made(Session("a"));
  EXPECT_EQ(first->status(), 201);
  EXPECT_EQ(first->json()["session_key"], "a");
  EXPECT_EQ(first->json()["caller_uid"], 1000);
  const auto second = Made(Session("a"));
  EXPECT_EQ(second->status(), 200);
  EXPECT_EQ(Id(second), Id(first));
  EXPECT_EQ(runtime_.requests.size(), 1u);
  EXPECT_NE(Id(Made(Session("b"))), Id(first));
}

TEST_F(KeyedCreateTest, AnotherUsersKeyIsAnotherKey) {
  Ask other = Session("a");
  other.uid = 1001;
  const std::string id = Id(Made(Session("a")));
  const auto answer = Made(other);
  EXPECT_EQ(answer->status(), 201);
  EXPECT_NE(Id(answer), id);
}

TEST_F(KeyedCreateTest, AnotherRequestIsAConflictWithTheField) {
  Made(Session("a"));
  const auto answer = Made(Session("a", R"(,"limits":{"pids":9})"));
  EXPECT_EQ(answer->status(), 409);
  EXPECT_EQ(answer->code(), "exists");
  EXPECT_EQ(answer->json()["error"]["field"], "limits.pids");
}

TEST_F(KeyedCreateTest, TheKeyIsFreeWhenTheSandboxHasEnded) {
  const std::string id = Id(Made(Session("a")));
  runtime_.busy_removals = 1000;  // its removal takes a while: the key does not wait for it
  const auto removal = Begin("DELETE", "/v1/sandboxes/" + id);
  const auto next = Made(Session("a", R"(,"limits":{"pids":9})"));
  EXPECT_EQ(next->status(), 201);
  runtime_.busy_removals = 0;
  RunUntil([&] { return removal->done(); });
  EXPECT_EQ(Id(Made(Session("a", R"(,"limits":{"pids":9})"))), Id(next));
}

TEST_F(KeyedCreateTest, WhoeverAsksMeanwhileWaitsForTheSameResult) {
  runtime_.ready_at_once = false;
  const auto first = Post(Session("a")), second = Post(Session("a"));
  const auto other = Post(Session("a", R"(,"name":"n")"));
  EXPECT_EQ(other->json()["error"]["field"], "name");
  EXPECT_EQ(runtime_.begun.size(), 1u);
  EXPECT_FALSE(second->done());
  Ready();
  RunUntil([&] { return first->done() && second->done(); });
  EXPECT_EQ(first->status(), 201);
  EXPECT_EQ(second->status(), 200);
  EXPECT_EQ(Id(first), Id(second));
}

TEST_F(KeyedCreateTest, AFailureIsTheResultOfAllAndFreesTheKey) {
  runtime_.ready_at_once = false;
  const auto first = Post(Session("a")), second = Post(Session("a"));
  Last().Say({.kind = AgentEvent::Kind::kFailed,
              .error = Error{.code = Code::kKernel, .step = "mounts", .what = "no"}});
  RunUntil([&] { return first->done() && second->done(); });
  EXPECT_EQ(first->status(), 500);
  EXPECT_EQ(second->status(), 500);
  EXPECT_EQ(second->json()["error"]["step"], "mounts");
  runtime_.ready_at_once = true;
  EXPECT_EQ(Made(Session("a"))->status(), 201);
}

TEST_F(KeyedCreateTest, ARequestThatIsRefusedFreesTheKey) {
  EXPECT_EQ(Made(Session("a", R"(,"nonsense":1)"))->status(), 400);
  EXPECT_EQ(Made({.body = R"({"image":"nothing","session_key":"a"})"})->status(), 404);
  EXPECT_EQ(Made(Session("a"))->status(), 201);
}

TEST_F(KeyedCreateTest, ItGoesOnWhileAnybodyWaits) {
  runtime_.ready_at_once = false;
  const auto first = Post(Session("a")), second = Post(Session("a"));
  first->hangup();
  Ready();
  RunUntil([&] { return second->done(); });
  EXPECT_EQ(second->status(), 200);
  EXPECT_NE(first->status(), 201);
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + Id(second))->json()["state"], "running");
}

TEST_F(KeyedCreateTest, ItIsGivenUpWhenNobodyWaitsAnyMore) {
  runtime_.ready_at_once = false;
  const auto first = Post(Session("a")), second = Post(Session("a"));
  second->hangup();
  EXPECT_TRUE(runtime_.removed_ids.empty());
  const auto third = Post(Session("a"));
  first->hangup();
  EXPECT_EQ(runtime_.begun.size(), 1u);
  third->hangup();
  RunUntil([&] { return runtime_.removed_ids.size() == 1; });
  runtime_.ready_at_once = true;
  EXPECT_EQ(Made(Session("a"))->status(), 201);
}

TEST_F(KeyedCreateTest, AnIdempotencyKeyIsAnsweredAgainAfterTheEnd) {
  const auto first = Made({.key = "k"});
  EXPECT_EQ(Header(first, "Idempotency-Replayed"), "");
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + Id(first))->status(), 204);
  const auto again = Made({.key = "k"});
  EXPECT_EQ(again->status(), 201);
  EXPECT_EQ(Id(again), Id(first));
  EXPECT_EQ(Header(again, "Idempotency-Replayed"), "true");
  EXPECT_EQ(runtime_.requests.size(), 1u);
  EXPECT_EQ(Made({.body = R"({"image":"busybox","name":"x"})", .key = "k"})->code(), "exists");
  EXPECT_NE(Id(Made({.key = "k", .uid = 5})), Id(first));
  EXPECT_EQ(Made({.key = "a b"})->json()["error"]["field"], "Idempotency-Key");
}

TEST_F(KeyedCreateTest, DuplicatesInFlightWaitAndAreReplays) {
  runtime_.ready_at_once = false;
  const auto first = Post({.key = "k"}), second = Post({.key = "k"});
  Ready();
  RunUntil([&] { return first->done() && second->done(); });
  EXPECT_EQ(second->status(), 201);
  EXPECT_EQ(Header(second, "Idempotency-Replayed"), "true");
  EXPECT_EQ(Id(first), Id(second));
}

TEST_F(KeyedCreateTest, AFailureIsNotKeptForAnIdempotencyKey) {
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "full"};
  EXPECT_EQ(Made({.key = "k"})->code(), "no_space");
  runtime_.save_error.reset();
  EXPECT_EQ(Made({.key = "k"})->status(), 201);
}

TEST_F(KeyedCreateTest, OneWhoJoinsGetsEventsWhereAskedFor) {
  runtime_.ready_at_once = false;
  Ask ask = Session("a");
  const auto first = Post(ask);
  ask.events = true;
  const auto second = Post(ask);
  Ready();
  RunUntil([&] { return first->done() && second->ended; });
  ASSERT_EQ(second->events.size(), 1u);
  EXPECT_EQ(second->events[0].first, "result");
  const auto third = Post(ask);
  EXPECT_EQ(third->events.at(0).first, "result");
}

TEST_F(KeyedCreateTest, KeysOutliveTheDaemon) {
  Ask ask = Session("a");
  ask.key = "k";
  const std::string id = Id(Made(ask));
  const Result<SandboxFacts> facts = LoadFacts(id, runtime_.saved.at(id), config_);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->caller_uid, 1000u);
  EXPECT_EQ(facts->fields.session_key, "a");
  EXPECT_EQ(facts->fields.idempotency_key, "k");
  EXPECT_EQ(facts->fields.digests.size(), 2u);

  FakeRuntime later;
  later.to_recover.push_back(
      {.sandbox = std::make_unique<FakeSandbox>(id), .saved = runtime_.saved.at(id)});
  Sandboxes::Parts parts = sandboxes_.parts();
  Sandboxes taken_up([&] {
    return Sandboxes::Parts{.loop = loop_,
                            .config = config_,
                            .runtime = later,
                            .store = store_,
                            .mode = parts.mode,
                            .host_memory_bytes = parts.host_memory_bytes,
                            .host_cpus = parts.host_cpus};
  }());
  ASSERT_TRUE(taken_up.Recover().has_value());
  ASSERT_NE(taken_up.FindSession({1000, "a"}), nullptr);
  EXPECT_EQ(taken_up.FindSession({1001, "a"}), nullptr);
  const auto found = taken_up.claims().Find(
      {.owner = 1000, .session = {}, .idempotency = "k", .digests = facts->fields.digests});
  ASSERT_TRUE(found.has_value() && found->answer);
  EXPECT_EQ((*found->answer->body)["id"], id);
  EXPECT_EQ(taken_up.admission().promised().id_ranges, 1u);
}

TEST_F(KeyedCreateTest, OwnersAreRefusedWithWhenToTryAgain) {
  config_.owner_limits.sandboxes_per_user = 1;
  Made({});
  const auto answer = Made({});
  EXPECT_EQ(answer->status(), 429);
  EXPECT_EQ(answer->json()["error"]["step"], "admission");
  EXPECT_EQ(Header(answer, "Retry-After"), "5");
  EXPECT_EQ(Made({.uid = 1001})->status(), 201);
  EXPECT_EQ(Call("GET", "/v1/sandboxes")->json()["sandboxes"].size(), 2u);
  const oci::Json admission = sandboxes_.AdmissionJson();
  EXPECT_EQ(admission["owners"].size(), 2u);
  EXPECT_EQ(admission["refused"]["owner"], 1);
  EXPECT_EQ(admission["promised"]["id_ranges"], 2);
}

TEST_F(KeyedCreateTest, WhatIsGivenOutComesBackAtTheEnd) {
  config_.cpus_overcommit = 0.5;  // of two
  const std::string id = Id(Made({}));
  const auto answer = Made({});
  EXPECT_EQ(answer->status(), 503);
  EXPECT_EQ(answer->json()["error"]["field"], "limits.cpus");
  EXPECT_EQ(Header(answer, "Retry-After"), "1");
  EXPECT_EQ(Made({.body = R"({"image":"busybox","limits":{"cpus":2}})"})->status(), 429);
  EXPECT_EQ(Call("DELETE", "/v1/sandboxes/" + id)->status(), 204);
  EXPECT_EQ(Made({})->status(), 201);
}

TEST_F(KeyedCreateTest, AHostShortOfMemoryMakesNone) {
  config_.memory_reserve_bytes = uint64_t{1} << 60;
  const auto answer = Made({});
  EXPECT_EQ(answer->status(), 503);
  EXPECT_NE(answer->json()["error"]["message"].get<std::string>().find("held back"),
            std::string::npos);
  EXPECT_EQ(sandboxes_.admission().refused().at("pressure"), 1u);
}

TEST_F(KeyedCreateTest, LabelsAreChangedAndSelectedBy) {
  config_.owner_limits.labels = {{.label = "team", .max = 1}};
  sandboxes_.RecountOwners();
  const std::string one = Create(R"(,"labels":{"team":"a","old":"1"})"), two = Create();
  const auto listed = [&](const std::string& query) {
    std::string ids;
    const oci::Json list = Call("GET", "/v1/sandboxes?" + query)->json();
    for (const auto& sandbox : list["sandboxes"]) ids += sandbox["id"].get<std::string>() + " ";
    return ids;
  };
  EXPECT_EQ(listed("label=team"), one + " ");
  EXPECT_EQ(listed("label=!team"), two + " ");
  EXPECT_EQ(listed("label=team!=b"), one + " " + two + " ");
  const auto patch = [&](const std::string& id, const std::string& labels) {
    return Call("PATCH", "/v1/sandboxes/" + id, R"({"labels":)" + labels + "}");
  };
  EXPECT_EQ(patch(two, R"({"team":"a"})")->status(), 429);
  const auto changed = patch(one, R"({"team":"b","old":null,"new":"x"})");
  EXPECT_EQ(changed->status(), 200) << changed->reply->body;
  EXPECT_EQ(changed->json()["labels"], oci::Json({{"team", "b"}, {"new", "x"}}));
  EXPECT_NE(runtime_.saved[one].find(R"("new":"x")"), std::string::npos);
  EXPECT_EQ(patch(two, R"({"team":"a"})")->status(), 200);
  EXPECT_EQ(patch(two, R"({"team":1})")->json()["error"]["field"], "labels.team");
  EXPECT_EQ(patch(two, R"([])")->code(), "invalid_argument");
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "full"};
  EXPECT_EQ(patch(one, R"({"new":"y"})")->code(), "no_space");
  EXPECT_EQ(Call("GET", "/v1/sandboxes/" + one)->json()["labels"]["new"], "x");
}

TEST_F(KeyedCreateTest, SelectorsAreBounded) {
  Request request;
  request.method = "GET";
  request.path = "/v1/sandboxes";
  request.query.assign(kMaxSelectors + 1, {"label", "a"});
  const auto answer = std::make_shared<Answer>();
  Dispatch(api_, std::move(request), Responder(answer));
  EXPECT_EQ(answer->json()["error"]["field"], "label");
}

}  // namespace
}  // namespace hutch::daemon
