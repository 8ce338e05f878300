#include "tools/arguments.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace hutch::tools {
namespace {

Arguments Parse(std::vector<std::string> words) { return ParseArguments(std::move(words)); }

TEST(Arguments, EverythingBehindTheSeparatorIsTheCommand) {
  const Arguments parsed = Parse({"run", "python", "--memory", "1GiB", "--", "sh", "--", "--json"});
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_STREQ(parsed.command->name, "run");
  EXPECT_EQ(parsed.options.image, "python");
  EXPECT_EQ(parsed.options.memory, "1GiB");
  EXPECT_EQ(parsed.options.command, (std::vector<std::string>{"sh", "--", "--json"}));
  EXPECT_FALSE(parsed.options.json);
}

TEST(Arguments, ASimpleCommandNeedsNoSeparator) {
  const Arguments parsed = Parse({"exec", "box", "ls", "/tmp"});
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_EQ(parsed.options.id, "box");
  EXPECT_EQ(parsed.options.command, (std::vector<std::string>{"ls", "/tmp"}));
}

TEST(Arguments, ATerminalNeedsNoCommand) {
  const Arguments parsed = Parse({"run", "-it", "python"});
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_TRUE(parsed.options.terminal);
  EXPECT_TRUE(parsed.options.interactive);
  EXPECT_TRUE(parsed.options.command.empty());
}

TEST(Arguments, RepeatedOptionsTakeOneValueEach) {
  const Arguments parsed = Parse({"create", "--env", "A=1", "--env", "B=2", "python"});
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_EQ(parsed.options.env, (std::vector<std::string>{"A=1", "B=2"}));
  EXPECT_EQ(parsed.options.image, "python");
}

TEST(Arguments, GlobalOptionsStandAnywhere) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--socket", "/s", "--json", "ls"},
        {"ls", "--json", "--socket", "/s"}}) {
    const Arguments parsed = Parse(words);
    ASSERT_NE(parsed.command, nullptr) << parsed.text;
    EXPECT_EQ(parsed.options.socket, "/s");
    EXPECT_TRUE(parsed.options.json);
  }
}

TEST(Arguments, TheSocketComesFromTheEnvironmentElse) {
  ::setenv("HUTCH_SOCKET", "/from/env", 1);
  EXPECT_EQ(Parse({"ls"}).options.socket, "/from/env");
  ::unsetenv("HUTCH_SOCKET");
  EXPECT_EQ(Parse({"ls"}).options.socket, kDefaultSocket);
}

TEST(Arguments, ATemplateStandsForTheImage) {
  const Arguments behind = Parse({"run", "--template", "t", "--", "ls", "-l"});
  ASSERT_NE(behind.command, nullptr) << behind.text;
  EXPECT_EQ(behind.options.template_name, "t");
  EXPECT_EQ(behind.options.command, (std::vector<std::string>{"ls", "-l"}));
  const Arguments before = Parse({"run", "--template", "t", "ls", "/tmp"});
  ASSERT_NE(before.command, nullptr) << before.text;
  EXPECT_EQ(before.options.image, "");
  EXPECT_EQ(before.options.command, (std::vector<std::string>{"ls", "/tmp"}));
  const Arguments none = Parse({"run", "python"});  // then it is the image's command
  ASSERT_NE(none.command, nullptr) << none.text;
  EXPECT_TRUE(none.options.command.empty());
}

struct Mistaken {
  std::vector<std::string> words;
  int exit_code;
  const char* told;
};

TEST(Arguments, MistakesAreToldWithTheRightExitCode) {
  const Mistaken mistakes[] = {
      {{}, kExitUsage, "Usage"},
      {{"nonsense"}, kExitUsage, "nonsense"},
      {{"ls", "--bad"}, kExitUsage, "--bad"},
      {{"inspect"}, kExitUsage, "ID"},
      {{"inspect", "a", "--", "b"}, kExitUsage, "takes no command"},
      {{"exec", "box"}, kExitOwnError, "needs a command"},
      {{"run"}, kExitOwnError, "either an IMAGE or --template"},
      {{"create"}, kExitUsage, "either an IMAGE or --template"},
      {{"create", "python", "--template", "t"}, kExitUsage, "either an IMAGE or --template"},
      {{"exec", "box", "ls", "-la"}, kExitOwnError, "put -- before"},
      {{"shell", "box", "--", "ls"}, kExitOwnError, "takes no command"},
      {{"wait"}, kExitOwnError, "ID"},
      {{"cp", "a"}, kExitUsage, "DESTINATION"},
      {{"run", "--memory"}, kExitOwnError, "--memory"},
  };
  for (const Mistaken& mistake : mistakes) {
    const Arguments parsed = Parse(mistake.words);
    EXPECT_EQ(parsed.command, nullptr);
    EXPECT_EQ(parsed.exit_code, mistake.exit_code) << parsed.text;
    EXPECT_NE(parsed.text.find(mistake.told), std::string::npos) << parsed.text;
  }
}

void ExpectExamples(std::span<const CommandRow> rows, const std::vector<std::string>& before) {
  for (const CommandRow& row : rows) {
    std::vector<std::string> words = before;
    words.emplace_back(row.name);
    ExpectExamples(row.children, words);
    words.emplace_back("--help");
    const Arguments parsed = Parse(words);
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_NE(parsed.text.find(std::string("Example:\n  ") + row.example), std::string::npos)
        << row.name;
  }
}
TEST(Arguments, EveryHelpHasAnExample) { ExpectExamples(Commands(), {}); }

TEST(Arguments, Version) {
  EXPECT_EQ(Parse({"--version"}).text, "hutch " HUTCH_VERSION "\n");
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
}

TEST(Times, Units) {
  EXPECT_EQ(*ParseSeconds("45"), 45);
  EXPECT_EQ(*ParseSeconds("1.5m"), 90);
  EXPECT_EQ(*ParseSeconds("2h"), 7200);
  EXPECT_EQ(*ParseSeconds("1d"), 86400);
  EXPECT_EQ(*ParseSeconds("0"), 0);
  for (const char* bad : {"", "m", "-1", "1w", "1 m", "nan", "inf", "1e999"})
    EXPECT_FALSE(ParseSeconds(bad)) << bad;
}

TEST(Times, SinceIsAgoOrATime) {
  const WallTime now = *ParseRfc3339("2026-01-31T09:00:00.000Z");
  EXPECT_EQ(*ParseSince("10m", now), "2026-01-31T08:50:00.000Z");
  EXPECT_EQ(*ParseSince("2026-01-30T00:00:00Z", now), "2026-01-30T00:00:00.000Z");
  EXPECT_EQ(*ParseSince("2026-01-30T00:00:00.250Z", now), "2026-01-30T00:00:00.250Z");
  for (const char* bad : {"", "yesterday", "2026-01-30", "-5m"}) EXPECT_FALSE(ParseSince(bad, now));
}

}  // namespace
}  // namespace hutch::tools
