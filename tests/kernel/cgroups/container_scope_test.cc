// A container's scope by the real systemd; skipped where none runs. tests/uml/systemd_test.sh is a
// guest where it does.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/container_group.h"
#include "tests/kernel/cgroups/groups_fixture.h"

namespace hutch::cgroups {
namespace {

class ContainerScopeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PathExists("/run/systemd/system")) GTEST_SKIP() << "systemd does not run here";
    name_ = "t" + std::to_string(::getpid());
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0)
      while (true) ::pause();
  }
  void TearDown() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Result<ContainerGroup> Plan(std::map<std::string, std::string> annotations = {}) const {
    return ContainerGroup::Plan({.container_id = name_,
                                 .cgroups_path = "hutchtest-inner.slice:hutch:" + name_,
                                 .manager = GroupManager::kSystemd,
                                 .annotations = std::move(annotations)});
  }
  // What systemctl says of the scope.
  std::string Show(const std::string& property) const {
    const std::string command = "systemctl show -P " + property + " hutch-" + name_ + ".scope";
    FILE* const output = ::popen(command.c_str(), "re");
    char text[256] = "";
    if (::fgets(text, sizeof text, output) == nullptr) text[0] = '\0';
    ::pclose(output);
    return std::string(Trim(text));
  }

  std::string name_;
  pid_t pid_ = -1;
};

TEST_F(ContainerScopeTest, TheProcessIsInADelegatedScopeOfTheSlice) {
  ContainerGroup group = Must(Plan());
  ASSERT_TRUE(group.Make());
  EXPECT_EQ(group.clone_fd(), -1);
  const Status attached = group.Attach(pid_, BornIn::kElsewhere);
  ASSERT_TRUE(attached) << attached.error().ToString();
  EXPECT_EQ(Must(group.Pids()), std::vector<pid_t>{pid_});
  EXPECT_TRUE(group.place().v2_path.ends_with("/hutchtest.slice/hutchtest-inner.slice/hutch-" +
                                              name_ + ".scope"))
      << group.place().v2_path;
  EXPECT_EQ(Show("Delegate"), "yes");
  EXPECT_EQ(Show("ActiveState"), "active");

  ContainerGroup again =
      Must(ContainerGroup::Open(Must(ParseGroupPlace(PrintGroupPlace(group.place())))));
  ASSERT_TRUE(again.Freeze(kPatienceMs));
  ASSERT_TRUE(again.Thaw());
  ASSERT_TRUE(again.Kill());
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  const Status removed = again.Remove();
  ASSERT_TRUE(removed) << removed.error().ToString();
  EXPECT_FALSE(PathExists(group.place().v2_path));
  EXPECT_TRUE(again.Remove()) << "a second time";
}

TEST_F(ContainerScopeTest, LimitsAreFilesAndPropertiesThatOutliveAReload) {
  ContainerGroup group = Must(Plan(
      {{"org.systemd.property.TimeoutStopUSec", "uint64 7000000"}, {"org.example", "not ours"}}));
  const Status attached = group.Attach(pid_, BornIn::kElsewhere);
  ASSERT_TRUE(attached) << attached.error().ToString();
  oci::ContainerResources r;
  r.memory = oci::MemoryResources{};
  r.memory->limit = 64 << 20;
  r.pids_limit = 20;
  r.cpu = oci::CpuResources{};
  r.cpu->quota = 50000;
  r.cpu->period = 100000;
  r.cpu->shares = 2048;
  r.unified["memory.high"] = "33554432";
  const Status applied = group.Apply(r, DeviceRules::kApply);
  ASSERT_TRUE(applied) << applied.error().ToString();
  EXPECT_EQ(Show("MemoryMax"), "67108864");
  EXPECT_EQ(Show("MemoryHigh"), "33554432");
  EXPECT_EQ(Show("TasksMax"), "20");
  EXPECT_EQ(Show("CPUWeight"), "174");
  EXPECT_EQ(Show("CPUQuotaPerSecUSec"), "500ms");
  EXPECT_EQ(Show("TimeoutStopUSec"), "7s");
  EXPECT_EQ(::system("systemctl daemon-reload"), 0);
  EXPECT_EQ(Trim(Must(ReadFile(group.place().v2_path + "/memory.max", 64))), "67108864");
  EXPECT_EQ(Trim(Must(ReadFile(group.place().v2_path + "/cpu.max", 64))), "50000 100000");
  ASSERT_TRUE(group.Kill());
  EXPECT_TRUE(group.Remove());
}

TEST_F(ContainerScopeTest, ANameInUseIsRefusedAndLeftAlone) {
  ContainerGroup group = Must(Plan());
  ASSERT_TRUE(group.Attach(pid_, BornIn::kElsewhere));
  ContainerGroup other = Must(Plan());
  const Status attached = other.Attach(::getpid(), BornIn::kElsewhere);
  ASSERT_FALSE(attached);
  EXPECT_EQ(Must(group.Pids()), std::vector<pid_t>{pid_});
  ASSERT_TRUE(group.Kill());
  EXPECT_TRUE(group.Remove());
}

TEST_F(ContainerScopeTest, AnUnknownPropertyIsTheManagersError) {
  ContainerGroup group = Must(Plan({{"org.systemd.property.NoSuchThing", "5"}}));
  const Status attached = group.Attach(pid_, BornIn::kElsewhere);
  ASSERT_FALSE(attached);
  EXPECT_NE(attached.error().what.find("NoSuchThing"), std::string::npos)
      << attached.error().ToString();
  EXPECT_EQ(Plan({{"org.systemd.property.Slice", "'x.slice'"}}).error().code, Code::kUnsupported);
  EXPECT_TRUE(group.Remove()) << "nothing was made";
}

}  // namespace
}  // namespace hutch::cgroups
