// What decides who gets a credential, without a network.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/file.h"
#include "rootfs/registry/challenge.h"
#include "rootfs/registry/credentials.h"
#include "rootfs/registry/host_rules.h"
#include "rootfs/registry/limits.h"
#include "rootfs/registry/session.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs::registry {
namespace {

TEST(ChallengeTest, ParsesWhatRegistriesSend) {
  const auto bearer = ParseChallenges(
      "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\","
      "scope=\"repository:library/python:pull\"");
  ASSERT_EQ(bearer.size(), 1u);
  EXPECT_EQ(bearer[0].scheme, "bearer");
  EXPECT_EQ(bearer[0].Parameter("realm"), "https://auth.docker.io/token");
  EXPECT_EQ(bearer[0].Parameter("service"), "registry.docker.io");
  EXPECT_EQ(bearer[0].Parameter("scope"), "repository:library/python:pull");
  EXPECT_EQ(bearer[0].Parameter("error"), "");
  const auto several = ParseChallenges(
      "Negotiate YII=, NEGOTIATE , basic Realm = \"a \\\"quoted\\\" one, with a comma\" , "
      "Bearer realm=https,realm=second");
  ASSERT_EQ(several.size(), 4u);
  EXPECT_EQ(several[2].scheme, "basic");
  EXPECT_EQ(several[2].Parameter("realm"), "a \"quoted\" one, with a comma");
  EXPECT_EQ(several[3].Parameter("realm"), "https");
}

TEST(ChallengeTest, WhatIsMalformedEndsTheList) {
  EXPECT_TRUE(ParseChallenges("").empty());
  EXPECT_TRUE(ParseChallenges("=x").empty());
  EXPECT_TRUE(ParseChallenges("realm=\"x\"").empty());
  EXPECT_TRUE(ParseChallenges("Bearer realm=\"not closed")[0].parameters.empty());
  EXPECT_TRUE(ParseChallenges("Bearer realm=\"not closed\\")[0].parameters.empty());
  EXPECT_EQ(ParseChallenges("Basic \x01 realm=x").size(), 1u);
}

TEST(ChallengeTest, ChallengesAndParametersAreBounded) {
  std::string schemes, parameters = "Bearer ";
  for (size_t i = 0; i < 2 * kMaxChallenges; ++i) schemes += "Basic, ";
  for (size_t i = 0; i < 2 * kMaxChallengeParameters; ++i)
    parameters += "p" + std::to_string(i) + "=1, ";
  EXPECT_EQ(ParseChallenges(schemes).size(), kMaxChallenges);
  EXPECT_EQ(ParseChallenges(parameters)[0].parameters.size(), kMaxChallengeParameters);
}

TEST(DockerConfigTest, FindsCredentialsByHost) {
  const auto config = ParseDockerConfig(
      R"({"auths":{"https://index.docker.io/v1/":{"auth":")" + Base64Encode("me:pass:word") +
      R"("},"r.example:5000":{"username":"u","password":"p","email":"x"},)"
      R"("tokens.example":{"auth":"","identitytoken":"id"},"empty.example":{},)"
      R"("deep.example/team":{"username":"u","password":"p"}},)"
      R"("credHelpers":{"gcr.example":"gcloud"},"credsStore":"pass","HttpHeaders":{"a":"b"}})");
  ASSERT_TRUE(config.has_value()) << config.error().what;
  EXPECT_EQ(config->auths.size(), 3u);
  EXPECT_EQ(config->auths.at("docker.io").username, "me");
  EXPECT_EQ(config->auths.at("docker.io").password, "pass:word");
  EXPECT_EQ(config->auths.at("r.example:5000").password, "p");
  EXPECT_EQ(config->auths.at("tokens.example").identity_token, "id");
  EXPECT_EQ(config->helpers.at("gcr.example"), "gcloud");
  EXPECT_EQ(config->default_helper, "pass");
}

TEST(DockerConfigTest, WhatIsWrongIsRefusedWithoutItsText) {
  for (const std::string text :
       {"", "[]", "{\"auths\":[]}", "{\"auths\":{\"a\":{\"auth\":\"s3cret!\"}}}",
        "{\"auths\":{\"a\":{\"auth\":\"czNjcmV0\"}}}", "{\"auths\":{\"a\":\"s3cret\"}}",
        "{\"auths\":{\"a\":{\"password\":7}}}", "{\"auths\":{\"s3cret",
        "{\"auths\":{\"a\":{\"s3cret\":1,\"s3cret\":2}}}", "{\"credsStore\":\"../evil\"}",
        "{\"credHelpers\":{\"a.b\":\"/bin/sh\"}}"}) {
    const auto config = ParseDockerConfig(text);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_EQ(config.error().ToString().find("s3cret"), std::string::npos);
  }
  const std::string large(kMaxAuthFileBytes + 1, ' ');
  EXPECT_FALSE(ParseDockerConfig(large).has_value());
}

class AuthFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& text, mode_t mode) {
    const std::string path = work_ / "config.json";
    EXPECT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  // A program docker-credential-NAME in the PATH.
  void WriteHelper(const std::string& name, const std::string& script) {
    const std::string path = work_ / ("docker-credential-" + name);
    ASSERT_TRUE(
        WriteFileAtomic(path, "#!/bin/sh\n" + script + "\n", Durability::kMemory).has_value());
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
    ASSERT_EQ(::setenv("PATH", (work_.path() + ":/usr/bin:/bin").c_str(), 1), 0);
  }
  TempDir work_;
};

TEST_F(AuthFileTest, OthersMayNotReadIt) {
  const std::string secret = R"({"auths":{"r.example":{"username":"u","password":"s3cret"}}})";
  EXPECT_TRUE(ReadDockerConfig(Write(secret, 0600)).has_value());
  EXPECT_TRUE(ReadDockerConfig(Write(secret, 0400)).has_value());
  for (const mode_t mode : {0640u, 0604u, 0660u, 0644u, 0666u}) {
    const auto config = ReadDockerConfig(Write(secret, mode));
    ASSERT_FALSE(config.has_value()) << mode;
    EXPECT_EQ(config.error().code, Code::kForbidden);
    EXPECT_EQ(config.error().ToString().find("s3cret"), std::string::npos);
  }
  const std::string harmless = R"({"credHelpers":{"r.example":"x"}})";
  EXPECT_TRUE(ReadDockerConfig(Write(harmless, 0644)).has_value());
  EXPECT_FALSE(ReadDockerConfig(Write(harmless, 0664)).has_value());
  EXPECT_TRUE(ReadDockerConfig(work_ / "missing")->auths.empty());
  EXPECT_FALSE(ReadDockerConfig(work_.path()).has_value());
}

TEST_F(AuthFileTest, AHelperIsAskedOnStdinWithAnEmptyEnvironment) {
  ASSERT_EQ(::setenv("HUTCH_TEST_VARIABLE", "leaks", 1), 0);
  WriteHelper("test", "read host; env > " + (work_ / "env") + "; echo \"$0 $*\" > " +
                          (work_ / "args") +
                          "; printf '{\"ServerURL\":\"%s\",\"Username\":\"%s\",\"Secret\":"
                          "\"s3cret\"}' \"$host\" \"$host\"");
  DockerConfig config;
  config.helpers["r.example:5000"] = "test";
  config.default_helper = "test";
  auto credential = FindCredential(config, "r.example:5000");
  ASSERT_TRUE(credential.has_value()) << credential.error().what;
  EXPECT_EQ(credential->username, "r.example:5000");
  EXPECT_EQ(credential->password, "s3cret");
  EXPECT_EQ(FindCredential(config, "docker.io")->username, "https://index.docker.io/v1/");
  EXPECT_EQ(ReadFile(work_ / "env", 4096)->find("leaks"), std::string::npos);
  EXPECT_EQ(ReadFile(work_ / "args", 4096)->find("r.example"), std::string::npos);
}

TEST_F(AuthFileTest, HelpersThatFailSayWhoAndNotWhat) {
  DockerConfig config;
  config.default_helper = "test";
  config.auths["r.example"] = {.username = "u", .password = "p"};
  WriteHelper("test", "echo 'credentials not found in native keychain'; exit 1");
  EXPECT_EQ(FindCredential(config, "r.example")->username, "u");
  WriteHelper("test", "echo '{\"Username\":\"<token>\",\"Secret\":\"id\"}'");
  EXPECT_EQ(FindCredential(config, "r.example")->identity_token, "id");
  for (const std::string script :
       {"echo s3cret; exit 3", "echo '{\"Secret\":\"\"}'", "echo s3cret", "yes s3cret"}) {
    WriteHelper("test", script);
    const auto credential = FindCredential(config, "r.example");
    ASSERT_FALSE(credential.has_value()) << script;
    EXPECT_EQ(credential.error().code, Code::kUnavailable);
    EXPECT_NE(credential.error().what.find("docker-credential-test"), std::string::npos);
    EXPECT_EQ(credential.error().ToString().find("s3cret"), std::string::npos);
  }
  config.default_helper = "missing";
  EXPECT_EQ(FindCredential(config, "r.example").error().code, Code::kUnavailable);
}

struct Realm {
  const char* registry;
  const char* realm;
  bool allowed;
};

// auth_realm_leak: the pairs that may see a registry's credentials, and those that may not.
TEST(RealmTest, auth_realm_leak_table) {
  const Realm kTable[] = {
      {"docker.io", "https://auth.docker.io/token", true},
      {"ghcr.io", "https://ghcr.io/token", true},
      {"registry.gitlab.com", "https://gitlab.com/jwt/auth", true},
      {"r.corp.internal", "https://auth.corp.internal/", true},
      {"localhost:5000", "https://localhost:5001/t", true},
      {"10.0.0.1:5000", "https://10.0.0.1/t", true},
      {"plain.example:5000", "http://plain.example:5000/t", true},
      {"ghcr.io", "https://evil.example/token", false},
      {"ghcr.io", "https://ghcr.io.evil.example/token", false},
      {"ghcr.io", "http://ghcr.io/token", false},
      {"ghcr.io", "https://user@ghcr.io/token", false},
      {"ghcr.io", "https://notghcr.io/token", false},
      {"a.co.uk", "https://b.co.uk/token", false},
      {"me.github.io", "https://you.github.io/token", false},
      {"10.0.0.1:5000", "https://11.0.0.1/t", false},
      {"10.0.0.1", "https://2.0.0.1/t", false},
      {"localhost:5000", "https://otherhost/t", false},
      {"r.example", "http://plain.example:5000/t", false},
      {"plain.example:5000", "http://plain.example:5001/t", false},
      {"ghcr.io", "ftp://ghcr.io/t", false},
      {"ghcr.io", "", false},
      {"ghcr.io", "/token", false},
  };
  RegistryOptions options;
  options.plain_http = {"plain.example:5000"};
  const PullRequest request;
  const HostRules rules(options, request);
  for (const Realm& row : kTable) {
    const auto realm = ParseUrl(row.realm);
    const bool allowed =
        realm.has_value() && CheckRealm(rules, *rules.BaseOf(row.registry), *realm).has_value();
    EXPECT_EQ(allowed, row.allowed) << row.registry << " " << row.realm;
  }
}

TEST(HostRulesTest, PlainHttpIsForThoseThatAreListed) {
  RegistryOptions options;
  options.plain_http = {"plain.example:5000", "bare.example"};
  PullRequest request;
  request.reference = *ParseReference("asked.example:81/a", kDefaultRegistry);
  EXPECT_TRUE(HostRules(options, request).BaseOf("plain.example:5000")->IsPlain());
  EXPECT_TRUE(HostRules(options, request).BaseOf("bare.example")->IsPlain());
  for (const char* host : {"plain.example", "plain.example:5001", "localhost:5000", "127.0.0.1",
                           "asked.example:81", "docker.io"})
    EXPECT_FALSE(HostRules(options, request).BaseOf(host)->IsPlain()) << host;
  request.plain_http = true;
  const HostRules rules(options, request);
  EXPECT_TRUE(rules.BaseOf("asked.example:81")->IsPlain());
  EXPECT_FALSE(rules.BaseOf("mirror.example")->IsPlain());
  EXPECT_FALSE(rules.IsListedPlain(*rules.BaseOf("asked.example:81")));
  EXPECT_EQ(rules.CheckScheme(*ParseUrl("http://asked.example/")).error().code, Code::kUnavailable);
  EXPECT_EQ(rules.BaseOf("docker.io")->ToString(), "https://registry-1.docker.io/");
}

TEST_F(AuthFileTest, CertificatesAreFoundByHostAndPort) {
  RegistryOptions options;
  options.certs_dir = work_.path();
  const PullRequest request;
  const HostRules rules(options, request);
  const std::string directory = work_ / "r.example:5000";
  ASSERT_TRUE(MakeDirectories(directory, 0700).has_value());
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(directory + "/" + name, text, Durability::kMemory).has_value());
  };
  write("one.crt", "-----BEGIN CERTIFICATE-----\none\n");
  write("two.crt", "-----BEGIN CERTIFICATE-----\ntwo\n");
  write("client.cert", "-----BEGIN CERTIFICATE-----\n");
  const Url url = *rules.BaseOf("r.example:5000");
  EXPECT_EQ(rules.TlsOf(url).error().code, Code::kUnavailable);  // no client.key
  write("client.key", "-----BEGIN PRIVATE KEY-----\n");
  const auto tls = rules.TlsOf(url);
  ASSERT_TRUE(tls.has_value());
  EXPECT_NE(tls->extra_ca_pem.find("one"), std::string::npos);
  EXPECT_NE(tls->extra_ca_pem.find("two"), std::string::npos);
  EXPECT_EQ(tls->client_key, directory + "/client.key");
  EXPECT_TRUE(rules.TlsOf(*rules.BaseOf("r.example:5001"))->extra_ca_pem.empty());
  write("three.crt", "nothing");
  EXPECT_EQ(rules.TlsOf(url).error().code, Code::kUnavailable);
}

TEST(TokenReplyTest, TokensAreBoundedAndFitAHeader) {
  EXPECT_EQ(*ParseTokenReply(R"({"token":"abc","expires_in":300})"), "abc");
  EXPECT_EQ(*ParseTokenReply(R"({"access_token":"abc"})"), "abc");
  const std::string most(kMaxTokenBytes, 'a');
  EXPECT_TRUE(ParseTokenReply(R"({"token":")" + most + R"("})").has_value());
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string("abc"), std::string(R"({"token":""})"),
        std::string(R"({"token":"a\r\nX: y"})"), std::string(R"({"token":"a b"})"),
        R"({"token":")" + most + R"(a"})"})
    EXPECT_FALSE(ParseTokenReply(text).has_value());
}

}  // namespace
}  // namespace hutch::rootfs::registry
