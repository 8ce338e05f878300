#include "daemon/secrets.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kGood[] =
    R"({"hosts":["API.example.org","*.a.org"],"header":"Authorization","value":"Bearer very-secret"})";

class SecretsTest : public DaemonTest {
 protected:
  SecretsTest() {
    config_.network.secrets_dir = directory_ / "secrets";
    EXPECT_TRUE(MakeDirectories(config_.network.secrets_dir, 0700).has_value());
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = config_.network.secrets_dir + "/" + name + ".json";
    EXPECT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
    return path;
  }
  Result<network::Secret> Load(const std::string& name) {
    return LoadSecret(config_.network.secrets_dir, name);
  }
};

TEST_F(SecretsTest, AreReadFromTheirFiles) {
  Write("token", kGood);
  const network::Secret secret = Load("token").value();
  EXPECT_EQ(secret.hosts, (std::vector<std::string>{"api.example.org", "*.a.org"}));
  EXPECT_EQ(secret.header, "Authorization");
  EXPECT_EQ(secret.value, "Bearer very-secret");
  EXPECT_EQ(Load("none").error().code, Code::kNotFound);
  for (const char* name : {"../token", "", ".", "a/b"})
    EXPECT_EQ(Load(name).error().code, Code::kInvalidArgument) << name;
}

TEST_F(SecretsTest, WhatOthersCouldReadOrReplaceIsNotUsed) {
  const std::string path = Write("token", kGood);
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(Load("token").error().code, Code::kForbidden) << mode;
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::symlink(path.c_str(), (config_.network.secrets_dir + "/link.json").c_str()), 0);
  EXPECT_EQ(Load("link").error().code, Code::kForbidden);
  ASSERT_EQ(::chmod(config_.network.secrets_dir.c_str(), 01777), 0);
  EXPECT_EQ(Load("token").error().code, Code::kForbidden);
  EXPECT_EQ(Call("GET", "/v1/secrets")->code(), "forbidden");
}

std::string Text(const std::string& host, const std::string& header, const std::string& value) {
  return oci::Json{{"hosts", {host}}, {"header", header}, {"value", value}}.dump();
}

TEST_F(SecretsTest, WhatWouldChangeTheRequestIsRefused) {
  const std::string taken = "very-secret";
  for (const char* header : {"Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade",
                             "TE", "Proxy-Connection", "", "a b", "a:", "a\r\nb", "\xc3\xa9"})
    EXPECT_FALSE(ParseSecret(Text("a.org", header, taken)).has_value()) << header;
  for (const std::string& value : {taken + "\r\nX: y", taken + "\n", "\t" + taken, " " + taken,
                                   taken + " ", taken + "\xc3\xa9", std::string()}) {
    const auto secret = ParseSecret(Text("a.org", "X-Key", value));
    ASSERT_FALSE(secret.has_value()) << value;
    EXPECT_THAT(secret.error().ToString(), Not(HasSubstr(taken)));
  }
  for (const char* host : {"*", "*.com", "https://a.org", "a.org:443", "10.0.0.1", ""})
    EXPECT_FALSE(ParseSecret(Text(host, "X-Key", taken)).has_value()) << host;
  EXPECT_TRUE(ParseSecret(Text("a.org", "X-Key", taken)).has_value());
  for (const char* text : {"{\"value\":\"very-secret\"", "very-secret", "[]",
                           R"({"hosts":[],"header":"a","value":"very-secret"})",
                           R"({"hosts":["a.org"],"header":"a","value":"very-secret","x":1})"}) {
    const auto secret = ParseSecret(text);
    ASSERT_FALSE(secret.has_value()) << text;
    EXPECT_THAT(secret.error().ToString(), Not(HasSubstr(taken)));
  }
}

TEST_F(SecretsTest, AreListedWithoutTheirValues) {
  Write("token", kGood);
  Write("bad", "{");
  Write("open", kGood);
  ASSERT_EQ(::chmod((config_.network.secrets_dir + "/open.json").c_str(), 0644), 0);
  const auto answer = Call("GET", "/v1/secrets");
  const oci::Json list = answer->json()["secrets"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["name"], "bad");
  EXPECT_EQ(list[0]["valid"], false);
  EXPECT_EQ(list[1]["error"]["code"], "forbidden");
  EXPECT_EQ(list[2]["header"], "Authorization");
  EXPECT_EQ(list[2]["hosts"][0], "api.example.org");
  EXPECT_THAT(answer->reply->body, Not(HasSubstr("very-secret")));
  config_.network.secrets_dir = directory_ / "none";
  EXPECT_EQ(Call("GET", "/v1/secrets")->json()["secrets"].size(), 0u);
}

TEST_F(SecretsTest, SizesAreBounded) {
  const auto fits = [](const std::string& header, const std::string& value, size_t hosts) {
    const oci::Json json = {
        {"hosts", std::vector<std::string>(hosts, "a.org")}, {"header", header}, {"value", value}};
    return ParseSecret(json.dump()).has_value();
  };
  const std::string header(kMaxSecretHeaderBytes, 'h'), value(kMaxSecretValueBytes, 'v');
  EXPECT_TRUE(fits(header, value, kMaxSecretHosts));
  EXPECT_FALSE(fits(header + "h", value, 1));
  EXPECT_FALSE(fits(header, value + "v", 1));
  EXPECT_FALSE(fits(header, value, kMaxSecretHosts + 1));
  Write("large", kGood + std::string(kMaxSecretFileBytes, ' '));
  EXPECT_EQ(Load("large").error().code, Code::kTooLarge);
}

TEST_F(SecretsTest, TheDirectoryIsBounded) {
  for (size_t i = 0; i < kMaxSecrets; ++i) Write("s" + std::to_string(i), kGood);
  EXPECT_EQ(ListSecrets(config_.network.secrets_dir).value().size(), kMaxSecrets);
  Write("more", kGood);
  EXPECT_EQ(ListSecrets(config_.network.secrets_dir).error().code, Code::kLimit);
}

TEST_F(SecretsTest, PresetsAreListedWithTheirRules) {
  config_.network.presets_file = directory_ / "presets.json";
  EXPECT_EQ(Call("GET", "/v1/network/presets")->json()["presets"].size(), 0u);
  ASSERT_TRUE(WriteFileAtomic(config_.network.presets_file,
                              R"({"packages":["deb.example.org:80"]})", Durability::kMemory)
                  .has_value());
  const oci::Json presets = Call("GET", "/v1/network/presets")->json()["presets"];
  EXPECT_EQ(presets[0]["name"], "packages");
  EXPECT_EQ(presets[0]["allow"][0]["host"], "deb.example.org");
  EXPECT_EQ(presets[0]["allow"][0]["ports"][0], 80);
  ASSERT_TRUE(
      WriteFileAtomic(config_.network.presets_file, R"({"packages":["*"]})", Durability::kMemory)
          .has_value());
  EXPECT_EQ(Call("GET", "/v1/network/presets")->code(), "invalid_argument");
}

}  // namespace
}  // namespace hutch::daemon
