#include "oci/seccomp_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hutch::oci {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Docker's shape: archMap, comments, conditions, empty objects, null.
constexpr char kDockerFile[] = R"({
  "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
  "archMap": [
    {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
    {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
    {"architecture": "SCMP_ARCH_S390X", "subArchitectures": null}],
  "syscalls": [
    {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "args": [], "comment": "",
     "includes": {}, "excludes": {}},
    {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW", "args": null,
     "includes": {"minKernel": "4.8"}},
    {"name": "clone", "action": "SCMP_ACT_ALLOW",
     "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
     "excludes": {"caps": ["CAP_SYS_ADMIN"], "arches": ["s390", "s390x"]}},
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38,
     "excludes": {"caps": ["CAP_SYS_ADMIN"]}}]})";

TEST(SeccompJson, ReadsDockersProfileFile) {
  auto profile = ParseSeccompProfile(kDockerFile);
  ASSERT_TRUE(profile.has_value()) << profile.error().ToString();
  EXPECT_EQ(profile->default_action, "SCMP_ACT_ERRNO");
  EXPECT_EQ(profile->default_errno_ret, 1u);
  EXPECT_THAT(profile->architectures,
              ElementsAre("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64",
                          "SCMP_ARCH_ARM", "SCMP_ARCH_S390X"));
  ASSERT_EQ(profile->syscalls.size(), 4u);
  EXPECT_THAT(profile->syscalls[0].names, ElementsAre("read", "write"));
  EXPECT_EQ(profile->syscalls[1].includes_min_kernel, "4.8");
  EXPECT_THAT(profile->syscalls[2].names, ElementsAre("clone"));
  ASSERT_EQ(profile->syscalls[2].args.size(), 1u);
  EXPECT_EQ(profile->syscalls[2].args[0].value, 2114060288u);
  EXPECT_EQ(profile->syscalls[2].args[0].op, "SCMP_CMP_MASKED_EQ");
  EXPECT_THAT(profile->syscalls[2].excludes_arches, ElementsAre("s390", "s390x"));
  EXPECT_THAT(profile->syscalls[3].excludes_caps, ElementsAre("CAP_SYS_ADMIN"));
  EXPECT_EQ(profile->syscalls[3].errno_ret, 38u);
}

TEST(SeccompJson, ReadsPodmansErrnoNames) {
  auto profile =
      ParseSeccompProfile(R"({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrno": "ENOSYS",
    "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_ERRNO",
                  "errnoRet": 1, "errno": "EPERM"}]})");
  ASSERT_TRUE(profile.has_value()) << profile.error().ToString();
  EXPECT_EQ(profile->default_errno_ret, 38u);
  EXPECT_EQ(profile->syscalls[0].errno_ret, 1u);
}

TEST(SeccompJson, RuntimeSpecIgnoresUnknownMembersAndAFileDoesNot) {
  const std::string text = R"({"defaultAction": "SCMP_ACT_ALLOW", "org.example": 1})";
  auto json = ParseJson(text);
  ASSERT_TRUE(json.has_value());
  EXPECT_TRUE(ParseSeccomp(*json, "linux.seccomp", SeccompDialect::kRuntimeSpec).has_value());
  auto file = ParseSeccompProfile(text);
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().what, HasSubstr("org.example"));
}

struct BadCase {
  const char* text;
  const char* field;
};

TEST(SeccompJson, ErrorsNameTheField) {
  const BadCase cases[] = {
      {R"({})", "defaultAction"},
      {R"({"defaultAction": 1})", "defaultAction"},
      {R"({"defaultAction": "A", "defaultErrnoRet": -1})", "defaultErrnoRet"},
      {R"({"defaultAction": "A", "defaultErrnoRet": 65536})", "defaultErrnoRet"},
      {R"({"defaultAction": "A", "defaultErrnoRet": 1, "defaultErrno": "EPERMM"})", "defaultErrno"},
      {R"({"defaultAction": "A", "defaultErrnoRet": 1, "defaultErrno": "ENOSYS"})", "defaultErrno"},
      {R"({"defaultAction": "A", "syscalls": {}})", "syscalls"},
      {R"({"defaultAction": "A", "syscalls": [3]})", "syscalls[0]"},
      {R"({"defaultAction": "A", "syscalls": [{"action": "B"}]})", "syscalls[0].names"},
      {R"({"defaultAction": "A", "syscalls": [{"names": [], "action": "B"}]})",
       "syscalls[0].names"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"]}]})", "syscalls[0].action"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"], "name": "y", "action": "B"}]})",
       "syscalls[0].name"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"], "action": "B", "arg": []}]})",
       "syscalls[0].arg"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"], "action": "B",
          "args": [{"index": 6, "op": "C"}]}]})",
       "syscalls[0].args[0].index"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"], "action": "B",
          "args": [{"index": 1}]}]})",
       "syscalls[0].args[0].op"},
      {R"({"defaultAction": "A", "syscalls": [{"names": ["x"], "action": "B",
          "includes": {"cap": ["CAP_X"]}}]})",
       "syscalls[0].includes.cap"},
      {R"({"defaultAction": "A", "archMap": [{}]})", "archMap[0].architecture"},
      {R"({"defaultAction": "A", "architectures": ["P"], "archMap": [{"architecture": "Q"}]})",
       "archMap"},
  };
  for (const BadCase& bad : cases) {
    auto profile = ParseSeccompProfile(bad.text);
    ASSERT_FALSE(profile.has_value()) << bad.text;
    EXPECT_EQ(profile.error().code, Code::kInvalidArgument) << bad.text;
    EXPECT_EQ(profile.error().field, bad.field) << bad.text;
  }
}

TEST(SeccompJson, AnUnknownConditionIsRefusedInARuntimeSpecToo) {
  auto json = ParseJson(R"({"defaultAction": "A", "syscalls": [
      {"names": ["mount"], "action": "B", "includes": {"moon": "full"}}]})");
  ASSERT_TRUE(json.has_value());
  EXPECT_FALSE(ParseSeccomp(*json, "linux.seccomp", SeccompDialect::kRuntimeSpec).has_value());
}

TEST(SeccompJson, ListenersAreUnsupported) {
  auto profile = ParseSeccompProfile(R"({"defaultAction": "A", "listenerPath": "/run/x.sock"})");
  ASSERT_FALSE(profile.has_value());
  EXPECT_EQ(profile.error().code, Code::kUnsupported);
  EXPECT_EQ(profile.error().field, "listenerPath");
}

}  // namespace
}  // namespace hutch::oci
