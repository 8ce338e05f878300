#include "oci/image_spec.h"

#include <gtest/gtest.h>

namespace hutch::oci {
namespace {

const std::string kHex(64, 'a');

std::string Described(const std::string& more = "") {
  return R"({"mediaType":"t","digest":"sha256:)" + kHex + R"(","size":5)" + more + "}";
}

TEST(ImageSpec, ValidDigests) {
  EXPECT_TRUE(ValidateDigest("sha256:" + kHex).has_value());
  EXPECT_TRUE(ValidateDigest("sha512:" + kHex + kHex).has_value());
  for (const std::string& digest : std::vector<std::string>{
           std::string(), kHex, "sha256:", "sha256:" + kHex.substr(1), "sha256:" + kHex + "a",
           "sha512:" + kHex, "SHA256:" + kHex, "sha256:A" + kHex.substr(1),
           "sha256:../../" + kHex.substr(6), "sha256:" + kHex + "\n",
           "sha256:" + kHex + std::string(1, '\0'), "md5:" + kHex})
    EXPECT_EQ(ValidateDigest(digest).error().code, Code::kInvalidArgument) << digest;
}

TEST(ImageSpec, AManifestIsRead) {
  const auto manifest = ParseManifest(R"({"schemaVersion":2,"mediaType":"m","config":)" +
                                      Described() + R"(,"layers":[)" + Described() + "," +
                                      Described(R"(,"annotations":{"a":"b"},"urls":["x"])") + "]}");
  ASSERT_TRUE(manifest.has_value()) << manifest.error().ToString();
  EXPECT_EQ(manifest->media_type, "m");
  EXPECT_EQ(manifest->config.size, 5u);
  ASSERT_EQ(manifest->layers.size(), 2u);
  EXPECT_EQ(manifest->layers[1].annotations.at("a"), "b");
}

TEST(ImageSpec, WhatIsNoManifest) {
  const std::string config = R"("config":)" + Described(),
                    layers = R"("layers":[)" + Described() + "]";
  for (const std::string& text : std::vector<std::string>{
           std::string("[]"), std::string("{}"), "{" + config + "}", "{" + layers + "}",
           "{" + config + "," + layers + R"(,"manifests":[]})",
           R"({"schemaVersion":1,)" + config + "," + layers + "}",
           "{" + config + R"(,"layers":{}})", "{" + config + R"(,"layers":[1]})",
           R"({"config":{"digest":"sha256:x","size":1},)" + layers + "}",
           R"({"config":{"digest":")" + std::string("sha256:") + kHex + R"(","size":-1},)" +
               layers + "}",
           "{" + config + "," + layers + "," + layers + "}"})
    EXPECT_FALSE(ParseManifest(text).has_value()) << text;
}

TEST(ImageSpec, AnIndexIsRead) {
  const auto index = ParseIndex(
      R"({"schemaVersion":2,"manifests":[)" +
      Described(R"(,"platform":{"os":"linux","architecture":"arm64","variant":"v8"})") + "]}");
  ASSERT_TRUE(index.has_value()) << index.error().ToString();
  EXPECT_EQ(index->manifests.at(0).architecture, "arm64");
  EXPECT_EQ(index->manifests.at(0).variant, "v8");
  EXPECT_FALSE(ParseIndex(R"({"manifests":[],"layers":[]})").has_value());
  EXPECT_FALSE(ParseIndex(R"({"manifests":[],"config":{}})").has_value());
  EXPECT_FALSE(ParseIndex("{}").has_value());
}

TEST(ImageSpec, AConfigurationIsRead) {
  const auto config = ParseImageConfig(
      R"({"created":"c","architecture":"amd64","os":"linux","config":{"Env":["A=1"],"Cmd":["sh"],)"
      R"("Entrypoint":["e"],"User":"5:6","WorkingDir":"/w","StopSignal":"TERM","Labels":{"l":"v"},)"
      R"("ExposedPorts":{"80/tcp":{}},"Volumes":{"/v":{}}},"rootfs":{"diff_ids":["sha256:)" +
      kHex + R"("]}})");
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  EXPECT_EQ(config->env, std::vector<std::string>{"A=1"});
  EXPECT_EQ(config->cmd, std::vector<std::string>{"sh"});
  EXPECT_EQ(config->entrypoint, std::vector<std::string>{"e"});
  EXPECT_EQ(config->user, "5:6");
  EXPECT_EQ(config->working_dir, "/w");
  EXPECT_EQ(config->labels.at("l"), "v");
  EXPECT_EQ(config->exposed_ports, std::vector<std::string>{"80/tcp"});
  EXPECT_EQ(config->volumes, std::vector<std::string>{"/v"});
  EXPECT_EQ(config->diff_ids.size(), 1u);
}

// Docker writes null for what is not set.
TEST(ImageSpec, NullIsAbsent) {
  const auto config = ParseImageConfig(
      R"({"config":{"Env":null,"Cmd":null,"Volumes":null,"Labels":null},"rootfs":{"diff_ids":[]}})");
  ASSERT_TRUE(config.has_value()) << config.error().ToString();
  EXPECT_TRUE(config->cmd.empty());
}

TEST(ImageSpec, WhatIsNoConfiguration) {
  for (const char* text : {"{}", "[]", R"({"rootfs":{"diff_ids":["x"]}})", R"({"rootfs":[]})",
                           R"({"rootfs":{"diff_ids":[]},"config":[]})",
                           R"({"rootfs":{"diff_ids":[]},"config":{"Env":"A=1"}})",
                           R"({"rootfs":{"diff_ids":[]},"rootfs":{}})"})
    EXPECT_FALSE(ParseImageConfig(text).has_value()) << text;
}

}  // namespace
}  // namespace hutch::oci
