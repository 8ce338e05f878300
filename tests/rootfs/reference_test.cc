#include "rootfs/reference.h"

#include <gtest/gtest.h>

#include "rootfs/image_source.h"

namespace hutch::rootfs {
namespace {

const std::string kHex(64, 'a');
const std::string kDigest = "sha256:" + kHex;

std::string Canonical(const std::string& text, const std::string& registry = kDefaultRegistry) {
  const auto reference = ParseReference(text, registry);
  if (!reference) return "refused: " + reference.error().what;
  return reference->ToString();
}

TEST(ReferenceTest, EveryFormHasOneCanonicalName) {
  const std::pair<std::string, std::string> kTable[] = {
      {"python", "docker.io/library/python:latest"},
      {"python:3.12", "docker.io/library/python:3.12"},
      {"me/tool", "docker.io/me/tool:latest"},
      {"docker.io/python", "docker.io/library/python:latest"},
      {"index.docker.io/library/python", "docker.io/library/python:latest"},
      {"registry-1.docker.io/python", "docker.io/library/python:latest"},
      {"ghcr.io/a/b/c:v1.0_2-x", "ghcr.io/a/b/c:v1.0_2-x"},
      {"GHCR.io/a", "ghcr.io/a:latest"},
      {"localhost/a", "localhost/a:latest"},
      {"localhost:5000/a", "localhost:5000/a:latest"},
      {"127.0.0.1:5000/a:b", "127.0.0.1:5000/a:b"},
      {"r.example:65535/a", "r.example:65535/a:latest"},
      {"r.example/a@" + kDigest, "r.example/a@" + kDigest},
      {"r.example/a:t@" + kDigest, "r.example/a:t@" + kDigest},
      {"python@" + kDigest, "docker.io/library/python@" + kDigest},
      {"r.example/a__b.c-d--e_f/g", "r.example/a__b.c-d--e_f/g:latest"},
  };
  for (const auto& [text, canonical] : kTable) {
    EXPECT_EQ(Canonical(text), canonical);
    EXPECT_EQ(Canonical(canonical), canonical);
    EXPECT_EQ(NormalReference(canonical).value(), canonical);
  }
  EXPECT_EQ(Canonical("tool:1", "r.example:5000"), "r.example:5000/tool:1");
  EXPECT_EQ(Canonical("docker.io/tool", "r.example"), "docker.io/library/tool:latest");
}

TEST(ReferenceTest, WhatIsNoReferenceIsRefusedWithTheReason) {
  const std::string kLong(256, 'a');
  const std::pair<std::string, std::string> kTable[] = {
      {"", "empty"},
      {kHex, "an id or a digest alone"},
      {kDigest, "an id or a digest alone"},
      {"Python", "lower-case"},
      {"a/../b", "lower-case"},
      {"../a", "not a host name"},
      {"r.example/..", "lower-case"},
      {"r.example//a", "is empty"},
      {"r.example/a/", "is empty"},
      {"r.example/", "is empty"},
      {"/a", "is empty"},
      {"a:", "the tag"},
      {"a:-x", "the tag"},
      {"a:" + std::string(129, 't'), "the tag"},
      {"r.example:65536/a", "not a host name"},
      {"r.example:0/a", "not a host name"},
      {"r.example:/a", "not a host name"},
      {"-r.example/a", "not a host name"},
      {"user:pass@r.example/a", "the digest"},
      {"https://r.example/a", "not a host name"},
      {"[::1]:5000/a", "not a host name"},
      {"a..b", "lower-case"},
      {"a___b", "lower-case"},
      {"a b", "lower-case"},
      {"a\nb", "lower-case"},
      {"a%2e", "lower-case"},
      {"a?b", "lower-case"},
      {"r.example/" + kLong, "more than 255 bytes"},
  };
  for (const auto& [text, why] : kTable) {
    const std::string answer = Canonical(text);
    EXPECT_TRUE(answer.starts_with("refused: ") && answer.find(why) != std::string::npos)
        << text << ": " << answer;
  }
  EXPECT_NE(Canonical("python", "").find("names no registry"), std::string::npos);
  EXPECT_EQ(Canonical("r.example/python", ""), "r.example/python:latest");
  EXPECT_EQ(ParseReference("Python", kDefaultRegistry).error().code, Code::kInvalidArgument);
}

// digest_traversal_table: a digest is a path and a part of a URL.
TEST(ReferenceTest, digest_traversal_table) {
  for (const std::string& digest :
       {std::string("sha256:../../../../etc/passwd"), std::string("sha256:"),
        "sha256:" + std::string(63, 'a'), "sha256:" + std::string(65, 'a'),
        "sha256:" + std::string(64, 'A'), "sha256:" + std::string(64, 'g'),
        "sha256:" + std::string(61, 'a') + "/..", "SHA256:" + kHex, "sha512:" + kHex + kHex,
        "md5:" + std::string(32, 'a'), kDigest + "@" + kDigest, kDigest + "\n", kHex})
    EXPECT_FALSE(ParseReference("r.example/a@" + digest, kDefaultRegistry).has_value()) << digest;
}

}  // namespace
}  // namespace hutch::rootfs
