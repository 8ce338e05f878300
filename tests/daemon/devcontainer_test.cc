// devcontainer.json as data: what becomes of each property, and each refusal by name.
#include "daemon/devcontainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/devcontainer_values.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using testing::HasSubstr;

Config Relaxed() {
  Config config;
  config.template_relax = "on";
  return config;
}

Template Made(const std::string& members, const Config& config = {}) {
  Result<Template> made = ParseDevcontainer(R"({"image":"x",)" + members + "}", config);
  EXPECT_TRUE(made.has_value()) << members << ": "
                                << (made.has_value() ? "" : made.error().ToString());
  return made.has_value() ? *std::move(made) : Template();
}

Error Wrong(const std::string& members, const Config& config = {}) {
  const Result<Template> made = ParseDevcontainer(R"({"image":"x",)" + members + "}", config);
  EXPECT_FALSE(made.has_value()) << members;
  return made.has_value() ? Error{} : made.error();
}

TEST(Devcontainer, CommentsAndTrailingCommasAreFine) {
  const Result<Template> made = ParseDevcontainer(
      "// of the team\n{\n  \"image\": \"python\", /* pinned elsewhere */\n  \"name\": \"P\",\n}\n",
      {});
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  EXPECT_EQ(made->image, "python");
  EXPECT_EQ(made->title, "P");
  EXPECT_EQ(made->settings, Json({{"image", "python"}}));
  EXPECT_TRUE(made->stages.empty());
}

TEST(Devcontainer, WhatIsNoDevcontainerIsRefused) {
  for (const char* text : {"", "[]", "1", "{", "{} {}", "{\"image\": \"x\", \"image\": \"y\"}"})
    EXPECT_FALSE(ParseDevcontainer(text, {}).has_value()) << text;
  EXPECT_EQ(ParseDevcontainer("{}", {}).error().field, "image");
  EXPECT_EQ(ParseDevcontainer(R"({"image":1})", {}).error().field, "image");
}

TEST(Devcontainer, SizeAndDepthAreBounded) {
  const std::string large = "{\"image\":\"x\"}" + std::string(kMaxDevcontainerBytes, ' ');
  EXPECT_EQ(ParseDevcontainer(large, {}).error().code, Code::kTooLarge);
  const std::string deep =
      std::string(kMaxDevcontainerDepth, '[') + std::string(kMaxDevcontainerDepth, ']');
  EXPECT_THAT(Wrong("\"customizations\":{\"other\":" + deep + "}").what, HasSubstr("nested"));
}

TEST(Devcontainer, RefusalsNameTheProperty) {
  for (const char* name :
       {"build", "dockerFile", "context", "dockerComposeFile", "service", "runServices", "features",
        "overrideFeatureInstallOrder", "workspaceMount", "initializeCommand", "postAttachCommand",
        "secrets", "capAdd", "runArgs"}) {
    const Error error = Wrong("\"" + std::string(name) + R"(":["something"])");
    EXPECT_EQ(error.code, Code::kUnsupported) << name;
    EXPECT_EQ(error.field, name);
    EXPECT_THAT(error.what, HasSubstr(name));
    EXPECT_FALSE(error.hint.empty()) << name;
    // What asks for nothing is as good as left out.
    EXPECT_EQ(Made("\"" + std::string(name) + R"(":[])").image, "x");
  }
}

TEST(Devcontainer, PortsAreForwarded) {
  const Template made =
      Made(R"("forwardPorts":[3000,"localhost:4000","8080:5000"],"appPort":["9000:3000",6000],)"
           R"("portsAttributes":{"3000":{"label":"web","onAutoForward":"notify"},"7000":{}},)"
           R"("otherPortsAttributes":{"onAutoForward":"ignore"})");
  EXPECT_EQ(oci::PrintJson(made.settings["ports"]),
            R"([{"address":"127.0.0.1","host_port":9000,"label":"web","port":3000},)"
            R"({"address":"127.0.0.1","host_port":0,"port":4000},)"
            R"({"address":"127.0.0.1","host_port":8080,"port":5000},)"
            R"({"address":"127.0.0.1","host_port":0,"port":6000}])");
  EXPECT_EQ(Wrong(R"("forwardPorts":["db:5432"])").code, Code::kUnsupported);
  EXPECT_EQ(Wrong(R"("forwardPorts":["db:5432"])").field, "forwardPorts[0]");
  EXPECT_EQ(Wrong(R"("forwardPorts":[70000])").field, "forwardPorts[0]");
  EXPECT_EQ(Wrong(R"("appPort":"x")").field, "appPort");
  EXPECT_EQ(Wrong(R"("forwardPorts":[53])").field, "ports[0].port");
}

TEST(Devcontainer, UnknownPropertiesAreRefused) {
  EXPECT_EQ(Wrong(R"("imgae":"y")").field, "imgae");
  EXPECT_EQ(Wrong(R"("hostRequirements":{"cores":1})").field, "hostRequirements.cores");
  EXPECT_EQ(Wrong(R"("customizations":{"hutch":{"image":"y"}})").field,
            "customizations.hutch.image");
  EXPECT_EQ(Wrong(R"("customizations":{"hutch":{"limits":{"memory":1}}})").field,
            "customizations.hutch.limits.memory");
}

TEST(Devcontainer, OtherToolsCustomizationsAreTheirs) {
  EXPECT_EQ(Made(R"("customizations":{"vscode":{"extensions":["a.b"],"settings":{"x":1}}})").image,
            "x");
}

TEST(Devcontainer, ValuesOfFixedMeaning) {
  EXPECT_EQ(Made(R"("init":true,"privileged":false,"overrideCommand":true,"shutdownAction":"none",
                    "updateRemoteUserUID":false,"userEnvProbe":"none","$schema":"https://x",
                    "securityOpt":["no-new-privileges","no-new-privileges:true"])")
                .settings,
            Json({{"image", "x"}}));
  EXPECT_EQ(Wrong(R"("init":false)").field, "init");
  EXPECT_EQ(Wrong(R"("privileged":true)").field, "privileged");
  EXPECT_EQ(Wrong(R"("overrideCommand":false)").field, "overrideCommand");
  EXPECT_EQ(Wrong(R"("shutdownAction":"stopCompose")").field, "shutdownAction");
  EXPECT_EQ(Wrong(R"("userEnvProbe":"loginShell")").field, "userEnvProbe");
  EXPECT_EQ(Wrong(R"("securityOpt":["seccomp=unconfined"])").field, "securityOpt");
  EXPECT_EQ(Wrong(R"("init":"yes")").code, Code::kInvalidArgument);
}

TEST(Devcontainer, EnvironmentsOfTheContainerAndOfCommands) {
  const Template made = Made(R"("containerEnv":{"A":"1","B":"${localEnv:HOME:/h}"},
                                "remoteEnv":{"PATH":"/x:${containerEnv:PATH}","C":null})");
  EXPECT_EQ(made.settings["env"], Json({{"A", "1"}, {"B", "/h"}}));
  const Result<RemoteEnv> resolved = ResolveRemoteEnv(made.remote_env, {"PATH=/bin", "C=3"});
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->at("PATH"), "/x:/bin");
  EXPECT_EQ(resolved->at("C"), std::nullopt);
}

TEST(Devcontainer, VariablesOfTheContainerHaveDefaults) {
  const auto resolve = [](const char* text) {
    return *ResolveRemoteEnv({{"A", text}}, {"X=x", "XY=xy", "E="})->at("A");
  };
  EXPECT_EQ(resolve("${containerEnv:X}-${containerEnv:XY}"), "x-xy");
  EXPECT_EQ(resolve("${containerEnv:N}"), "");
  EXPECT_EQ(resolve("${containerEnv:N:a:b}"), "a:b");
  EXPECT_EQ(resolve("${containerEnv:E:d}"), "");
  EXPECT_EQ(resolve("${containerEnv:X"), "${containerEnv:X");
}

TEST(Devcontainer, AResolvedEnvironmentIsBounded) {
  std::string many;
  for (int i = 0; i < 200; ++i) many += "${containerEnv:X}";
  const auto resolved = ResolveRemoteEnv({{"A", many}}, {"X=" + std::string(1000, 'x')});
  ASSERT_FALSE(resolved.has_value());
  EXPECT_EQ(resolved.error().code, Code::kLimit);
}

TEST(Devcontainer, TheDaemonsOwnEnvironmentIsNeverRead) {
  for (const char* text : {"${localEnv:HOME}", "${env:HOME}", "${containerEnv:A}",
                           "${localWorkspaceFolder}", "${devcontainerId}"}) {
    EXPECT_EQ(Wrong(R"("containerEnv":{"A":")" + std::string(text) + "\"}").field, "containerEnv.A")
        << text;
    EXPECT_EQ(Wrong(R"("postCreateCommand":["echo",")" + std::string(text) + "\"]").field,
              "postCreateCommand")
        << text;
  }
  EXPECT_EQ(Wrong(R"("remoteEnv":{"A":"${localEnv:HOME}"})").field, "remoteEnv.A");
}

TEST(Devcontainer, WhatOnlyShellsKnowStays) {
  const Template made =
      Made(R"("postCreateCommand":"echo ${HOME} ${x:-y} ${containerWorkspaceFolder}")");
  ASSERT_EQ(made.stages.size(), 1u);
  EXPECT_EQ(made.stages[0].commands[0].args,
            (std::vector<std::string>{"/bin/sh", "-c", "echo ${HOME} ${x:-y} /workspace"}));
}

TEST(Devcontainer, UsersAndTheWorkspace) {
  EXPECT_EQ(Made(R"("containerUser":"node")").settings["user"], "node");
  EXPECT_EQ(Made(R"("containerUser":"root","remoteUser":"node")").settings["user"], "node");
  const Template made = Made(R"("workspaceFolder":"/srv//app/",
                                "containerEnv":{"W":"${containerWorkspaceFolderBasename}"})");
  EXPECT_EQ(made.settings["workdir"], "/srv/app");
  EXPECT_EQ(made.settings["env"]["W"], "app");
  ASSERT_EQ(made.directories.size(), 1u);
  EXPECT_TRUE(made.directories[0].only_if_missing);
  EXPECT_EQ(Wrong(R"("workspaceFolder":"app")").field, "workspaceFolder");
  EXPECT_EQ(Wrong(R"("workspaceFolder":"/a/../b")").field, "workspaceFolder");
  EXPECT_EQ(Wrong(R"("workspaceFolder":"/proc/x")").field, "workspaceFolder");
}

TEST(Devcontainer, MountsOfNamedVolumesAreVolumes) {
  const Template made = Made(R"("mounts":["source=data,target=/data,readonly",
                                          {"type":"volume","source":"b","target":"/b"},
                                          "type=volume,target=/anonymous"])");
  EXPECT_EQ(oci::PrintJson(made.settings["volumes"]),
            R"([{"name":"data","readonly":true,"size_bytes":1073741824,"target":"/data"},)"
            R"({"name":"b","readonly":false,"size_bytes":1073741824,"target":"/b"}])");
  ASSERT_EQ(made.directories.size(), 1u);
  EXPECT_EQ(made.directories[0].path, "/anonymous");
  EXPECT_TRUE(made.directories[0].users);
  EXPECT_EQ(Wrong(R"("mounts":["source=../x,target=/v"])").code, Code::kInvalidArgument);
  EXPECT_EQ(Wrong(R"("mounts":["source=v,target=/v,volume-driver=x"])").code, Code::kUnsupported);
}

TEST(Devcontainer, MountsOfAHostAreRefused) {
  const Template made = Made(R"("mounts":["type=tmpfs,target=/cache,tmpfs-mode=700",
                                          {"type":"tmpfs","target":"/data"}])");
  ASSERT_EQ(made.directories.size(), 2u);
  EXPECT_EQ(made.directories[0].path, "/cache");
  EXPECT_EQ(made.directories[0].mode, 0700u);
  EXPECT_EQ(made.directories[1].mode, 01777u);
  const auto mount = [](const std::string& one) { return Wrong("\"mounts\":[" + one + "]"); };
  EXPECT_THAT(mount(R"("type=bind,source=/,target=/host")").what, HasSubstr("bind"));
  EXPECT_EQ(mount(R"({"type":"bind","source":"/","target":"/x"})").field, "mounts[0]");
  EXPECT_EQ(mount(R"("type=tmpfs,target=/x,tmpfs-size=1g")").code, Code::kUnsupported);
  EXPECT_EQ(mount(R"("type=tmpfs,target=/x,type=bind")").code, Code::kInvalidArgument);
  EXPECT_EQ(mount(R"("type=tmpfs,target=/proc/sys")").code, Code::kInvalidArgument);
  EXPECT_EQ(mount(R"("type=tmpfs,target=/x,tmpfs-mode=9")").code, Code::kInvalidArgument);
  EXPECT_EQ(mount(R"("type=tmpfs")").code, Code::kInvalidArgument);
}

TEST(Devcontainer, MountsAreBounded) {
  std::string many = R"("type=tmpfs,target=/a0")";
  for (size_t i = 1; i <= kMaxWritableDirectories; ++i)
    many += R"(,"type=tmpfs,target=/a)" + std::to_string(i) + "\"";
  EXPECT_EQ(Wrong("\"mounts\":[" + many + "]").field, "mounts");
  std::string deep = "/d";
  for (size_t i = 0; i < kMaxWritableDirectoryDepth; ++i) deep += "/d";
  EXPECT_EQ(Wrong(R"("mounts":["type=tmpfs,target=)" + deep + "\"]").field, "mounts[0]");
}

TEST(Devcontainer, NeedsBecomeLeastLimits) {
  const Template made =
      Made(R"("hostRequirements":{"cpus":2,"memory":"2gb","storage":"16kb","gpu":"optional"})");
  EXPECT_EQ(made.settings["limits"], Json({{"cpus", 2.0}, {"memory_bytes", 2ull << 30}}));
  SandboxFields fields;
  fields.cpus = 2;
  fields.memory_bytes = (2ull << 30) - 1;
  fields.disk_bytes = 1u << 30;
  EXPECT_EQ(CheckNeeds(made.needs, fields).error().field, "limits.memory_bytes");
  fields.memory_bytes = 2ull << 30;
  EXPECT_TRUE(CheckNeeds(made.needs, fields).has_value());
  EXPECT_EQ(Wrong(R"("hostRequirements":{"gpu":true})").field, "hostRequirements.gpu");
  EXPECT_EQ(Wrong(R"("hostRequirements":{"memory":"2 GB"})").field, "hostRequirements.memory");
  EXPECT_EQ(Wrong(R"("hostRequirements":{"memory":"99999999tb"})").field,
            "hostRequirements.memory");
  EXPECT_EQ(Wrong(R"("hostRequirements":{"memory":"2gb"},
                     "customizations":{"hutch":{"limits":{"memory_bytes":8388608}}})")
                .field,
            "hostRequirements.memory");
  Config config;
  config.ceilings.memory_bytes = 1u << 30;
  EXPECT_EQ(Wrong(R"("hostRequirements":{"memory":"2gb"})", config).code, Code::kLimit);
}

TEST(Devcontainer, CommandsInTheirThreeForms) {
  const Template made = Made(R"("postStartCommand":["a","b c"],"onCreateCommand":"x && y",
                                "postCreateCommand":{"one":"1","two":["2"]})");
  ASSERT_EQ(made.stages.size(), 3u);
  EXPECT_STREQ(made.stages[0].property, "onCreateCommand");
  EXPECT_EQ(made.stages[0].commands[0].args, (std::vector<std::string>{"/bin/sh", "-c", "x && y"}));
  EXPECT_STREQ(made.stages[1].property, "postCreateCommand");
  ASSERT_EQ(made.stages[1].commands.size(), 2u);
  EXPECT_EQ(made.stages[1].commands[1].name, "two");
  EXPECT_STREQ(made.stages[2].property, "postStartCommand");
  EXPECT_EQ(made.stages[2].commands[0].args, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(made.awaited, 3u);
  for (const char* value : {"1", "\" \"", "[1]", "[\"\"]", "{\"a\":{\"b\":\"c\"}}", "\"a\\u0000\""})
    EXPECT_THAT(Wrong("\"postCreateCommand\":" + std::string(value)).field,
                HasSubstr("postCreateCommand"))
        << value;
}

TEST(Devcontainer, CommandsAreBounded) {
  std::string many = R"("c":"true")";
  for (size_t i = 0; i < kMaxTemplateCommands; ++i)
    many += ",\"c" + std::to_string(i) + R"(":"true")";
  EXPECT_EQ(Wrong("\"postCreateCommand\":{" + many + "}").field, "postCreateCommand");
}

TEST(Devcontainer, WaitForSaysWhatTheAnswerWaitsFor) {
  const std::string commands =
      R"(,"onCreateCommand":"1","postCreateCommand":"2","postStartCommand":"3")";
  const auto awaited = [&](const std::string& stage) {
    return Made("\"waitFor\":\"" + stage + "\"" + commands).awaited;
  };
  EXPECT_EQ(awaited("initializeCommand"), 0u);
  EXPECT_EQ(awaited("onCreateCommand"), 1u);
  EXPECT_EQ(awaited("updateContentCommand"), 1u);
  EXPECT_EQ(awaited("postCreateCommand"), 2u);
  EXPECT_EQ(awaited("postStartCommand"), 3u);
  EXPECT_EQ(Wrong(R"("waitFor":"nothing")").field, "waitFor");
}

TEST(Devcontainer, OurCustomizationsAreARequest) {
  const Template made = Made(R"("containerEnv":{"A":"1","B":"2"},"customizations":{"hutch":{
      "description":"d","limits":{"pids":99},"timeouts":{"idle_seconds":5},"env":{"B":"3"},
      "labels":{"l":"m"},"rootfs":{"readonly":false},"workdir":"/tmp","user":"root","proc":"pids"}})");
  EXPECT_EQ(made.description, "d");
  EXPECT_EQ(made.settings, Json::parse(R"({"image":"x","limits":{"pids":99},
      "timeouts":{"idle_seconds":5},"env":{"A":"1","B":"3"},"labels":{"l":"m"},
      "rootfs":{"readonly":false},"workdir":"/tmp","user":"root","proc":"pids"})"));
  Config config;
  config.ceilings.pids = 50;
  config.defaults.pids = 50;
  const Error error = Wrong(R"("customizations":{"hutch":{"limits":{"pids":99}}})", config);
  EXPECT_EQ(error.field, "customizations.hutch.limits.pids");
  EXPECT_EQ(error.code, Code::kLimit);
}

TEST(Devcontainer, OnlyTheOperatorLetsTemplatesWeaken) {
  const std::string relax = R"("customizations":{"hutch":{"relax":{"proc":"full"}}})";
  const Error error = Wrong(relax);
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_EQ(error.field, "customizations.hutch.relax");
  EXPECT_EQ(Made(relax, Relaxed()).settings["relax"], Json({{"proc", "full"}}));
}

TEST(Devcontainer, TheRequestWinsMemberByMember) {
  const Json settings = Json::parse(
      R"({"image":"x","user":"u","env":{"A":"1","B":"2"},"limits":{"pids":9,"cpus":1}})");
  EXPECT_EQ(MergeRequest(settings, Json::parse(R"({"user":null,"env":{"B":"3","A":null},
                                                   "limits":{"pids":7},"labels":{"l":"m"}})")),
            Json::parse(R"({"image":"x","env":{"B":"3"},"limits":{"pids":7,"cpus":1},
                            "labels":{"l":"m"}})"));
  EXPECT_EQ(MergeRequest(Json::object(), Json::parse(R"({"env":{"A":null,"B":"1"},"user":null})")),
            Json::parse(R"({"env":{"B":"1"}})"));
}

}  // namespace
}  // namespace hutch::daemon
