// URLs, waiting times, kinds of documents.
#include <gtest/gtest.h>

#include "rootfs/registry/documents.h"
#include "rootfs/registry/exchange.h"
#include "rootfs/registry/limits.h"
#include "rootfs/registry/url.h"

namespace hutch::rootfs::registry {
namespace {

TEST(UrlTest, TakesApartWhatRegistriesRedirectTo) {
  const Url base = *ParseUrl("https://r.example/v2/a/blobs/x");
  const std::pair<std::string, std::string> kTable[] = {
      {"https://CDN.example:443/x?sig=a%2Fb", "https://cdn.example/x?sig=a%2Fb"},
      {"http://cdn.example:8080", "http://cdn.example:8080/"},
      {"/other?q", "https://r.example/other?q"},
      {"//other.example/x", "https://other.example/x"},
      {"y", "https://r.example/v2/a/blobs/y"},
  };
  for (const auto& [text, whole] : kTable) {
    const auto url = ParseUrl(text, &base);
    ASSERT_TRUE(url.has_value()) << text;
    EXPECT_EQ(url->ToString(), whole);
  }
}

TEST(UrlTest, RefusesWhatReadsInTwoWays) {
  const Url base = *ParseUrl("https://r.example/");
  for (const std::string& text :
       {std::string(""), std::string("file:///etc/passwd"), std::string("ftp://r.example/"),
        std::string("https://user@r.example/"), std::string("https://user:p@r.example/"),
        std::string("https://r.example\\@evil.example/"), std::string("https://r.example/a b"),
        std::string("https://r.example/\r\nX: y"), std::string("https://[::1]/"),
        std::string("https://../x"), std::string("https://a..b/"), std::string("https://%2e%2e/"),
        std::string("https://r.example:0/"), std::string("https://r.example:99999/"),
        "https://r.example/" + std::string(9000, 'a')})
    EXPECT_FALSE(ParseUrl(text, &base).has_value()) << text;
}

TEST(UrlTest, EncodesWhatIsNotPlain) {
  EXPECT_EQ(UrlEncode("repository:a/b:pull&x=\n~-._"), "repository%3aa%2fb%3apull%26x%3d%0a~-._");
}

TEST(BackoffTest, WaitsAreDoubledUpToABoundAndNeverTheSame) {
  EXPECT_EQ(BackoffMs(0, 0), kFirstRetryMs);
  EXPECT_EQ(BackoffMs(3, 0), 8 * kFirstRetryMs);
  EXPECT_EQ(BackoffMs(60, 0), kLongestRetryMs);
  for (const uint32_t random : {1u, 77u, 4'000'000'000u}) {
    EXPECT_LE(BackoffMs(3, random), 8 * kFirstRetryMs);
    EXPECT_GE(BackoffMs(3, random), 4 * kFirstRetryMs);
  }
}

TEST(BackoffTest, RetryAfterIsANumberOrADate) {
  EXPECT_EQ(RetryAfterSeconds("", 0), 0u);
  EXPECT_EQ(RetryAfterSeconds("7", 0), 7u);
  EXPECT_EQ(RetryAfterSeconds("99999999999999", 0), 1'000'000'000u);
  EXPECT_EQ(RetryAfterSeconds("Wed, 21 Oct 2015 07:28:00 GMT", 1'445'412'470), 10u);
  EXPECT_EQ(RetryAfterSeconds("Wed, 21 Oct 2015 07:28:00 GMT", 1'500'000'000), 0u);
  EXPECT_EQ(RetryAfterSeconds("-5", 0), 0u);
  EXPECT_EQ(RetryAfterSeconds("soon", 0), 0u);
}

TEST(MediaTypeTest, BothSidesMustAgree) {
  const std::string oci = "application/vnd.oci.image.manifest.v1+json";
  const std::string docker = "application/vnd.docker.distribution.manifest.v2+json";
  EXPECT_EQ(*MediaTypeOf("{\"schemaVersion\":2}", oci), oci);
  EXPECT_EQ(*MediaTypeOf("{\"mediaType\":\"" + docker + "\"}", docker + "; charset=utf-8"), docker);
  EXPECT_EQ(MediaTypeOf("{\"mediaType\":\"" + docker + "\"}", oci).error().code, Code::kCorrupt);
  EXPECT_EQ(MediaTypeOf("{\"mediaType\":\"" + oci + "\"}", "").error().code, Code::kCorrupt);
  EXPECT_EQ(MediaTypeOf("{}", "application/json").error().code, Code::kUnsupported);
  for (const std::string type : {"application/vnd.docker.distribution.manifest.v1+prettyjws",
                                 "application/vnd.docker.distribution.manifest.v1+json"})
    EXPECT_NE(MediaTypeOf("{}", type).error().what.find("schema 1"), std::string::npos);
  EXPECT_NE(MediaTypeOf("{\"schemaVersion\":1}", oci).error().what.find("schema 1"),
            std::string::npos);
}

}  // namespace
}  // namespace hutch::rootfs::registry
