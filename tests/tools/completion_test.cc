#include "tools/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hutch::tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> Known(Names kind, const std::string& before) {
  switch (kind) {
    case Names::kSandboxes:
      return {"box", "sb-aaaa"};
    case Names::kImages:
      return {"python:latest"};
    case Names::kCatalog:
      return {"node", "python"};
    case Names::kTemplates:
      return {"team", "python"};
    case Names::kProcesses:
      return {before + "-p1"};
    default:
      return {};
  }
}

std::vector<std::string> Of(std::vector<std::string> words) { return Complete(words, Known); }

TEST(Completion, Commands) {
  EXPECT_THAT(Of({"in"}), ElementsAre("inspect", "info"));
  EXPECT_THAT(Of({"image", "i"}), ElementsAre("import", "inspect"));
  EXPECT_THAT(Of({"--socket", "/s", "doc"}), ElementsAre("doctor"));
}

TEST(Completion, NamesOfTheDaemon) {
  EXPECT_THAT(Of({"exec", ""}), ElementsAre("box", "sb-aaaa"));
  EXPECT_THAT(Of({"exec", "--timeout", "5", "b"}), ElementsAre("box"));
  EXPECT_THAT(Of({"rm", "box", "s"}), ElementsAre("sb-aaaa"));
  EXPECT_THAT(Of({"run", "py"}), ElementsAre("python:latest"));
  EXPECT_THAT(Of({"image", "build", ""}), ElementsAre("node", "python"));
  EXPECT_THAT(Of({"template", "inspect", "t"}), ElementsAre("team"));
  EXPECT_THAT(Of({"run", "--template", "p"}), ElementsAre("python"));
  EXPECT_THAT(Of({"run", "--memory", "p"}), IsEmpty());
  EXPECT_THAT(Of({"inspect", "box", ""}), IsEmpty());
  EXPECT_THAT(Of({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
}

TEST(Completion, ProcessesOfTheSandboxBefore) {
  EXPECT_THAT(Of({"logs", "--tail", "5", "box", ""}), ElementsAre("box-p1"));
  EXPECT_THAT(Of({"logs", ""}), ElementsAre("box", "sb-aaaa"));
}

TEST(Completion, OptionsOfTheCommandOnly) {
  EXPECT_THAT(Of({"run", "--me"}), ElementsAre("--memory"));
  EXPECT_THAT(Of({"ls", "--"}), Contains("--quiet"));
  EXPECT_THAT(Of({"ls", "--"}), Not(Contains("--memory")));
}

TEST(Completion, LeavesFilesAndTheCommandToTheShell) {
  EXPECT_THAT(Of({"image", "import", ""}), IsEmpty());
  EXPECT_THAT(Of({"exec", "box", "--", ""}), IsEmpty());
  EXPECT_THAT(Of({"run", "--relax-seccomp", ""}), IsEmpty());
  EXPECT_THAT(Of({}), IsEmpty());
}

TEST(Completion, ScriptsForThreeShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) EXPECT_NE(CompletionScript(shell), nullptr);
  EXPECT_EQ(CompletionScript("csh"), nullptr);
}

}  // namespace
}  // namespace hutch::tools
