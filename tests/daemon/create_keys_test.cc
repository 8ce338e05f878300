#include "daemon/create_keys.h"

#include <gtest/gtest.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

RequestDigests Digests(std::string_view json) { return DigestRequest(*oci::ParseJson(json)); }
std::string Difference(std::string_view one, std::string_view other,
                       std::string_view ignored = {}) {
  return FirstDifference(Digests(one), Digests(other), ignored).value_or("none");
}

TEST(CreateKeys, WhatMeansTheSameHasTheSameDigests) {
  EXPECT_EQ(Difference(R"({"image":"a","limits":{"cpus":1.0,"pids":4}})",
                       R"({"limits":{"pids":4,"cpus":1},"image":"a","name":null,"labels":{}})"),
            "none");
  EXPECT_EQ(Difference(R"({"env":{"A":"1","B":"2"}})", R"({"env":{"B":"2","A":"1"}})"), "none");
  EXPECT_EQ(Difference(R"({"limits":{"cpus":-0.0}})", R"({"limits":{"cpus":0}})"), "none");
}

TEST(CreateKeys, AFieldThatDiffersIsNamed) {
  EXPECT_EQ(Difference(R"({"image":"a"})", R"({"image":"b"})"), "image");
  EXPECT_EQ(Difference(R"({"limits":{"cpus":1}})", R"({"limits":{"cpus":1.5}})"), "limits.cpus");
  EXPECT_EQ(Difference(R"({"limits":{"cpus":1}})", R"({})"), "limits.cpus");
  EXPECT_EQ(Difference(R"({})", R"({"timeouts":{"idle_seconds":0}})"), "timeouts.idle_seconds");
  EXPECT_EQ(Difference(R"({"labels":{"a":"1"}})", R"({"labels":{"a":"2"}})"), "labels");
  EXPECT_EQ(Difference(R"({"labels":{"a":"1"}})", R"({"labels":{"a":1}})"), "labels");
  EXPECT_EQ(Difference(R"({"ports":[1,2]})", R"({"ports":[2,1]})"), "ports");
  EXPECT_EQ(Difference(R"({"a":1})", R"({"a":18446744073709551615})"), "a");
  EXPECT_EQ(Difference(R"({"limits":3})", R"({"limits":{"cpus":3}})"), "limits");
}

TEST(CreateKeys, OneFieldCanBeLeftOut) {
  EXPECT_EQ(Difference(R"({"session_key":"a"})", R"({"session_key":"b"})"), "session_key");
  EXPECT_EQ(Difference(R"({"session_key":"a"})", R"({})", "session_key"), "none");
}

TEST(CreateKeys, DigestsAreShort) {
  for (const auto& [field, digest] : Digests(R"({"image":"a","env":{"A":"1"}})"))
    EXPECT_EQ(digest.size(), 32u) << field;
}

TEST(CreateKeys, KeysAreBounded) {
  EXPECT_TRUE(CheckSessionKey(std::string(kMaxSessionKeyBytes, 'a')).has_value());
  EXPECT_FALSE(CheckSessionKey(std::string(kMaxSessionKeyBytes + 1, 'a')).has_value());
  EXPECT_TRUE(CheckSessionKey("user:1/chat@host+x=~-._").has_value());
  for (const char* key : {"/a", "a b", "a\n", "ä", "a\"", "a?"})
    EXPECT_EQ(CheckSessionKey(key).error().field, "session_key") << key;
  const std::string longest(kMaxIdempotencyKeyBytes, 'k');
  EXPECT_EQ(*ParseIdempotencyKey(longest), longest);
  EXPECT_FALSE(ParseIdempotencyKey(longest + "k").has_value());
}

TEST(CreateKeys, AnIdempotencyKeyMayBeQuoted) {
  EXPECT_EQ(*ParseIdempotencyKey("\"8e03978e-40d5\""), "8e03978e-40d5");
  EXPECT_EQ(*ParseIdempotencyKey("8e03978e-40d5"), "8e03978e-40d5");
  EXPECT_EQ(*ParseIdempotencyKey(""), "");
  for (const char* key : {"\"\"", "a b", "\"a", "a\\b", "\x7f", "\xc3\xa4"})
    EXPECT_EQ(ParseIdempotencyKey(key).error().field, "Idempotency-Key") << key;
}

TEST(CreateKeys, AreReadBeforeTheBodyIsChecked) {
  Request request;
  request.peer.uid = 7;
  request.headers = {{"idempotency-KEY", "k"}};
  request.json = *oci::ParseJson(R"({"session_key":"s","unknown":1})");
  const Result<CreateKeys> keys = ReadCreateKeys(request);
  ASSERT_TRUE(keys.has_value());
  EXPECT_EQ(keys->owner, 7u);
  EXPECT_EQ(keys->session, "s");
  EXPECT_EQ(keys->idempotency, "k");
  EXPECT_EQ(keys->digests.size(), 2u);
  for (const char* body :
       {R"({"session_key":1})", R"({"session_key":""})", R"({"session_key":"/"})"}) {
    request.json = *oci::ParseJson(body);
    EXPECT_EQ(ReadCreateKeys(request).error().field, "session_key") << body;
  }
  request.json = *oci::ParseJson(R"({"session_key":null})");
  request.headers.clear();
  EXPECT_TRUE(ReadCreateKeys(request)->empty());
  EXPECT_TRUE(ReadCreateKeys(request)->digests.empty());
}

}  // namespace
}  // namespace hutch::daemon
