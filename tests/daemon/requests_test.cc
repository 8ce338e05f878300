// Requests as data: parsing, the spec that follows, records that survive a restart, users of
// images.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>

#include "base/file.h"
#include "daemon/create_request.h"
#include "daemon/exec_request.h"
#include "daemon/image_users.h"
#include "daemon/limits.h"
#include "daemon/sandbox_record.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

Result<SandboxFields> Parse(const std::string& text, const Config& config = {}) {
  const Result<oci::Json> json = oci::ParseJson(text, {.max_bytes = kMaxBodyBytes});
  EXPECT_TRUE(json.has_value()) << text;
  return ParseSandboxFields(*json, config);
}

std::string FieldAtFault(const std::string& text) {
  const Result<SandboxFields> fields = Parse(text);
  return fields.has_value() ? "" : fields.error().field;
}

Result<ResolvedUser> NoUsers(const std::string& user) { return ResolveUser({}, user); }

oci::Spec Spec(const std::string& text, const oci::ImageConfig& image = {}) {
  const Result<SandboxFields> fields = Parse(text);
  EXPECT_TRUE(fields.has_value());
  const Result<oci::Spec> spec = BuildSpec(*fields, image, NoUsers);
  EXPECT_TRUE(spec.has_value());
  return *spec;
}

TEST(SandboxFields, DefaultsAreTheOperators) {
  Config config;
  config.defaults.memory_bytes = 77u << 20;
  config.defaults.idle_seconds = 5;
  const Result<SandboxFields> fields = Parse(R"({"image":"x"})", config);
  ASSERT_TRUE(fields.has_value());
  EXPECT_EQ(fields->memory_bytes, 77u << 20);
  EXPECT_EQ(fields->timeouts.idle_seconds, 5u);
  EXPECT_TRUE(fields->readonly_root);
  EXPECT_TRUE(fields->no_new_privileges);
}

TEST(SandboxFields, WhatIsWrongIsNamed) {
  EXPECT_EQ(FieldAtFault("{}"), "image");
  EXPECT_EQ(FieldAtFault(R"({"image":""})"), "image");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","colour":1})"), "colour");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","name":"-a"})"), "name");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","name":"sb-aaaaaaaaaaaaaaaa"})"), "name");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","name":"a/b"})"), "name");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","limits":{"memory_bytes":1}})"), "limits.memory_bytes");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","limits":{"pids":1}})"), "limits.pids");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","limits":{"disk_bytes":1}})"), "limits.disk_bytes");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","limits":{"cpus":0}})"), "limits.cpus");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","limits":{"cpus":"1"}})"), "limits.cpus");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","workdir":"relative"})"), "workdir");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","env":{"":"1"}})"), "env");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","env":{"A":1}})"), "env");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","network":{"mode":"host"}})"), "network.mode");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","network":{"mode":"allowlist","allow":["*"]}})"),
            "network.allow[0]");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","timeouts":{"idle":1}})"), "timeouts.idle");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","relax":{"proc":"half"}})"), "relax.proc");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","relax":{"everything":true}})"), "relax.everything");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","relax":{"seccomp":{"defaultActon":"x"}}})").substr(0, 13),
            "relax.seccomp");
}

TEST(SandboxFields, NamesAreBounded) {
  EXPECT_EQ(FieldAtFault("{\"image\":\"x\",\"name\":\"" + std::string(kMaxNameBytes, 'n') + "\"}"),
            "");
  EXPECT_EQ(
      FieldAtFault("{\"image\":\"x\",\"name\":\"" + std::string(kMaxNameBytes + 1, 'n') + "\"}"),
      "name");
}

TEST(SandboxFields, LabelsAreBounded) {
  std::string labels;
  for (size_t i = 0; i <= kMaxLabels; ++i)
    labels += (i ? ",\"l" : "\"l") + std::to_string(i) + "\":\"\"";
  EXPECT_EQ(FieldAtFault("{\"image\":\"x\",\"labels\":{" + labels + "}}"), "labels");
  EXPECT_EQ(FieldAtFault(R"({"image":"x","labels":{"k":")" + std::string(kMaxLabelBytes + 1, 'v') +
                         "\"}}"),
            "labels.k");
}

TEST(SandboxFields, EnvironmentsAreBounded) {
  std::string many;
  for (size_t i = 0; i <= kMaxEnvEntries; ++i)
    many += (i ? ",\"E" : "\"E") + std::to_string(i) + "\":\"\"";
  EXPECT_EQ(FieldAtFault("{\"image\":\"x\",\"env\":{" + many + "}}"), "env");
  std::string large;
  for (size_t i = 0; i < 3; ++i)
    large += (i ? ",\"E" : "\"E") + std::to_string(i) + "\":\"" +
             std::string(kMaxEnvBytes / 2 - 100, 'v') + "\"";
  EXPECT_EQ(FieldAtFault("{\"image\":\"x\",\"env\":{" + large + "}}").substr(0, 3), "env");
}

TEST(SandboxFields, PathsAreBounded) {
  EXPECT_EQ(
      FieldAtFault("{\"image\":\"x\",\"workdir\":\"/" + std::string(kMaxPathBytes, 'w') + "\"}"),
      "workdir");
}

TEST(SandboxFields, ADiskOfLessThanTheMinimumIsRefused) {
  EXPECT_EQ(FieldAtFault("{\"image\":\"x\",\"limits\":{\"disk_bytes\":" +
                         std::to_string(kMinDiskBytes - 1) + "}}"),
            "limits.disk_bytes");
  EXPECT_EQ(
      FieldAtFault("{\"image\":\"x\",\"limits\":{\"pids\":" + std::to_string(kMinPids - 1) + "}}"),
      "limits.pids");
}

TEST(SandboxFields, CeilingsOfTheOperatorHold) {
  Config config;
  config.ceilings.memory_bytes = 600u << 20;
  config.ceilings.lifetime_seconds = 90000;
  EXPECT_EQ(Parse(R"({"image":"x","limits":{"memory_bytes":700000000}})", config).error().code,
            Code::kLimit);
  EXPECT_EQ(Parse(R"({"image":"x","timeouts":{"lifetime_seconds":100000}})", config).error().field,
            "timeouts.lifetime_seconds");
  const Result<SandboxFields> never =
      Parse(R"({"image":"x","timeouts":{"lifetime_seconds":0}})", config);
  ASSERT_TRUE(never.has_value());
  EXPECT_EQ(never->timeouts.lifetime_seconds, 90000u);  // as long as the operator allows
}

TEST(BuildSpec, RequestBeatsImageBeatsDefault) {
  oci::ImageConfig image;
  image.env = {"A=image", "B=image", "PATH=/image", "malformed"};
  image.working_dir = "/app";
  const oci::Spec spec = Spec(R"({"image":"x","env":{"B":"request"}})", image);
  EXPECT_THAT(spec.process.env, Contains("A=image"));
  EXPECT_THAT(spec.process.env, Contains("B=request"));
  EXPECT_THAT(spec.process.env, Contains("PATH=/image"));
  EXPECT_THAT(spec.process.env, Contains("LANG=C.UTF-8"));
  EXPECT_THAT(spec.process.env, Not(Contains("B=image")));
  EXPECT_THAT(spec.process.env, Not(Contains("malformed")));
  EXPECT_EQ(spec.process.cwd, "/app");
  EXPECT_EQ(Spec(R"({"image":"x","workdir":"/w"})", image).process.cwd, "/w");
  EXPECT_EQ(Spec(R"({"image":"x"})").process.cwd, "/workspace");
}

TEST(BuildSpec, TheImagesCommandIsItsEntrypointWithItsArguments) {
  oci::ImageConfig image;
  image.entrypoint = {"/entry"};
  image.cmd = {"a", "b"};
  EXPECT_EQ(Spec(R"({"image":"x"})", image).process.args,
            (std::vector<std::string>{"/entry", "a", "b"}));
}

TEST(BuildSpec, AnImageMayHaveNoMoreThanARequest) {
  const auto field = [](const oci::ImageConfig& image) {
    const auto spec = BuildSpec(*Parse(R"({"image":"x"})"), image, NoUsers);
    return spec.has_value() ? "" : spec.error().field;
  };
  oci::ImageConfig image;
  EXPECT_EQ(field(image), "");
  image.env = {"A=" + std::string(kMaxEnvBytes, 'x')};
  EXPECT_EQ(field(image), "image");
  image.env.assign(kMaxEnvEntries + 1, "A=b");
  EXPECT_EQ(field(image), "image");
  image.env.clear();
  image.cmd = {std::string(kMaxEnvBytes, 'x')};
  EXPECT_EQ(field(image), "image");
}

TEST(BuildSpec, UsersOwnTheirDirectories) {
  const oci::Spec spec = Spec(R"({"image":"x","user":"7:8"})");
  EXPECT_EQ(spec.process.user.uid, 7u);
  EXPECT_EQ(spec.process.user.gid, 8u);
  EXPECT_TRUE(spec.process.capabilities.effective.empty());
  for (const oci::Mount& mount : spec.mounts) {
    if (mount.destination == "/workspace") {
      EXPECT_THAT(mount.options, testing::IsSupersetOf({"uid=7", "gid=8"}));
    }
  }
}

TEST(BuildSpec, RootHasTheSevenCapabilities) {
  for (const char* user : {"root", "0", "0:0"}) {
    const oci::Spec spec = Spec(std::string(R"({"image":"x","user":")") + user + "\"}");
    EXPECT_EQ(spec.process.user.uid, 0u);
    EXPECT_EQ(spec.process.capabilities.effective.size(), 7u);
    EXPECT_THAT(spec.process.env, Contains("HOME=/root"));
  }
}

TEST(BuildSpec, LimitsAndRelaxationsReachTheSpec) {
  const oci::Spec spec = Spec(
      R"({"image":"x","limits":{"memory_bytes":8388608,"cpus":0.5,"pids":10,"open_files":65536},
                                  "rootfs":{"readonly":false},"relax":{"proc":"full","no_new_privileges":false}})");
  EXPECT_EQ(spec.linux_.resources.memory_limit_bytes, 8388608u);
  EXPECT_EQ(spec.linux_.resources.memory_swap_bytes, 0u);
  EXPECT_EQ(spec.linux_.resources.cpu_quota_us, 50000u);
  EXPECT_EQ(spec.linux_.resources.pids_limit, 10u);
  EXPECT_FALSE(spec.root.readonly);
  EXPECT_FALSE(spec.process.no_new_privileges);
  EXPECT_FALSE(spec.linux_.masked_paths.empty());
  for (const oci::Rlimit& limit : spec.process.rlimits) {
    if (limit.type == "RLIMIT_NOFILE") {
      EXPECT_EQ(std::make_pair(limit.soft, limit.hard),
                std::make_pair(uint64_t{65536}, uint64_t{65536}));
    }
  }
}

// --- users

constexpr char kPasswd[] =
    "root:x:0:0::/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\nbad:x:-1:0::/:/"
    "\nshort:x:5\n\n";

TEST(ImageUsers, NamesAndNumbersResolve) {
  const ImageUsers users{.users = ParsePasswd(kPasswd),
                         .groups = ParseGroup("staff:x:50:\nbroken\n")};
  EXPECT_EQ(users.users.size(), 2u);
  const auto numbers = [&](const char* user) {
    const Result<ResolvedUser> resolved = ResolveUser(users, user);
    return resolved.has_value()
               ? std::to_string(resolved->uid) + ":" + std::to_string(resolved->gid)
               : resolved.error().field;
  };
  EXPECT_EQ(numbers("node"), "1000:1001");
  EXPECT_EQ(numbers("1000"), "1000:1001");
  EXPECT_EQ(numbers("1000:5"), "1000:5");
  EXPECT_EQ(numbers("node:staff"), "1000:50");
  EXPECT_EQ(numbers("4242"), "4242:4242");
  EXPECT_EQ(numbers("root"), "0:0");
  for (const char* user : {"nobody", "node:nogroup", "bad", "4294967295", "99999999999",
                           "1:4294967295", ":", "-1", "1000:"})
    EXPECT_EQ(numbers(user), "user") << user;
}

TEST(ImageUsers, TheTopmostLayerCountsAndOnlyRegularFiles) {
  const TempDir directory;
  for (const char* layer : {"low", "high", "link"})
    ASSERT_TRUE(MakeDirectories(directory / layer + "/etc", 0755).has_value());
  ASSERT_TRUE(WriteFileAtomic(directory / "low/etc/passwd", "a:x:1:1::/:/\n", Durability::kMemory)
                  .has_value());
  ASSERT_TRUE(WriteFileAtomic(directory / "high/etc/passwd", "b:x:2:2::/:/\n", Durability::kMemory)
                  .has_value());
  ASSERT_EQ(::mkfifo((directory / "link/etc/passwd").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/etc/group", (directory / "link/etc/group").c_str()),
            0);  // inside the layer: not the host's
  std::vector<UniqueFd> fds;
  std::vector<int> layers;
  for (const char* layer : {"low", "high", "link"}) {
    fds.push_back(std::move(Open(directory / layer, O_PATH | O_DIRECTORY).value()));
    layers.push_back(fds.back().get());
  }
  const ImageUsers users = ReadImageUsers(layers);
  ASSERT_EQ(users.users.size(), 1u);
  EXPECT_EQ(users.users[0].name, "b");
  EXPECT_TRUE(users.groups.empty());
}

TEST(ImageUsers, ALargeFileIsIgnored) {
  const TempDir directory;
  ASSERT_TRUE(MakeDirectories(directory / "etc", 0755).has_value());
  ASSERT_TRUE(WriteFileAtomic(directory / "etc/passwd",
                              "a:x:1:1::/:/\n" + std::string(kMaxPasswdBytes, 'x'),
                              Durability::kMemory)
                  .has_value());
  const Result<UniqueFd> layer = Open(directory.path(), O_PATH | O_DIRECTORY);
  EXPECT_TRUE(ReadImageUsers({layer->get()}).users.empty());
}

// --- exec

Result<ExecFields> ParseExec(const std::string& text, const Config& config = {}) {
  const Result<oci::Json> json = oci::ParseJson(text, {.max_bytes = kMaxBodyBytes});
  EXPECT_TRUE(json.has_value()) << text;
  return ParseExecFields(*json, config);
}

TEST(ExecFields, ACommandIsArgumentsOrAShellLine) {
  EXPECT_EQ(ParseExec(R"({"command":["a","b c"]})")->args, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(ParseExec(R"({"command":"a | b"})")->args,
            (std::vector<std::string>{"/bin/sh", "-c", "a | b"}));
}

TEST(ExecFields, WithoutACommandItIsTheImages) {
  ExecFields none = *ParseExec("{}");
  EXPECT_EQ(UseImageCommand({}, &none).error().field, "command");
  EXPECT_EQ(UseImageCommand({""}, &none).error().field, "command");
  ASSERT_TRUE(UseImageCommand({"entry", "arg"}, &none).has_value());
  EXPECT_EQ(none.args, (std::vector<std::string>{"entry", "arg"}));
  ExecFields own = *ParseExec(R"({"command":["a"]})");
  ASSERT_TRUE(UseImageCommand({"entry"}, &own).has_value());
  EXPECT_EQ(own.args, std::vector<std::string>{"a"});
}

TEST(ExecFields, WhatIsWrongIsNamed) {
  const auto field = [](const std::string& text) {
    const Result<ExecFields> fields = ParseExec(text);
    return fields.has_value() ? "" : fields.error().field;
  };
  EXPECT_EQ(field(R"({"command":[]})"), "command");
  EXPECT_EQ(field(R"({"command":[""]})"), "command");
  EXPECT_THAT(field(R"({"command":[1]})"), StartsWith("command"));
  EXPECT_EQ(field(R"({"command":"x","timeout":1})"), "timeout");
  EXPECT_EQ(field(R"({"command":"x","timeout_seconds":-1})"), "timeout_seconds");
  EXPECT_EQ(field(R"({"command":"x","timeout_seconds":3601})"), "timeout_seconds");
  EXPECT_EQ(field(R"({"command":"x","max_output_bytes":100000000})"), "max_output_bytes");
  EXPECT_EQ(field(R"({"command":"x","stdin_base64":"?"})"), "stdin_base64");
  EXPECT_EQ(field(R"({"command":"x","stdin":"a","stdin_base64":"YQ=="})"), "stdin_base64");
  EXPECT_EQ(field(R"({"command":"x","workdir":"w"})"), "workdir");
}

TEST(ExecFields, TooManyArgumentsAreRefused) {
  std::string args = "\"a\"";
  for (size_t i = 0; i < kMaxCommandArgs; ++i) args += ",\"a\"";
  EXPECT_FALSE(ParseExec("{\"command\":[" + args + "]}").has_value());
}

TEST(ExecFields, NoTimeOutMeansTheCeiling) {
  Config config;
  EXPECT_EQ(ParseExec(R"({"command":"x"})", config)->timeout_seconds, 60);
  EXPECT_EQ(ParseExec(R"({"command":"x","timeout_seconds":0})", config)->timeout_seconds, 3600);
  config.ceilings.exec_timeout_seconds = 0;
  EXPECT_EQ(ParseExec(R"({"command":"x","timeout_seconds":0})", config)->timeout_seconds, 0);
}

TEST(ExecFields, StdinMayBeBytes) {
  EXPECT_FALSE(ParseExec(R"({"command":"x"})")->has_stdin);
  EXPECT_EQ(ParseExec(R"({"command":"x","stdin_base64":"AAH/"})")->stdin_bytes,
            std::string("\0\1\xff", 3));
}

TEST(Cause, IsTheFirstThatApplies) {
  constexpr int kExited0 = 0, kKilled = SIGKILL, kSegv = SIGSEGV;
  EXPECT_EQ(DecideCause({.wait_status = kExited0}), Cause::kExited);
  EXPECT_EQ(DecideCause({.timed_out = true, .wait_status = kExited0}), Cause::kExited);
  EXPECT_EQ(DecideCause({.wait_status = kSegv}), Cause::kSignaled);
  EXPECT_EQ(DecideCause({.oom_killed = true, .wait_status = kSegv}), Cause::kSignaled);
  EXPECT_EQ(DecideCause({.oom_killed = true, .wait_status = kKilled}), Cause::kOutOfMemory);
  EXPECT_EQ(DecideCause({.timed_out = true, .oom_killed = true, .wait_status = kKilled}),
            Cause::kTimedOut);
  EXPECT_EQ(DecideCause({.kill_asked = true, .wait_status = kKilled}), Cause::kKilled);
  EXPECT_EQ(DecideCause({.sandbox_ended = true, .wait_status = kKilled}), Cause::kSandboxEnded);
}

// --- records

TEST(SandboxRecord, ReadsBackWhatItSaved) {
  SandboxFacts facts;
  facts.id = "sb-aaaaaaaaaaaaaaaa";
  facts.fields = *Parse(
      R"({"image":"x","name":"n","owner":"o","labels":{"a":"b"},"env":{"E":"1"},"limits":{"cpus":0.25},
                            "relax":{"proc":"full","seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}},"timeouts":{"idle_seconds":0}})");
  facts.image_id = "sha256:1";
  facts.image_reference = "x:latest";
  facts.process.user = {.uid = 5, .gid = 6, .umask = {}, .additional_gids = {}};
  facts.process.env = {"A=b=c"};
  facts.process.cwd = "/w";
  facts.created_at = ParseRfc3339("2026-01-31T09:08:07.006Z").value();
  facts.timings_ms = {{"mounts", 1.5}};
  facts.reported = {"note"};
  const Result<SandboxFacts> loaded = LoadFacts(facts.id, SaveFacts(facts), Config());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().what;
  EXPECT_EQ(SaveFacts(*loaded), SaveFacts(facts));
  EXPECT_EQ(SandboxJson(*loaded, {}, "v2", nullptr), SandboxJson(facts, {}, "v2", nullptr));
  EXPECT_TRUE(loaded->fields.seccomp.has_value());
}

TEST(SandboxRecord, WhatWasGrantedSurvivesLowerCeilings) {
  SandboxFacts facts;
  facts.fields = *Parse(R"({"image":"x","limits":{"memory_bytes":1073741824}})");
  facts.created_at = ParseRfc3339("2026-01-31T09:08:07.006Z").value();
  Config config;
  config.ceilings.memory_bytes = 1;
  EXPECT_TRUE(LoadFacts("sb-a", SaveFacts(facts), config).has_value());
}

TEST(SandboxRecord, DamagedStatesAreErrors) {
  for (const char* text : {"", "{}", "[]", R"({"version":2})", R"({"version":1})",
                           R"({"version":1,"request":{},"created_at":"x"})"})
    EXPECT_FALSE(LoadFacts("sb-a", text, Config()).has_value()) << text;
}

}  // namespace
}  // namespace hutch::daemon
