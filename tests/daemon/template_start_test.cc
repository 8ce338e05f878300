// Templates from their directory to a made sandbox: what is found, what a request makes of it, and
// the commands before the answer.
#include "daemon/template_start.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "daemon/limits.h"
#include "daemon/template_library.h"
#include "rootfs/catalog.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr int kExit3 = 3 << 8;

class TemplateTest : public DaemonTest {
 protected:
  void SetUp() override { config_.templates_dir = directory_ / "templates"; }

  void Write(const std::string& name, const std::string& text,
             const std::string& place = "devcontainer.json") {
    const std::string path = config_.templates_dir + "/" + name + "/" + place;
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/')), 0755).has_value());
    ASSERT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
  }
  // A template of busybox with more members.
  void WriteBox(const std::string& members) {
    Write("box", R"({"image":"busybox",)" + members + "}");
  }
  std::shared_ptr<Answer> Start(const std::string& more = "") {
    return Begin("POST", "/v1/sandboxes", R"({"template":"box")" + more + "}");
  }
  void AwaitProcess(uint32_t number) {
    RunUntil([&] { return !runtime_.begun.empty() && Last().started.contains(number); });
  }
  void Say(uint32_t number, const std::string& text) {
    ASSERT_TRUE(WriteAll(Last().started.at(number).out.get(), text).has_value());
  }
  Json Inspect(const std::string& id) { return Call("GET", "/v1/sandboxes/" + id)->json(); }
  Json Saved() { return Json::parse(runtime_.saved.begin()->second); }
};

// --- found by name

TEST_F(TemplateTest, FilesAreFoundInTheirThreePlacesAndCountAtOnce) {
  Write("a", R"({"image":"one"})", ".devcontainer/devcontainer.json");
  Write("b", R"({"image":"two"})", ".devcontainer.json");
  Write("c", R"({"image":"three"})");
  const auto image = [&](const std::string& name) {
    return Call("GET", "/v1/templates/" + name)->json()["image"];
  };
  EXPECT_EQ(image("a"), "one");
  EXPECT_EQ(image("b"), "two");
  EXPECT_EQ(image("c"), "three");
  Write("c", R"({"image":"four"})");
  EXPECT_EQ(image("c"), "four");
}

TEST_F(TemplateTest, EveryImageOfTheCatalogHasATemplate) {
  const Result<std::vector<FoundTemplate>> list = TemplateLibrary(config_).List();
  ASSERT_TRUE(list.has_value());
  std::vector<std::string> names;
  for (const FoundTemplate& one : *list) {
    names.push_back(one.name);
    EXPECT_EQ(one.source, "built-in");
    EXPECT_TRUE(one.made.has_value()) << one.name;
  }
  for (const rootfs::CatalogText& entry : rootfs::CatalogTexts())
    EXPECT_THAT(names, Contains(std::string(entry.name)));
  for (const TemplateText& text : TemplateTexts())
    EXPECT_THAT(names, Contains(std::string(text.name)));
  Write("python", R"({"image":"mine"})");
  EXPECT_EQ(TemplateLibrary(config_).Find("python")->made->image, "mine");
}

TEST_F(TemplateTest, WrongOnesAreListedWithWhatIsWrong) {
  Write("bad", R"({"image":"x","privileged":true})");
  ASSERT_TRUE(MakeDirectories(config_.templates_dir + "/empty", 0755).has_value());
  ASSERT_TRUE(
      WriteFileAtomic(config_.templates_dir + "/README", "", Durability::kMemory).has_value());
  const Json list = Call("GET", "/v1/templates")->json()["templates"];
  const auto named = [&](const std::string& name) {
    for (const Json& one : list)
      if (one["name"] == name) return one;
    return Json();
  };
  EXPECT_EQ(named("bad")["valid"], false);
  EXPECT_EQ(named("bad")["error"]["field"], "privileged");
  EXPECT_EQ(named("empty")["valid"], false);
  EXPECT_TRUE(named("README").is_null());
  const auto refused = Call("POST", "/v1/sandboxes", R"({"template":"bad"})");
  EXPECT_EQ(refused->code(), "unsupported");
  EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("privileged"));
}

TEST_F(TemplateTest, NamesDoNotLeaveTheDirectory) {
  for (const char* name : {"..", ".", "a%2Fb", "-a"})
    EXPECT_EQ(Call("GET", "/v1/templates/" + std::string(name))->code(), "invalid_argument")
        << name;
  EXPECT_EQ(Call("GET", "/v1/templates/none")->code(), "not_found");
}

TEST_F(TemplateTest, LinksDoNotLeadOutOfATemplate) {
  Write("ok", R"({"image":"x"})", "real.json");
  ASSERT_EQ(::symlink("real.json", (config_.templates_dir + "/ok/devcontainer.json").c_str()), 0);
  Write("out", R"({"image":"x"})", "real.json");
  const std::string outside = directory_ / "outside.json";
  ASSERT_TRUE(WriteFileAtomic(outside, R"({"image":"secret"})", Durability::kMemory).has_value());
  ASSERT_EQ(::symlink(outside.c_str(), (config_.templates_dir + "/out/devcontainer.json").c_str()),
            0);
  ASSERT_TRUE(MakeDirectories(config_.templates_dir + "/pipe", 0755).has_value());
  ASSERT_EQ(::mkfifo((config_.templates_dir + "/pipe/devcontainer.json").c_str(), 0600), 0);
  const TemplateLibrary library(config_);
  EXPECT_TRUE(library.Find("ok")->made.has_value());
  EXPECT_FALSE(library.Find("out")->made.has_value());
  EXPECT_FALSE(library.Find("pipe")->made.has_value());
}

TEST_F(TemplateTest, WhatEveryoneMayWriteIsNotTrusted) {
  Write("open", R"({"image":"x"})");
  const std::string directory = config_.templates_dir + "/open";
  ASSERT_EQ(::chmod((directory + "/devcontainer.json").c_str(), 0666), 0);
  EXPECT_EQ(TemplateLibrary(config_).Find("open")->made.error().code, Code::kForbidden);
  ASSERT_EQ(::chmod((directory + "/devcontainer.json").c_str(), 0644), 0);
  ASSERT_EQ(::chmod(directory.c_str(), 0777), 0);
  EXPECT_EQ(TemplateLibrary(config_).Find("open")->made.error().code, Code::kForbidden);
  Write("below", R"({"image":"x"})", ".devcontainer/devcontainer.json");
  ASSERT_EQ(::chmod((config_.templates_dir + "/below/.devcontainer").c_str(), 0777), 0);
  EXPECT_EQ(TemplateLibrary(config_).Find("below")->made.error().code, Code::kForbidden);
  ASSERT_EQ(::chmod(config_.templates_dir.c_str(), 01777), 0);
  EXPECT_EQ(TemplateLibrary(config_).Find("open").error().code, Code::kForbidden);
  EXPECT_EQ(TemplateLibrary(config_).List().error().code, Code::kForbidden);
}

TEST_F(TemplateTest, TheDirectoryIsBounded) {
  for (size_t i = 0; i <= kMaxTemplates; ++i)
    ASSERT_TRUE(
        MakeDirectories(config_.templates_dir + "/t" + std::to_string(i), 0755).has_value());
  EXPECT_EQ(Call("GET", "/v1/templates")->code(), "limit");
  Write("t0", R"({"image":"x"})");
  EXPECT_EQ(Call("GET", "/v1/templates/t0")->json()["image"], "x");
}

TEST_F(TemplateTest, TextsAreValidatedWithoutAFile) {
  const auto validate = [&](const std::string& text) {
    return Call("POST", "/v1/templates/validate", oci::PrintJson({{"devcontainer", text}}))->json();
  };
  EXPECT_EQ(validate("{\"image\":\"x\",}")["valid"], true);
  EXPECT_EQ(validate("{\"image\":\"x\",}")["settings"]["image"], "x");
  EXPECT_EQ(validate("{\"image\":\"x\",\"features\":{\"a\":{}}}")["error"]["field"], "features");
  EXPECT_EQ(Call("POST", "/v1/templates/validate", "{}")->code(), "invalid_argument");
}

// --- what a request makes of it

TEST_F(TemplateTest, ARequestHasAnImageOrATemplate) {
  WriteBox(R"("name":"b")");
  const auto both = Call("POST", "/v1/sandboxes", R"({"template":"box","image":"busybox"})");
  EXPECT_EQ(both->json()["error"]["field"], "image");
  EXPECT_EQ(Call("POST", "/v1/sandboxes", "{}")->json()["error"]["field"], "image");
  EXPECT_EQ(Call("POST", "/v1/sandboxes", R"({"template":1})")->json()["error"]["field"],
            "template");
  EXPECT_EQ(
      Call("POST", "/v1/sandboxes", R"({"template":"box","colour":1})")->json()["error"]["field"],
      "colour");
}

TEST_F(TemplateTest, TheRequestsOwnFieldsWin) {
  WriteBox(R"("containerEnv":{"A":"1","B":"2"},"remoteEnv":{"A":"9","R":"r:${containerEnv:B}"},
              "remoteUser":"5:6","hostRequirements":{"memory":"1gb"},
              "customizations":{"hutch":{"limits":{"pids":77},"labels":{"x":"y"}}})");
  const auto made = Call("POST", "/v1/sandboxes",
                         R"({"template":"box","env":{"A":"3"},"labels":{"z":"w"},"user":"7:8"})");
  ASSERT_EQ(made->status(), 201) << made->reply->body;
  const Json json = made->json();
  EXPECT_EQ(json["template"], "box");
  EXPECT_TRUE(json["lifecycle"].is_null());
  EXPECT_EQ(json["env"]["A"], "3");
  EXPECT_EQ(json["env"]["B"], "2");
  EXPECT_EQ(json["remote_env"], Json({{"R", "r:2"}}));
  EXPECT_EQ(json["user"], "7:8");
  EXPECT_EQ(json["limits"]["pids"], 77);
  EXPECT_EQ(json["limits"]["memory_bytes"], 1u << 30);
  EXPECT_EQ(json["labels"], Json({{"x", "y"}, {"z", "w"}}));
  const auto less =
      Call("POST", "/v1/sandboxes", R"({"template":"box","limits":{"memory_bytes":8388608}})");
  EXPECT_EQ(less->json()["error"]["field"], "limits.memory_bytes");
  // Commands get what is remote; programs of ours do not.
  const std::string id = json["id"];
  Begin("POST", "/v1/sandboxes/" + id + "/exec", R"({"command":"x","env":{"B":"4"}})");
  EXPECT_THAT(Last().started.at(1).spec.env, Contains("R=r:2"));
  EXPECT_THAT(Last().started.at(1).spec.env, Contains("A=3"));
  EXPECT_THAT(Last().started.at(1).spec.env, Contains("B=4"));
}

TEST_F(TemplateTest, AStateKnowsItsTemplate) {
  WriteBox(R"("remoteEnv":{"R":"r","HOME":null})");
  const auto made = Call("POST", "/v1/sandboxes", R"({"template":"box"})");
  ASSERT_EQ(made->status(), 201) << made->reply->body;
  const Result<SandboxFacts> facts = LoadFacts("sb-0", runtime_.saved.begin()->second, config_);
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->fields.template_name, "box");
  EXPECT_EQ(facts->fields.remote_env, (RemoteEnv{{"R", "r"}, {"HOME", std::nullopt}}));
  Begin("POST", "/v1/sandboxes/sb-0/exec", R"({"command":"x"})");
  EXPECT_THAT(Last().started.at(1).spec.env, Not(Contains(testing::StartsWith("HOME="))));
}

// --- commands

TEST_F(TemplateTest, StagesRunOneAfterTheOtherBeforeTheAnswer) {
  WriteBox(R"("postStartCommand":["three"],"onCreateCommand":["one"],"remoteEnv":{"R":"r"},
              "updateContentCommand":{"a":["two","a"],"b":["two","b"]},"remoteUser":"5:6")");
  const auto answer = Start();
  AwaitProcess(1);
  EXPECT_EQ(Last().started.at(1).spec.args, std::vector<std::string>{"one"});
  EXPECT_EQ(Last().started.at(1).spec.user.uid, 5u);
  EXPECT_THAT(Last().started.at(1).spec.env, Contains("R=r"));
  EXPECT_EQ(Inspect("sb-0")["lifecycle"]["stage"], "onCreateCommand");
  EXPECT_EQ(Saved()["template"]["lifecycle"]["awaited"], true);
  Last().Exit(1, 0);
  AwaitProcess(3);
  EXPECT_EQ(Last().started.at(2).spec.args, (std::vector<std::string>{"two", "a"}));
  EXPECT_EQ(Last().started.at(3).spec.args, (std::vector<std::string>{"two", "b"}));
  Last().Exit(3, 0);
  RunUntil([&] { return Inspect("sb-0")["processes"] == 1; });
  EXPECT_FALSE(Last().started.contains(4));  // the other one of the stage still runs
  Last().Exit(2, 0);
  AwaitProcess(4);
  EXPECT_FALSE(answer->done());
  Last().Exit(4, 0);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 201);
  EXPECT_EQ(answer->json()["lifecycle"]["state"], "done");
  EXPECT_EQ(Saved()["template"]["lifecycle"]["state"], "done");
}

TEST_F(TemplateTest, AFailureEndsTheSandboxAndTellsTheOutput) {
  WriteBox(R"("onCreateCommand":{"deps":"make"},"postCreateCommand":"never")");
  const auto answer = Start();
  AwaitProcess(1);
  Say(1, "working\nit is broken\n");
  Last().Exit(1, kExit3);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "bad_state");
  const Json error = answer->json()["error"];
  EXPECT_EQ(error["exit_code"], 3);
  EXPECT_EQ(error["step"], "onCreateCommand");
  EXPECT_EQ(error["output"], "working\nit is broken\n");
  EXPECT_EQ(error["message"], "onCreateCommand \"deps\" ended with exit code 3: it is broken");
  EXPECT_EQ(runtime_.removed_ids, std::vector<std::string>{"sb-0"});
  EXPECT_EQ(Inspect("sb-0")["lifecycle"]["state"], "failed");
}

TEST_F(TemplateTest, OnlyTheEndOfAFailuresOutputIsTold) {
  WriteBox(R"("onCreateCommand":"make")");
  const auto answer = Start();
  AwaitProcess(1);
  for (int i = 0; i < 40; ++i) {
    Say(1, std::string(1024, 'x'));
    RunUntil([&, n = 0]() mutable { return ++n > 2; });
  }
  Say(1, "end");
  Last().Exit(1, kExit3);
  RunUntil([&] { return answer->done(); });
  const std::string output = answer->json()["error"]["output"];
  EXPECT_LE(output.size(), kMaxLifecycleTailBytes);
  EXPECT_TRUE(output.ends_with("xend"));
}

TEST_F(TemplateTest, AProgramThatIsMissingFailsTheCreation) {
  WriteBox(R"("onCreateCommand":["none"])");
  const auto answer = Start();
  AwaitProcess(1);
  AgentEvent event{.kind = AgentEvent::Kind::kStartFailed, .process = 1};
  event.error = Error{.code = Code::kCommandNotFound, .sys = ENOENT, .what = "none"};
  Last().Say(std::move(event));
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "command_not_found");
  EXPECT_EQ(runtime_.removed_ids.size(), 1u);
}

TEST_F(TemplateTest, ACommandHasATime) {
  config_.template_command_seconds = 1;
  WriteBox(R"("onCreateCommand":"sleep")");
  const auto answer = Start();
  AwaitProcess(1);
  RunUntil([&] { return !Last().killed.empty(); });
  Last().Exit(1, SIGKILL);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->json()["error"]["cause"], "timed_out");
  EXPECT_TRUE(answer->json()["error"]["exit_code"].is_null());
}

TEST_F(TemplateTest, WaitForAnswersEarlierAndWhatFailsLaterIsOnRecord) {
  WriteBox(R"("waitFor":"onCreateCommand","onCreateCommand":"1","postStartCommand":"2")");
  const auto answer = Start();
  AwaitProcess(1);
  Last().Exit(1, 0);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->status(), 201);
  EXPECT_EQ(answer->json()["lifecycle"]["state"], "running");
  AwaitProcess(2);
  EXPECT_EQ(Saved()["template"]["lifecycle"]["awaited"], false);
  Last().Exit(2, kExit3);
  RunUntil([&] { return Inspect("sb-0")["lifecycle"]["state"] == "failed"; });
  EXPECT_EQ(Inspect("sb-0")["state"], "running");
  EXPECT_EQ(Inspect("sb-0")["lifecycle"]["stage"], "postStartCommand");
  EXPECT_TRUE(runtime_.removed_ids.empty());
}

TEST_F(TemplateTest, AClientThatGoesAwayTakesTheSandboxWithIt) {
  WriteBox(R"("onCreateCommand":"1")");
  const auto answer = Start();
  AwaitProcess(1);
  answer->hangup();
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
  EXPECT_NE(answer->status(), 201);
}

TEST_F(TemplateTest, ADeletionMeanwhileIsTheAnswer) {
  WriteBox(R"("onCreateCommand":"1")");
  const auto answer = Start();
  AwaitProcess(1);
  Call("DELETE", "/v1/sandboxes/sb-0");
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "bad_state");
  EXPECT_EQ(answer->json()["error"]["cause"], "sandbox_ended");
}

TEST_F(TemplateTest, EventsTellWhatCommandsWrite) {
  WriteBox(R"("onCreateCommand":{"a":"1"},"postCreateCommand":"2")");
  wants_events_ = true;
  const auto answer = Start();
  AwaitProcess(1);
  Say(1, "hello\n");
  RunUntil([&] { return answer->events.size() == 2; });
  EXPECT_EQ(answer->events[0].first, "progress");
  EXPECT_EQ(Json::parse(answer->events[0].second),
            Json({{"stage", "onCreateCommand"}, {"subject", "a"}, {"done", 0}, {"total", 2}}));
  const Json output = Json::parse(answer->events[1].second);
  EXPECT_EQ(output["data"], "hello\n");
  EXPECT_EQ(output["subject"], "a");
  Last().Exit(1, 0);
  AwaitProcess(2);
  Last().Exit(2, 0);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->events.back().first, "result");
  EXPECT_EQ(Json::parse(answer->events.back().second)["id"], "sb-0");
}

TEST_F(TemplateTest, ASlowReaderHoldsACommandBack) {
  WriteBox(R"("onCreateCommand":"1")");
  wants_events_ = true;
  const auto answer = Start();
  AwaitProcess(1);
  answer->congested = true;
  Say(1, "late");
  RunUntil([&] { return answer->drained != nullptr; });
  EXPECT_EQ(answer->events.size(), 1u);
  answer->congested = false;
  answer->drained();
  RunUntil([&] { return answer->events.size() == 2; });
  Last().Exit(1, 0);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->events.back().first, "result");
}

TEST_F(TemplateTest, AnotherDaemonRemovesWhatNobodyWaitsFor) {
  WriteBox(R"("onCreateCommand":"1","postStartCommand":"2","waitFor":"onCreateCommand")");
  Start();
  AwaitProcess(1);
  std::string awaited = runtime_.saved.begin()->second;
  Last().Exit(1, 0);
  AwaitProcess(2);
  const std::string answered = runtime_.saved.begin()->second;
  runtime_.to_recover.push_back({std::make_unique<FakeSandbox>("sb-a"), awaited});
  runtime_.to_recover.push_back({std::make_unique<FakeSandbox>("sb-b"), answered});
  ASSERT_TRUE(sandboxes_.Recover().has_value());
  RunUntil([&] { return !runtime_.removed_ids.empty(); });
  EXPECT_EQ(runtime_.removed_ids, std::vector<std::string>{"sb-a"});
  EXPECT_EQ(Inspect("sb-b")["lifecycle"]["state"], "interrupted");
}

TEST_F(TemplateTest, WhatACommandWroteLeavesTheRecordReadable) {
  const std::string name(100'000, 'n');
  WriteBox(R"("onCreateCommand":"1","waitFor":"onCreateCommand","postStartCommand":{")" + name +
           R"(":"2"})");
  const auto answer = Start();
  AwaitProcess(1);
  Last().Exit(1, 0);
  AwaitProcess(2);
  Say(2, std::string("bad\0\x1b[1m \xff end", 15) + std::string(4000, '"'));
  Last().Exit(2, kExit3);
  RunUntil([&] { return Inspect("sb-0")["lifecycle"]["state"] == "failed"; });
  const Result<SandboxFacts> facts = LoadFacts("sb-0", runtime_.saved.begin()->second, config_);
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->lifecycle.state, LifecycleFacts::State::kFailed);
  EXPECT_THAT(facts->lifecycle.error, HasSubstr("exit code 3: bad  [1m "));
  EXPECT_LE(facts->lifecycle.error.size(), 8192u);
}

TEST_F(TemplateTest, ARecordIsReadWhateverItsLifecycleSays) {
  WriteBox(R"("onCreateCommand":"1")");
  Start();
  AwaitProcess(1);
  Json saved = Saved();
  saved["template"]["lifecycle"] = {{"state", "failed"},
                                    {"stage", 7},
                                    {"error", std::string("a\0b", 3) + std::string(70'000, 'x')},
                                    {"awaited", "no"}};
  const Result<SandboxFacts> facts = LoadFacts("sb-0", oci::PrintJson(saved), config_);
  ASSERT_TRUE(facts.has_value()) << facts.error().ToString();
  EXPECT_EQ(facts->lifecycle.state, LifecycleFacts::State::kFailed);
  EXPECT_FALSE(facts->lifecycle.awaited);
}

TEST_F(TemplateTest, NoSandboxIsGivenAwayWhoseRecordSaysThatItIsWaitedFor) {
  WriteBox(R"("onCreateCommand":"1")");
  const auto answer = Start();
  AwaitProcess(1);
  runtime_.save_error = Error{.code = Code::kNoSpace, .what = "the disk is full"};
  Last().Exit(1, 0);
  RunUntil([&] { return answer->done(); });
  EXPECT_EQ(answer->code(), "no_space");
  EXPECT_EQ(runtime_.removed_ids, std::vector<std::string>{"sb-0"});
}

}  // namespace
}  // namespace hutch::daemon
