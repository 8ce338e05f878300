#include "rootfs/catalog.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/apt_sources.h"
#include "rootfs/catalog_build.h"
#include "rootfs/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs {
namespace {

constexpr char kGood[] = R"({"description": "x", "suite": "bookworm", "packages": ["jq", "git"]})";

bool Has(const std::vector<std::string>& list, const std::string& one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

TEST(Catalog, EveryEntryIsRead) {
  for (const CatalogText& text : CatalogTexts()) {
    const auto entry = ParseCatalogEntry(text.name, text.json);
    ASSERT_TRUE(entry.has_value()) << text.name << ": " << entry.error().ToString();
    EXPECT_FALSE(entry->packages.empty());
    EXPECT_EQ(entry->user, "1000:1000");
    EXPECT_EQ(entry->working_dir, "/workspace");
    EXPECT_EQ(entry->components, std::vector<std::string>{"main"});
  }
  EXPECT_EQ(CatalogTexts().size(), 6u);
}

// The same samples go through the schema in catalog_schema_test.py.
TEST(Catalog, SamplesAreJudgedAsTheSchemaDoes) {
  const auto text = ReadFile(HUTCH_SOURCE_DIR "/tests/rootfs/catalog_samples.json", 1u << 20);
  ASSERT_TRUE(text.has_value());
  const auto samples = oci::ParseJson(*text);
  ASSERT_TRUE(samples.has_value()) << samples.error().ToString();
  for (const oci::Json& sample : *samples) {
    const auto entry = ParseCatalogEntry("x", oci::PrintJson(sample["entry"]));
    EXPECT_EQ(entry.has_value(), sample.value("good", false)) << sample["why"];
    if (!entry) {
      EXPECT_EQ(entry.error().code, Code::kInvalidArgument) << sample["why"];
    }
  }
}

TEST(Catalog, EntriesAreBounded) {
  const auto with = [](const char* member, const oci::Json& value) {
    oci::Json entry = oci::Json::parse(kGood);
    entry[member] = value;
    return ParseCatalogEntry("x", oci::PrintJson(entry)).has_value();
  };
  const auto words = [](size_t count, const std::string& word) {
    return std::vector<std::string>(count, word);
  };
  EXPECT_TRUE(with("packages", words(kMaxCatalogPackages, "jq")));
  EXPECT_FALSE(with("packages", words(kMaxCatalogPackages + 1, "jq")));
  EXPECT_TRUE(with("packages", words(1, std::string(kMaxPackageNameBytes, 'a'))));
  EXPECT_FALSE(with("packages", words(1, std::string(kMaxPackageNameBytes + 1, 'a'))));
  EXPECT_TRUE(with("components", words(kMaxCatalogComponents, "main")));
  EXPECT_FALSE(with("components", words(kMaxCatalogComponents + 1, "main")));
  EXPECT_TRUE(with("cmd", words(kMaxCatalogWords, "a")));
  EXPECT_FALSE(with("cmd", words(kMaxCatalogWords + 1, "a")));
  EXPECT_FALSE(with("env", words(kMaxCatalogWords + 1, "a=b")));
  EXPECT_TRUE(with("description", std::string(kMaxCatalogDescriptionBytes, 'a')));
  EXPECT_FALSE(with("description", std::string(kMaxCatalogDescriptionBytes + 1, 'a')));
  const std::string long_text = std::string(kGood) + std::string(kMaxCatalogFileBytes, ' ');
  EXPECT_EQ(ParseCatalogEntry("x", long_text).error().code, Code::kTooLarge);
}

TEST(Catalog, PackagesAndSourcesReachMmdebstrap) {
  const auto entry = ParseCatalogEntry("x", kGood);
  ASSERT_TRUE(entry.has_value());
  const auto args = MmdebstrapArgs(*entry, "/w/layer.tar", {"/w/apt.sources"}, "/w/apt.conf");
  EXPECT_EQ(args.front(), "mmdebstrap");
  EXPECT_TRUE(Has(args, "--include=jq,git"));
  EXPECT_TRUE(Has(args, "--components=main"));
  EXPECT_TRUE(Has(args, "--aptopt=/w/apt.conf"));
  const std::vector<std::string> last(args.end() - 3, args.end());
  EXPECT_EQ(last, (std::vector<std::string>{"bookworm", "/w/layer.tar", "/w/apt.sources"}));
}

class CatalogTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text, mode_t mode = 0644) {
    ASSERT_TRUE(WriteFileAtomic(directory_ / name, text, Durability::kMemory).has_value());
    ASSERT_EQ(::chmod((directory_ / name).c_str(), mode), 0);
  }
  Catalog Load() const { return LoadCatalog(directory_.path()); }

  TempDir directory_;
};

TEST_F(CatalogTest, AnOperatorsEntriesStandBesideThoseBuiltIn) {
  Write("mine.json", kGood);
  Write("README", "not an entry");
  const Catalog catalog = Load();
  ASSERT_EQ(catalog.entries.size(), CatalogTexts().size() + 1);
  EXPECT_EQ(catalog.entries.back().name, "mine");
  EXPECT_EQ(catalog.entries.back().path, directory_ / "mine.json");
  EXPECT_EQ(catalog.entries.front().path, "");
  EXPECT_TRUE(catalog.refused.empty());
  EXPECT_EQ(CatalogNames(directory_.path()).back(), "mine");
  const auto found = FindCatalogEntry(directory_.path(), "mine");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->packages, (std::vector<std::string>{"jq", "git"}));
  EXPECT_EQ(FindCatalogEntry(directory_.path(), "none").error().code, Code::kNotFound);
  EXPECT_TRUE(FindCatalogEntry("/nonexistent", "python").has_value());
}

TEST_F(CatalogTest, WhatIsBuiltInCannotBeReplaced) {
  Write("python.json", kGood);
  const Catalog catalog = Load();
  EXPECT_EQ(catalog.entries.size(), CatalogTexts().size());
  ASSERT_EQ(catalog.refused.size(), 1u);
  EXPECT_EQ(catalog.refused[0].error.code, Code::kExists);
  const auto python = FindCatalogEntry(directory_.path(), "python");
  ASSERT_TRUE(python.has_value());
  EXPECT_TRUE(Has(python->packages, "python3"));
}

TEST_F(CatalogTest, ABadFileIsRefusedAloneAndTold) {
  Write("bad.json", R"({"suite": "bookworm", "packages": ["a;b"], "description": "x"})");
  Write("good.json", kGood);
  const Catalog catalog = Load();
  EXPECT_EQ(catalog.entries.back().name, "good");
  ASSERT_EQ(catalog.refused.size(), 1u);
  EXPECT_EQ(catalog.refused[0].path, directory_ / "bad.json");
  const auto bad = FindCatalogEntry(directory_.path(), "bad");
  EXPECT_EQ(bad.error().field, "packages");
  EXPECT_NE(bad.error().what.find("bad.json"), std::string::npos);
}

TEST_F(CatalogTest, WhatOthersMayWriteIsRefused) {
  Write("loose.json", kGood, 0666);
  ASSERT_EQ(Load().refused.size(), 1u);
  EXPECT_EQ(Load().refused[0].error.code, Code::kForbidden);
  Write("loose.json", kGood);
  EXPECT_TRUE(Load().refused.empty());
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0777), 0);
  const Catalog catalog = Load();
  EXPECT_EQ(catalog.entries.size(), CatalogTexts().size());
  ASSERT_EQ(catalog.refused.size(), 1u);
  EXPECT_EQ(catalog.refused[0].error.code, Code::kForbidden);
  EXPECT_EQ(CatalogNames(directory_.path()).size(), CatalogTexts().size());
}

TEST_F(CatalogTest, LinksAndFifosAreNotRead) {
  Write("target", kGood);
  ASSERT_EQ(::symlink((directory_ / "target").c_str(), (directory_ / "link.json").c_str()), 0);
  ASSERT_EQ(::mkfifo((directory_ / "fifo.json").c_str(), 0600), 0);
  const Catalog catalog = Load();
  EXPECT_EQ(catalog.entries.size(), CatalogTexts().size());
  EXPECT_EQ(catalog.refused.size(), 2u);
}

TEST_F(CatalogTest, NamesThatAreNoImagesAreRefused) {
  const std::string longest(kMaxCatalogNameBytes, 'a');
  for (const std::string& name :
       {std::string("A"), std::string("a..b"), std::string("a-"), std::string("-a"),
        std::string("sha256"), std::string("a b"), longest + "a", std::string()})
    Write(name + ".json", kGood);
  EXPECT_EQ(Load().refused.size(), 8u);
  Write(longest + ".json", kGood);
  EXPECT_EQ(Load().entries.back().name, longest);
}

TEST_F(CatalogTest, FilesAreBounded) {
  for (size_t i = 0; i <= kMaxCatalogFiles; ++i) Write("e" + std::to_string(i) + ".json", kGood);
  EXPECT_EQ(Load().entries.size(), CatalogTexts().size() + kMaxCatalogFiles);
}

std::string Narrowed(std::string_view text, bool is_deb822,
                     const std::vector<std::string>& components = {"main"}) {
  AptSources sources;
  AddAptSources(text, is_deb822, "bookworm", components, &sources);
  EXPECT_TRUE(is_deb822 ? sources.lines.empty() : sources.stanzas.empty());
  return is_deb822 ? sources.stanzas : sources.lines;
}

TEST(AptSources, LinesAreNarrowedToTheSuiteAndItsComponents) {
  EXPECT_EQ(Narrowed("# deb http://a/ bookworm main\n"
                     "deb http://a/debian bookworm main contrib non-free # mine\n"
                     "deb [arch=amd64 signed-by=/k.gpg] http://a/debian bookworm-updates main\n"
                     "deb\thttp://s/ bookworm-security main\n"
                     "deb http://a/debian bookworm-backports main\n"
                     "deb http://a/debian trixie main\n"
                     "deb-src http://a/debian bookworm main\n"
                     "deb http://other/ nodistro main\n"
                     "deb [broken http://a/ bookworm main\n",
                     false),
            "deb http://a/debian bookworm main\n"
            "deb [arch=amd64 signed-by=/k.gpg] http://a/debian bookworm-updates main\n"
            "deb http://s/ bookworm-security main\n");
  EXPECT_EQ(Narrowed("deb http://a/ bookworm main", false, {"main", "contrib"}),
            "deb http://a/ bookworm main contrib\n");
}

TEST(AptSources, StanzasKeepTheirMirrorsAndKeys) {
  EXPECT_EQ(Narrowed("Types: deb deb-src\n# a comment\nURIs: http://a/debian\n"
                     "Suites: bookworm bookworm-updates bookworm-backports\n"
                     "Components: main contrib\nSigned-By:\n -----BEGIN-----\n .\n key\n"
                     "\n\n"
                     "Types: deb\nURIs: http://b/\nSuites: trixie\nComponents: main\n"
                     "\n"
                     "Types: deb\nEnabled: no\nURIs: http://c/\nSuites: bookworm\n",
                     true),
            "Types: deb\nSuites: bookworm bookworm-updates\nComponents: main\n"
            "uris: http://a/debian\nsigned-by: \n -----BEGIN-----\n .\n key\n\n");
}

TEST(AptSources, AHostWithoutTheSuiteSaysSo) {
  const TempDir etc;
  EXPECT_EQ(HostAptSources(etc.path(), "bookworm", {"main"}).error().code, Code::kUnavailable);
  ASSERT_TRUE(
      WriteFileAtomic(etc / "sources.list", "deb http://a/ bookworm main\n", Durability::kMemory)
          .has_value());
  EXPECT_TRUE(HostAptSources(etc.path(), "bookworm", {"main"}).has_value());
  EXPECT_EQ(HostAptSources(etc.path(), "trixie", {"main"}).error().code, Code::kUnavailable);
}

std::string Told(BuildProgress* progress, const std::string& line) {
  const auto report = progress->Take(line);
  if (!report) return "";
  return report->stage + " " + std::to_string(report->done) + "/" + std::to_string(report->total);
}

TEST(BuildProgress, CountsPackagesInEachStage) {
  BuildProgress progress("r");
  EXPECT_EQ(Told(&progress, "I: running apt-get update..."), "update lists 0/0");
  EXPECT_EQ(Told(&progress, "Get:1 http://a bookworm InRelease [151 kB]"), "");
  EXPECT_EQ(Told(&progress, "I: downloading packages with apt..."),
            "download essential packages 0/0");
  EXPECT_EQ(Told(&progress, "0 upgraded, 2 newly installed, 0 to remove"), "");
  EXPECT_EQ(Told(&progress, "Get:1 http://a bookworm/main amd64 dpkg"),
            "download essential packages 1/2");
  EXPECT_EQ(Told(&progress, "I: extracting archives..."), "extract essential packages 0/0");
  EXPECT_EQ(Told(&progress, "I: installing essential packages..."),
            "install essential packages 0/2");
  EXPECT_EQ(Told(&progress, "Unpacking dpkg (1.21) ..."), "");
  EXPECT_EQ(Told(&progress, "Setting up dpkg (1.21) ..."), "install essential packages 1/2");
  EXPECT_EQ(Told(&progress, "I: installing remaining packages inside the chroot..."),
            "download packages 0/0");
  EXPECT_EQ(Told(&progress, "0 upgraded, 1 newly installed, 0 to remove"), "");
  EXPECT_EQ(Told(&progress, "Get:1 http://a bookworm/main amd64 jq"), "download packages 1/1");
  EXPECT_EQ(Told(&progress, "Setting up jq (1.6) ..."), "install packages 1/1");
  EXPECT_EQ(Told(&progress, "Setting up again ..."), "install packages 1/1");
  EXPECT_EQ(Told(&progress, "I: creating tarball..."), "pack 0/0");
}

}  // namespace
}  // namespace hutch::rootfs
