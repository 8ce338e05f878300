#include "daemon/config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "daemon/command_line.h"
#include "daemon/config_source.h"
#include "daemon/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

std::string FieldAtFault(const std::string& text) {
  Config config;
  const Status status = ApplyConfigText(text, &config);
  if (!status.has_value()) return status.error().field;
  const Status checked = CheckConfig(config);
  return checked.has_value() ? "" : checked.error().field;
}

TEST(Config, TheDefaultsAreValid) { EXPECT_TRUE(CheckConfig(Config()).has_value()); }

TEST(Config, ADocumentChangesWhatItNames) {
  Config config;
  ASSERT_TRUE(
      ApplyConfigText(
          R"({"socket":"/x/y","pools":"off","defaults":{"cpus":2.5},"ceilings":{"memory_bytes":7},
                                  "limits":{"sandboxes":9,"memory_overcommit":1.5}})",
          &config)
          .has_value());
  EXPECT_EQ(config.socket, "/x/y");
  EXPECT_EQ(config.pools, "off");
  EXPECT_EQ(config.defaults.cpus, 2.5);
  EXPECT_EQ(config.ceilings.memory_bytes, 7u);
  EXPECT_EQ(config.max_sandboxes, 9u);
  EXPECT_EQ(config.memory_overcommit, 1.5);
  EXPECT_EQ(config.run_dir, Config().run_dir);
}

TEST(Config, WhatIsWrongIsNamed) {
  EXPECT_EQ(FieldAtFault(R"({"sockets":"/x"})"), "sockets");
  EXPECT_EQ(FieldAtFault(R"({"defaults":{"memory":1}})"), "defaults.memory");
  EXPECT_EQ(FieldAtFault(R"({"limits":{"sandboxes":0}})"), "limits.sandboxes");
  EXPECT_EQ(FieldAtFault(R"({"limits":[]})"), "limits");
  EXPECT_EQ(FieldAtFault(R"({"pools":"yes"})"), "pools");
  EXPECT_EQ(FieldAtFault(R"({"log_level":"loud"})"), "log_level");
  EXPECT_EQ(FieldAtFault(R"({"run_dir":"relative"})"), "run_dir");
  EXPECT_EQ(FieldAtFault(R"({"host_id_start":65537})"), "host_id_start");
  EXPECT_EQ(FieldAtFault(R"({"host_id_start":4294901760,"host_id_ranges":2})"), "host_id_ranges");
  EXPECT_EQ(FieldAtFault(R"({"ceilings":{"memory_bytes":1}})"), "defaults.memory_bytes");
  EXPECT_EQ(FieldAtFault(R"({"socket":5})"), "socket");
}

TEST(Config, AFileIsNamedInItsErrors) {
  const TempDir directory;
  const std::string path = directory / "hutchd.json";
  Config config;
  const Status missing = ApplyConfigFile(path, &config);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  ASSERT_TRUE(WriteFileAtomic(path, "{", Durability::kMemory).has_value());
  const Status malformed = ApplyConfigFile(path, &config);
  ASSERT_FALSE(malformed.has_value());
  EXPECT_NE(malformed.error().what.find(path), std::string::npos);
}

TEST(CommandLine, OptionsWinOverTheFile) {
  const TempDir directory;
  const std::string path = directory / "hutchd.json";
  ASSERT_TRUE(WriteFileAtomic(path, R"({"socket":"/from/file","pools":"off"})", Durability::kMemory)
                  .has_value());
  const char* argv[] = {"hutchd",       "--config", path.c_str(), "--socket=/from/option",
                        "--log-format", "json"};
  const Result<CommandLine> line = ParseCommandLine(6, argv);
  ASSERT_TRUE(line.has_value()) << line.error().what;
  EXPECT_EQ(line->config.socket, "/from/option");
  EXPECT_EQ(line->config.pools, "off");
  EXPECT_EQ(line->config.log_format, "json");
}

TEST(CommandLine, WhatIsWrongIsRefused) {
  const std::vector<std::vector<const char*>> lines = {{"hutchd", "--colour", "red"},
                                                       {"hutchd", "--socket"},
                                                       {"hutchd", "file"},
                                                       {"hutchd", "--pools", "yes"},
                                                       {"hutchd", "--config", "/none"},
                                                       {"hutchd", "--socket", "relative"}};
  for (const auto& line : lines)
    EXPECT_FALSE(ParseCommandLine(static_cast<int>(line.size()), line.data()).has_value())
        << line[1];
  const char* help[] = {"hutchd", "--help"};
  EXPECT_NE(ParseCommandLine(2, help)->text.find("--cgroup-parent"), std::string::npos);
}

TEST(Config, RangesOfNetworksArePrivateAndLargeEnough) {
  const auto at_fault = [](const std::string& member) {
    return FieldAtFault(R"({"network":{)" + member + "}}");
  };
  EXPECT_EQ(at_fault(R"("pool_v4":"10.9.0.0/16","reachable":["10.1.0.0/16"])"), "");
  EXPECT_EQ(at_fault(R"("presets_file":"","secrets_dir":"")"), "");
  EXPECT_EQ(at_fault(R"("presets_file":"x")"), "network.presets_file");
  EXPECT_EQ(at_fault(R"("secrets_dir":"x")"), "network.secrets_dir");
  EXPECT_EQ(at_fault(R"("pool_v4":"1.1.0.0/16")"), "network.pool_v4");
  EXPECT_EQ(at_fault(R"("pool_v4":"10.0.0.0/31")"), "network.pool_v4");
  EXPECT_EQ(at_fault(R"("pool_v4":"fd00::/64")"), "network.pool_v4");
  EXPECT_EQ(at_fault(R"("pool_v6":"10.0.0.0/8")"), "network.pool_v6");
  EXPECT_EQ(at_fault(R"("workspaces_v4":"10.0.0.0/25")"), "network.workspaces_v4");
  EXPECT_EQ(at_fault(R"("workspaces_v6":"fd00::/65")"), "network.workspaces_v6");
  EXPECT_EQ(at_fault(R"("workspaces_v6":"")"), "network.workspaces_v6");
  EXPECT_EQ(at_fault(R"("reachable":["*"])"), "network.reachable");
  EXPECT_EQ(at_fault(R"("pools":"x")"), "network.pools");
}

std::string Shown(const oci::Json& value) {
  if (value == "" || (value.is_structured() && value.empty())) return "empty";
  return value.is_string() ? "`" + value.get<std::string>() + "`"
         : value.is_number_float() && value == value.get<uint64_t>()
             ? std::to_string(value.get<uint64_t>())
             : oci::PrintJson(value);
}

// The rows "| `key` | default | range | reload | meaning |" of docs/config.md.
TEST(Config, EveryKeyIsInTheDocumentAndNoOther) {
  const Result<std::string> page = ReadFile(HUTCH_SOURCE_DIR "/docs/config.md", 1u << 20);
  ASSERT_TRUE(page.has_value());
  std::vector<std::string> documented;
  const std::vector<ConfigFact> facts = ConfigFacts(Config());
  constexpr std::string_view kRow = "| `";
  for (const std::string& line : Split(*page, '\n')) {
    if (!line.starts_with(kRow)) continue;
    documented.push_back(line.substr(kRow.size(), line.find('`', kRow.size()) - kRow.size()));
    const size_t index = documented.size() - 1;
    ASSERT_LT(index, facts.size()) << line;
    const std::vector<std::string> cells = Split(line, '|');
    ASSERT_GE(cells.size(), 7u) << line;
    EXPECT_EQ(Trim(cells[2]), Shown(facts[index].value)) << line;
    if (facts[index].range.empty())
      EXPECT_FALSE(Trim(cells[3]).empty()) << line;
    else
      EXPECT_EQ(Trim(cells[3]), facts[index].range) << line;
    EXPECT_EQ(Trim(cells[4]), AppliesAtOnce(facts[index].key) ? "at once" : "restart") << line;
  }
  EXPECT_EQ(ConfigKeys(), documented);
}

TEST(Config, EveryKeyHasAValueThatSetsItself) {
  const std::vector<ConfigFact> facts = ConfigFacts(Config());
  std::vector<std::string> keys;
  for (const ConfigFact& fact : facts) keys.push_back(fact.key);
  EXPECT_EQ(keys, ConfigKeys());
}

ConfigReading ReadText(const TempDir& directory, const std::string& text,
                       std::vector<ConfigSource::Option> options = {}) {
  const std::string path = directory / "hutchd.json";
  EXPECT_TRUE(WriteFileAtomic(path, text, Durability::kMemory).has_value());
  return ReadConfig({.path = path, .file = ConfigSource::File::kRequired, .options = options});
}

std::string Fields(const ConfigReading& reading) {
  std::vector<std::string> fields;
  for (const Error& error : reading.errors) fields.push_back(error.field);
  return Join(fields, " ");
}

TEST(ConfigSource, AllThatIsWrongIsNamedAtOnce) {
  const TempDir directory;
  const ConfigReading reading =
      ReadText(directory,
               R"({"sockets":1,"log_level":"loud","limits":{"sandboxes":0,"none":1},"ports":5,
          "ceilings":{"memory_bytes":1},"registries":{"mirrors":{"a.example.org":7}},
          "network":{"pool_v4":"1.1.0.0/16"},"tcp":{"listen":"0.0.0.0:1","tokens_file":"x"}})");
  std::vector<std::string> fields = Split(Fields(reading), ' ');
  std::sort(fields.begin(), fields.end());
  EXPECT_EQ(Join(fields, " "),
            "defaults.memory_bytes limits.none limits.sandboxes log_level network.pool_v4 ports "
            "registries.mirrors.a.example.org sockets tcp.listen tcp.tokens_file");
}

TEST(ConfigSource, ErrorsAreBounded) {
  const TempDir directory;
  std::string text = "{\"x\":1";
  for (size_t i = 0; i < 2 * kMaxConfigErrors; ++i) text += ",\"x" + std::to_string(i) + "\":1";
  EXPECT_EQ(ReadText(directory, text + "}").errors.size(), kMaxConfigErrors);
}

TEST(ConfigSource, AFileThatIsNoObjectIsNamed) {
  const TempDir directory;
  for (const char* text : {"", "{", "[]", "{\"a\":1,\"a\":2}"}) {
    const ConfigReading reading = ReadText(directory, text);
    ASSERT_EQ(reading.errors.size(), 1u) << text;
    EXPECT_NE(reading.errors[0].what.find("hutchd.json"), std::string::npos) << text;
  }
}

TEST(ConfigSource, WhereAValueIsFromIsTold) {
  const TempDir directory;
  const ConfigSource::Option option{"log_level", &Config::log_level, "debug"};
  const ConfigReading reading =
      ReadText(directory, R"({"log_level":"error","limits":{"sandboxes":7}})", {option});
  ASSERT_TRUE(reading.errors.empty());
  const Result<oci::Json> told =
      oci::ParseJson(DescribeConfig({.path = "", .options = {option}}, reading));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ((*told)["log_level"]["value"], "debug");
  EXPECT_EQ((*told)["log_level"]["from"], "option");
  EXPECT_EQ((*told)["limits.sandboxes"]["value"], 7);
  EXPECT_EQ((*told)["limits.sandboxes"]["from"], "file");
  EXPECT_EQ((*told)["limits.sandboxes"]["reload"], true);
  EXPECT_EQ((*told)["run_dir"]["from"], "default");
  EXPECT_EQ((*told)["run_dir"]["reload"], false);
  EXPECT_EQ(told->size(), ConfigKeys().size());
}

TEST(CommandLine, AnOptionThatIsWrongIsNamedByItsKey) {
  const TempDir directory;
  const std::string path = directory / "hutchd.json";
  ASSERT_TRUE(WriteFileAtomic(path, R"({"blanks":-1})", Durability::kMemory).has_value());
  const char* argv[] = {"hutchd", "--check", "--config", path.c_str(), "--pools", "maybe"};
  const Result<CommandLine> line = ParseCommandLine(6, argv);
  ASSERT_TRUE(line.has_value());
  ASSERT_EQ(line->errors.size(), 2u);
  EXPECT_EQ(line->errors[0].field, "blanks");
  EXPECT_EQ(line->errors[1].field, "pools");
  EXPECT_EQ(line->text, "");
}

}  // namespace
}  // namespace hutch::daemon
