#include "tools/request_bodies.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "tools/client.h"

namespace hutch::tools {
namespace {

bool IsBase64(const std::string& text) {
  std::string bytes;
  return Base64Decode(text, &bytes);
}

std::string Decoded(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(Base64Decode(text, &bytes)) << text;
  return bytes;
}

TEST(CreateBody, HoldsOnlyWhatWasSaid) {
  Options options;
  options.image = "python";
  EXPECT_EQ(oci::PrintJson(*PlanCreateBody(options)), R"({"image":"python"})");
}

TEST(CreateBody, PortsAreReadFromTheirEnd) {
  const auto port = [](const char* text) {
    const auto json = PlanPort("--publish", text);
    return json ? oci::PrintJson(*json) : json.error().field;
  };
  EXPECT_EQ(port("3000"), R"({"port":3000})");
  EXPECT_EQ(port("8080:3000"), R"({"host_port":8080,"port":3000})");
  EXPECT_EQ(port("127.0.0.1:8080:3000"), R"({"address":"127.0.0.1","host_port":8080,"port":3000})");
  EXPECT_EQ(port("127.0.0.1::3000"), R"({"address":"127.0.0.1","port":3000})");
  EXPECT_EQ(port("[::1]:8080:3000"), R"({"address":"::1","host_port":8080,"port":3000})");
  for (const char* wrong : {"", "x", "0", "70000", ":3000", "3000:", "x:3000", "8080:3000/tcp"})
    EXPECT_EQ(port(wrong), "--publish") << wrong;
  Options options;
  options.image = "python";
  options.publish = {"3000", "8080:4000"};
  EXPECT_EQ(oci::PrintJson((*PlanCreateBody(options))["ports"]),
            R"([{"port":3000},{"host_port":8080,"port":4000}])");
}

TEST(CreateBody, TurnsUnitsIntoTheApis) {
  Options options;
  options.image = "python";
  options.memory = "256MiB";
  options.cpus = "0.5";
  options.pids = "64";
  options.idle = "5m";
  options.lifetime = "0";
  options.labels = {"team=a=b"};
  options.env = {"EMPTY="};
  options.writable = true;
  options.relax_proc_full = true;
  options.relax_new_privileges = true;
  const auto body = PlanCreateBody(options);
  ASSERT_TRUE(body);
  const oci::Json expected = {
      {"image", "python"},
      {"limits", {{"memory_bytes", 268435456}, {"cpus", 0.5}, {"pids", 64}}},
      {"timeouts", {{"idle_seconds", 300}, {"lifetime_seconds", 0}}},
      {"labels", {{"team", "a=b"}}},
      {"env", {{"EMPTY", ""}}},
      {"rootfs", {{"readonly", false}}},
      {"relax", {{"proc", "full"}, {"no_new_privileges", false}}}};
  EXPECT_EQ(*body, expected);
}

TEST(CreateBody, SaysWhatTheSandboxMayReach) {
  Options options;
  options.image = "python";
  options.allow = {"pkgs.example.org", R"({"host":"a.org","methods":["GET"]})"};
  options.join = {"ws"};
  options.net_limits = {"rate=1MiB", "total=1GiB", "connections=100"};
  const oci::Json expected = {
      {"mode", "allowlist"},
      {"allow", {"pkgs.example.org", {{"host", "a.org"}, {"methods", {"GET"}}}}},
      {"join", {"ws"}},
      {"limits",
       {{"bytes_per_second", 1048576}, {"total_bytes", 1073741824}, {"connections", 100}}}};
  EXPECT_EQ(PlanCreateBody(options)->at("network"), expected);
  options = {};
  options.network = "open";
  EXPECT_EQ(*PlanNetwork(options), oci::Json({{"mode", "open"}}));
  options.network.clear();
  EXPECT_TRUE(PlanNetwork(options)->is_null());
  for (const char* limit : {"rate", "rate=", "rate=x", "speed=1", "connections=-1", "=1"}) {
    options.net_limits = {limit};
    EXPECT_EQ(PlanNetwork(options).error().field, "--net-limit") << limit;
  }
  options = {};
  options.allow = {"{"};
  EXPECT_EQ(PlanNetwork(options).error().field, "--allow");
}

TEST(CreateBody, NamesTheOptionAtFault) {
  Options options;
  options.memory = "lots";
  EXPECT_EQ(PlanCreateBody(options).error().field, "--memory");
  options.memory.clear();
  options.env = {"=x"};
  EXPECT_EQ(PlanCreateBody(options).error().field, "--env");
  options.env.clear();
  options.relax_seccomp = "/nonexistent";
  EXPECT_EQ(PlanCreateBody(options).error().field, "--relax-seccomp");
}

TEST(ExecBody, TextOrBytes) {
  Options options;
  options.command = {"cat"};
  EXPECT_EQ((*PlanExecBody(options, "hé", ExecIn::kExistingSandbox))["stdin"], "hé");
  const std::string bytes("\xff\0x", 3);
  const auto body = PlanExecBody(options, bytes, ExecIn::kExistingSandbox);
  EXPECT_EQ(Decoded((*body)["stdin_base64"].get<std::string>()), bytes);
}

TEST(ExecBody, RunsOwnSandboxHasTheEnvironmentAlready) {
  Options options;
  options.command = {"true"};
  options.env = {"A=1"};
  options.user = "root";
  options.timeout = "1.5m";
  const oci::Json own = {{"command", {"true"}}, {"timeout_seconds", 90.0}};
  EXPECT_EQ(*PlanExecBody(options, "", ExecIn::kOwnSandbox), own);
  const auto existing = PlanExecBody(options, "", ExecIn::kExistingSandbox);
  EXPECT_EQ((*existing)["user"], "root");
  EXPECT_EQ((*existing)["env"]["A"], "1");
}

TEST(ListQuery, IsEncoded) {
  Options options;
  EXPECT_EQ(PlanListQuery(options), "");
  options.selectors = {"a=b c", "x=&"};
  options.state = "running";
  EXPECT_EQ(PlanListQuery(options), "?label=a%3db%20c&label=x%3d%26&state=running");
}

TEST(Targets, SegmentsCannotLeaveTheirPlace) {
  EXPECT_EQ(EncodeSegment("python:latest"), "python:latest");
  EXPECT_EQ(EncodeSegment("../a/b?c#d\r\n"), "..%2fa%2fb%3fc%23d%0d%0a");
}

TEST(Base64, BothWays) {
  for (const std::string& bytes : {std::string(), std::string("f"), std::string("fo"),
                                   std::string("foo"), std::string("\0\xff\x80", 3)})
    EXPECT_EQ(Decoded(Base64Encode(bytes)), bytes);
  EXPECT_EQ(Base64Encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Base64Encode("fo"), "Zm8=");
  for (const char* bad : {"A", "AAA", "A===", "A=AA", "AA*A", "===="})
    EXPECT_FALSE(IsBase64(bad)) << bad;
}

TEST(Errors, AreReadFromReplies) {
  const Error error = ErrorFromReply(
      409,
      R"({"error":{"code":"exists","message":"taken","field":"name","hint":"another","step":"reserve id","errno":"EEXIST"}})");
  EXPECT_EQ(error.code, Code::kExists);
  EXPECT_EQ(error.what, "reserve id: taken");
  EXPECT_EQ(error.field, "name");
  EXPECT_EQ(error.hint, "another");
  EXPECT_EQ(error.sys, EEXIST);
  EXPECT_EQ(ErrorFromReply(502, "<html>").code, Code::kInternal);
  EXPECT_EQ(ErrorFromReply(400, R"({"error":{"code":"new_one","message":"m"}})").code,
            Code::kInvalidArgument);
}

TEST(ProcessBody, TellsTerminalsAndOpenInputApart) {
  Options options;
  options.command = {"sh"};
  options.timeout = "5m";
  options.env = {"A=1"};
  const TerminalSize size = {.rows = 3, .columns = 4};
  auto plain = PlanProcessBody(options, "in", size, ExecIn::kExistingSandbox);
  ASSERT_TRUE(plain);
  EXPECT_EQ(*plain, oci::Json::parse(R"({"command": ["sh"], "timeout_seconds": 300.0,
      "env": {"A": "1"}, "stdin": "in"})"));
  options.interactive = true;
  auto open = PlanProcessBody(options, "", size, ExecIn::kOwnSandbox);
  EXPECT_TRUE((*open)["stdin_open"]);
  EXPECT_FALSE(open->contains("env"));
  options.terminal = true;
  options.command.clear();
  auto terminal = PlanProcessBody(options, "", size, ExecIn::kOwnSandbox);
  EXPECT_EQ((*terminal)["terminal"], oci::Json::parse(R"({"rows": 3, "columns": 4})"));
  EXPECT_FALSE(terminal->contains("stdin_open"));
  EXPECT_FALSE(terminal->contains("command"));
}

TEST(LogsQuery, OnlyWhatWasSaid) {
  Options options;
  const WallTime now = *ParseRfc3339("2026-01-31T09:00:00.000Z");
  EXPECT_EQ(*PlanLogsQuery(options, now), "");
  options.tail = "4KiB";
  options.since = "1h";
  options.stream = "stderr";
  EXPECT_EQ(*PlanLogsQuery(options, now),
            "&tail_bytes=4096&since=2026-01-31T08:00:00.000Z&stream=stderr");
  options.tail = "x";
  EXPECT_FALSE(PlanLogsQuery(options, now));
}

}  // namespace
}  // namespace hutch::tools
