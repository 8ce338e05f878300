#include "daemon/routes.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "base/text.h"
#include "daemon/openapi_text.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using RoutesTest = DaemonTest;

TEST(MatchPath, ParametersAreSegmentsDecoded) {
  std::vector<std::string> parameters;
  EXPECT_TRUE(MatchPath("/v1/sandboxes/{id}/exec", "/v1/sandboxes/a%2Fb/exec", &parameters));
  EXPECT_EQ(parameters, std::vector<std::string>{"a/b"});
  for (const char* path : {"/v1/sandboxes//exec", "/v1/sandboxes/a/exec/", "/v1/sandboxes/a/b/exec",
                           "/v1/sandboxes/%zz/exec", "v1/sandboxes/a/exec", ""})
    EXPECT_FALSE(MatchPath("/v1/sandboxes/{id}/exec", path, &parameters)) << path;
}

TEST(MatchPath, AReferenceMayHoldSlashes) {
  std::vector<std::string> parameters;
  EXPECT_TRUE(
      MatchPath("/v1/images/{reference}", "/v1/images/docker.io/library/python:3", &parameters));
  EXPECT_EQ(parameters, std::vector<std::string>{"docker.io/library/python:3"});
  EXPECT_FALSE(MatchPath("/v1/images/{reference}", "/v1/images/", &parameters));
}

TEST_F(RoutesTest, UnknownCallsSayWhatThereIs) {
  EXPECT_EQ(Call("GET", "/v2/x")->code(), "not_found");
  const auto answer = Call("PATCH", "/v1/sandboxes");
  EXPECT_EQ(answer->code(), "not_found");
  EXPECT_NE(answer->json()["error"]["message"].get<std::string>().find("POST, GET"),
            std::string::npos);
}

TEST_F(RoutesTest, BodiesAndQueriesAreCheckedForEveryRoute) {
  EXPECT_EQ(Call("GET", "/v1/health?x=1")->json()["error"]["field"], "x");
  EXPECT_EQ(Call("GET", "/v1/health", "body")->code(), "invalid_argument");
  for (const char* body :
       {"", "{", "[]", "{\"image\":1}", "{\"image\":\"busybox\",\"image\":\"x\"}", "{}garbage"})
    EXPECT_EQ(Call("POST", "/v1/sandboxes", body)->code(), "invalid_argument") << body;
  const auto answer = Call("POST", "/v1/sandboxes", R"({"image":"busybox","limits":{"memory":1}})");
  EXPECT_EQ(answer->json()["error"]["field"], "limits.memory");
  std::string deep;
  for (size_t i = 0; i <= kMaxJsonDepth; ++i) deep += "[";
  EXPECT_EQ(Call("POST", "/v1/sandboxes", deep)->code(), "invalid_argument");
}

TEST_F(RoutesTest, TheDaemonTellsAboutItself) {
  EXPECT_EQ(Call("GET", "/v1/health")->reply->body, R"({"status":"ok"})");
  EXPECT_EQ(Call("GET", "/v1/info")->json()["version"], HUTCH_VERSION);
  EXPECT_EQ(Call("GET", "/v1/openapi.json")->json()["openapi"], "3.1.0");
}

std::set<std::string> Calls() {
  std::set<std::string> calls;
  for (const Route& route : Routes()) calls.insert(std::string(route.method) + " " + route.pattern);
  return calls;
}

TEST(Routes, AreTheHeadingsOfTheApiPage) {
  const Result<std::string> page = ReadFile(HUTCH_SOURCE_DIR "/docs/api.md", 1u << 20);
  ASSERT_TRUE(page.has_value());
  std::set<std::string> headings;
  for (const std::string& line : Split(*page, '\n')) {
    const std::vector<std::string> words = Split(line, ' ');
    if (words.size() == 3 && words[0] == "###" && words[2].starts_with('/'))
      headings.insert(words[1] + " " + words[2]);
  }
  EXPECT_EQ(Calls(), headings);
}

TEST(Routes, AreThePathsOfTheContract) {
  const Result<oci::Json> contract = oci::ParseJson(kOpenApiText);
  ASSERT_TRUE(contract.has_value());
  std::set<std::string> calls;
  for (const auto& [path, item] : (*contract)["paths"].items())
    for (const auto& [method, operation] : item.items()) {
      if (method == "parameters") continue;
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(c - 'a' + 'A');
      if (path.ends_with("{rest}")) upper = "ANY";
      calls.insert(upper + " " + path);
    }
  EXPECT_EQ(Calls(), calls);
}

}  // namespace
}  // namespace hutch::daemon
