#include "network/presets.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "network/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::network {
namespace {

TEST(PresetsTest, AreReadFromTheOperatorsFile) {
  const TempDir directory;
  const std::string path = directory / "presets.json";
  EXPECT_TRUE(LoadPresets(path).value().empty());
  EXPECT_TRUE(LoadPresets("").value().empty());
  ASSERT_TRUE(WriteFileAtomic(path,
                              R"({"packages":["deb.example.org:80",{"host":"a.org"}],"none":[]})",
                              Durability::kMemory)
                  .has_value());
  const Presets presets = LoadPresets(path).value();
  EXPECT_EQ(presets.at("packages").size(), 2u);
  EXPECT_TRUE(presets.at("none").empty());
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(LoadPresets(path).error().code, Code::kForbidden);
}

TEST(PresetsTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kTable[] = {{R"({"a":["*.com"]})", "a[0]"},
                                                        {R"({"a":["b.org","preset:c"]})", "a[1]"},
                                                        {R"({"../a":[]})", "no name"},
                                                        {R"({"a":{}})", "array"},
                                                        {R"([])", "object"},
                                                        {R"({"a":[],"a":[]})", "a"},
                                                        {R"({"a":["0.0.0.0/0"]})", "among others"}};
  for (const auto& [text, reason] : kTable) {
    const auto presets = ParsePresets(text);
    ASSERT_FALSE(presets.has_value()) << text;
    EXPECT_NE(presets.error().what.find(reason), std::string::npos) << presets.error().what;
  }
}

TEST(PresetsTest, TheFileIsBounded) {
  oci::Json many = oci::Json::object();
  for (size_t i = 0; i < kMaxPresets; ++i) many["p" + std::to_string(i)] = oci::Json::array();
  EXPECT_TRUE(ParsePresets(many.dump()).has_value());
  many["more"] = oci::Json::array();
  EXPECT_FALSE(ParsePresets(many.dump()).has_value());
  EXPECT_EQ(ParsePresets("{}" + std::string(kMaxPresetsBytes, ' ')).error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::network
