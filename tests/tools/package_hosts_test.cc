#include "tools/package_hosts.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/base/temp_dir.h"
#include "tools/package_config.h"

namespace hutch::tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST(PackageConfig, UrlsBecomeRules) {
  const std::pair<const char*, const char*> kTable[] = {
      {"http://deb.example.org/debian", "deb.example.org:80"},
      {"https://Deb.Example.org", "deb.example.org:443"},
      {"https://user:word@a.org:8443/x?y#z", "a.org:8443"},
      {"sparse+https://index.example.org/x/", "index.example.org:443"},
      {"tor+http://a.org", "a.org:80"},
      {"git+ssh://git@a.org/x", "a.org:22"},
      {"http://10.0.0.1:3142/", "10.0.0.1/32:3142"},
      {"http://[2001:DB8::1]:80/x", "[2001:db8::1]/128:80"},
  };
  for (const auto& [url, rule] : kTable) EXPECT_EQ(RuleOfUrl(url).value_or("none"), rule) << url;
  for (const char* url :
       {"file:///srv/x", "cdrom:[Debian]/", "a.org", "http://", "http:///x", "",
        "http://localhost:3142", "http://127.0.0.1/", "http://[::1]/", "http://a.org:0/",
        "http://a.org:99999/", "http://a b/", "http://*.org/", "http://[::1", "http://0.0.0.0/"})
    EXPECT_EQ(RuleOfUrl(url).value_or("none"), "none") << url;
}

TEST(PackageConfig, AptsOneLineStyle) {
  const ConfigUrls found = ReadAptList(
      "# deb http://no.example/ x main\n"
      "deb http://a.example/debian bookworm main # http://no.example\n"
      "deb [arch=amd64 signed-by=/k url=x] https://b.example/ x y\n"
      "\tdeb-src http://c.example/ x y\n"
      "deb mirror+file:/etc/apt/mirrors.txt x y\n"
      "deb mirror+https://d.example/list x y\n"
      "debug http://no.example\ndeb\ndeb [broken http://no.example\n");
  EXPECT_THAT(found.urls, ElementsAre("http://a.example/debian", "https://b.example/",
                                      "http://c.example/", "https://d.example/list"));
  EXPECT_THAT(found.lists, ElementsAre("/etc/apt/mirrors.txt"));
}

TEST(PackageConfig, AptsStanzas) {
  const ConfigUrls found = ReadAptSources(
      "Types: deb\nURIs: http://a.example/ https://b.example/\n\thttp://c.example/\nSuites: x\n"
      "\n# URIs: http://no.example/\nEnabled: no\nURIs: http://off.example/\n\n"
      "uris: http://d.example/\nDescription: see\n http://no.example/\n");
  EXPECT_THAT(found.urls, ElementsAre("http://a.example/", "https://b.example/",
                                      "http://c.example/", "http://d.example/"));
}

TEST(PackageConfig, AptsProxies) {
  EXPECT_THAT(ReadAptConf("Acquire::http::Proxy \"http://p.example:3142\";\n"
                          "// Acquire::http::Proxy \"http://no.example\";\n"
                          "Acquire { https { Proxy \"http://q.example:1\"; } }\n"
                          "Acquire::http::Proxy::a.example \"DIRECT\";\nDir \"http://no.example\";")
                  .urls,
              ElementsAre("http://p.example:3142", "http://q.example:1"));
}

TEST(PackageConfig, Npms) {
  const ConfigUrls found = ReadNpmrc(
      "; registry=https://no.example\n@scope:registry = \"https://s.example/x\"\n"
      "//a.example/:_authToken=word\nproxy=http://p.example:8080\nfund=false\n");
  EXPECT_THAT(found.urls, ElementsAre("https://s.example/x", "http://p.example:8080"));
}

TEST(PackageConfig, Pips) {
  const ConfigUrls found = ReadPipConf(
      "[global]\nextra-index-url = https://a.example/simple\n    https://b.example/simple\n"
      "; index-url = https://no.example\ntimeout = 3\n[install]\nfind_links: https://c.example/\n"
      "trusted-host = no.example\nproxy = me:word@p.example:8080\n");
  EXPECT_THAT(found.urls, ElementsAre("https://a.example/simple", "https://b.example/simple",
                                      "https://c.example/", "http://me:word@p.example:8080"));
}

TEST(PackageConfig, Cargos) {
  const ConfigUrls found = ReadCargoConfig(
      "[source.crates-io]\nreplace-with = \"mine\"\n[source.mine] # http://no.example\n"
      "registry = \"sparse+https://a.example/index/\" # \"https://no.example\"\n"
      "[registries]\nb = { index = 'https://b.example/git' }\n[net]\nx = \"https://no.example\"\n"
      "[http]\nproxy = \"p.example:3128\"\n");
  EXPECT_THAT(found.urls, ElementsAre("sparse+https://a.example/index/", "https://b.example/git",
                                      "http://p.example:3128"));
}

class PackageHostsTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::string whole = directory_.path() + path;
    ASSERT_TRUE(MakeDirectories(whole.substr(0, whole.rfind('/')), 0755).has_value());
    ASSERT_TRUE(WriteFileAtomic(whole, text, Durability::kMemory).has_value());
  }
  std::vector<std::string> Rules() {
    std::vector<std::string> rules;
    const auto found = FindPackageHosts(directory_.path(), "/root");
    for (const PackageHost& host : *found) rules.push_back(host.rule);
    return rules;
  }
  TempDir directory_;
};

TEST_F(PackageHostsTest, AMachineWithoutConfigurationNamesNoHosts) {
  EXPECT_THAT(Rules(), ElementsAre());
  EXPECT_EQ(FindPackageHosts("/nowhere", "/root").error().code, Code::kNotFound);
}

TEST_F(PackageHostsTest, EveryFileIsRead) {
  Write("/etc/apt/sources.list", "deb http://a.example/ x y\ndeb mirror+file:/etc/apt/m x y\n");
  Write("/etc/apt/m", "http://m.example/debian\tpriority:1\n");
  Write("/etc/apt/sources.list.d/b.list", "deb https://b.example/ x y\n");
  Write("/etc/apt/sources.list.d/c.sources", "URIs: https://c.example/\n");
  Write("/etc/apt/sources.list.d/d.bak", "deb http://no.example/ x y\n");
  Write("/etc/apt/apt.conf.d/01proxy", "Acquire::http::Proxy \"http://10.1.1.1:3142\";");
  Write("/root/.npmrc", "registry=https://n.example/\n");
  Write("/etc/pip.conf", "[global]\nindex-url = https://p.example/simple\n");
  Write(
      "/root/.cargo/config.toml",
      "[source.crates-io]\nreplace-with = \"x\"\n[source.x]\nregistry = \"https://g.example/\"\n");
  EXPECT_THAT(Rules(),
              ElementsAre("a.example:80", "b.example:443", "c.example:443", "10.1.1.1/32:3142",
                          "m.example:80", "n.example:443", "p.example:443", "g.example:443"));
  const auto hosts = FindPackageHosts(directory_.path(), "/root").value();
  EXPECT_EQ(hosts[1].where, "/etc/apt/sources.list.d/b.list");
}

TEST_F(PackageHostsTest, LinksStayBelowTheRoot) {
  Write("/srv/list", "deb http://inside.example/ x y\n");
  Write("/etc/apt/sources.list.d/real.list", "");
  ASSERT_EQ(::symlink("/srv/list", (directory_ / "etc/apt/sources.list").c_str()), 0);
  const TempDir outside;
  const std::string secret = outside / "pip.conf";
  ASSERT_TRUE(WriteFileAtomic(secret, "index-url=https://outside.example\n", Durability::kMemory)
                  .has_value());
  ASSERT_EQ(::symlink(secret.c_str(), (directory_ / "etc/pip.conf").c_str()), 0);
  EXPECT_THAT(Rules(), Contains("inside.example:80"));
  EXPECT_THAT(Rules(), Not(Contains("outside.example:443")));
}

}  // namespace
}  // namespace hutch::tools
