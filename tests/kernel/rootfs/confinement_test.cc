// What /proc says of an unpacker that waits for its first byte.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/child_program.h"
#include "tests/base/temp_dir.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMaxProcBytes = 1u << 20;

std::string Status(const std::string& pid, const std::string& key) {
  const auto text = ReadFile("/proc/" + pid + "/status", kMaxProcBytes);
  for (const std::string& line : Split(text ? *text : "", '\n'))
    if (line.starts_with(key + ":")) return std::string(Trim(line.substr(key.size() + 1)));
  return "";
}

std::string Link(const std::string& path) {
  char target[4096];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  return n < 0 ? "" : std::string(target, static_cast<size_t>(n));
}

// The confined child: of those that were started with `directory`, the one with a filter.
std::string FindConfined(const std::string& directory) {
  for (int i = 0; i < 500; ++i) {
    const auto pids = ListDirectory("/proc");
    for (const std::string& pid : pids ? *pids : std::vector<std::string>()) {
      const auto line = ReadFile("/proc/" + pid + "/cmdline", kMaxProcBytes);
      if (line && line->find(directory) != std::string::npos && Status(pid, "Seccomp") == "2")
        return pid;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "";
}

class ConfinementTest : public testing::Test {
 protected:
  void SetUp() override {
    auto input = MakePipe(), report = MakePipe();
    ASSERT_TRUE(input.has_value() && report.has_value());
    const auto path = FindProgram("hutch-unpack");
    ASSERT_TRUE(path.has_value());
    auto child = ChildProgram::Start({.path = *path,
                                      .args = {"hutch-unpack", "layer", "1000000", root_.path()},
                                      .env = {},
                                      .fds = {input->read.get(), -1, -1, report->write.get()}});
    ASSERT_TRUE(child.has_value()) << child.error().ToString();
    child_.emplace(std::move(*child));
    input_ = std::move(input->write);
    report_ = std::move(report->read);
    pid_ = FindConfined(root_.path());
    ASSERT_FALSE(pid_.empty());
  }
  TempDir root_;
  std::optional<ChildProgram> child_;
  UniqueFd input_, report_;
  std::string pid_;
};

TEST_F(ConfinementTest, NamespacesOfItsOwn) {
  for (const char* name : {"user", "mnt", "net", "ipc", "uts", "pid", "cgroup"}) {
    const std::string theirs = Link("/proc/" + pid_ + "/ns/" + name);
    EXPECT_FALSE(theirs.empty()) << name;
    EXPECT_NE(theirs, Link(std::string("/proc/self/ns/") + name)) << name;
  }
  const auto map = ReadFile("/proc/" + pid_ + "/uid_map", kMaxProcBytes);
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(Join(Split(*map, ' '), ""), "0065536\n");
}

TEST_F(ConfinementTest, PrivilegesAreFewAndFixed) {
  EXPECT_EQ(Status(pid_, "NoNewPrivs"), "1");
  EXPECT_EQ(Status(pid_, "CapEff"), "000000000000001b");  // CHOWN, DAC_OVERRIDE, FOWNER, FSETID
  EXPECT_EQ(Status(pid_, "CapPrm"), "000000000000001b");
  EXPECT_EQ(Status(pid_, "CapInh"), "0000000000000000");
  EXPECT_EQ(Status(pid_, "CapBnd"), "0000000000000000");
}

TEST_F(ConfinementTest, TheDirectoryIsAllThereIs) {
  const auto mounts = ReadFile("/proc/" + pid_ + "/mountinfo", kMaxProcBytes);
  ASSERT_TRUE(mounts.has_value());
  const std::vector<std::string> lines = Split(*mounts, '\n');
  ASSERT_EQ(lines.size(), 2u) << *mounts;  // one and the end
  for (const char* option : {"nosuid", "nodev", "noexec"})
    EXPECT_NE(lines[0].find(option), std::string::npos) << lines[0];
  struct stat theirs {
  }, ours{};
  ASSERT_EQ(::stat(("/proc/" + pid_ + "/root").c_str(), &theirs), 0);
  ASSERT_EQ(::stat(root_.path().c_str(), &ours), 0);
  EXPECT_EQ(theirs.st_ino, ours.st_ino);
}

TEST_F(ConfinementTest, DescriptorsAreTheInputTheReportAndTheRoot) {
  const auto fds = ListDirectory("/proc/" + pid_ + "/fd");
  ASSERT_TRUE(fds.has_value());
  std::vector<std::string> targets;
  for (const std::string& fd : *fds) {
    const std::string target = Link("/proc/" + pid_ + "/fd/" + fd);
    const bool fine = target.starts_with("pipe:") || target == "/dev/null" || target == "/";
    EXPECT_TRUE(fine) << fd << " is " << target;
  }
  EXPECT_LE(fds->size(), 8u);
}

TEST_F(ConfinementTest, StillUnpacks) {
  ASSERT_TRUE(WriteAll(input_.get(), TarWriter().File("f", "content").Bytes()).has_value());
  input_.reset();
  const auto code = child_->Wait();
  ASSERT_TRUE(code.has_value());
  EXPECT_EQ(*code, 0);
  const auto text = ReadFile(root_ / "f", 100);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "content");
}

}  // namespace
}  // namespace hutch::rootfs
