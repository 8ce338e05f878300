// A create that fails leaves the host as it was, whatever row failed.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/layout.h"
#include "gtest/gtest.h"
#include "runtime/container.h"
#include "runtime/container_creation.h"

namespace hutch::runtime {
namespace {

constexpr char kConfig[] = R"({
  "ociVersion": "1.2.0",
  "process": {"args": ["/bin/true"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
  "root": {"path": "rootfs"},
  "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
  "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"},
                           {"type": "network"}]}
})";

class ContainerCreate : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/tmp/hutch-oci-test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    ASSERT_TRUE(MakeDirectories(directory_ + "/rootfs/bin", 0755).has_value());
    const auto program = ReadFile("/bin/true", 64u << 20);
    ASSERT_TRUE(program.has_value());
    const std::string path = directory_ + "/rootfs/bin/true";
    ASSERT_TRUE(WriteFileAtomic(path, *program, Durability::kMemory).has_value());
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
    ASSERT_TRUE(
        WriteFileAtomic(directory_ + "/config.json", kConfig, Durability::kMemory).has_value());
    host_.root = directory_ + "/state";
    host_.warn = [](const std::string&) {};
    request_.id = "t" + RandomBase32(8);
    request_.bundle = directory_;
    request_.config_file = directory_ + "/config.json";
    request_.pid_file = directory_ + "/pid";
  }
  void TearDown() override {
    if (!directory_.empty()) IgnoreError(RemoveTree(directory_), "it is below /tmp");
  }
  // Nothing of the container's is there.
  void ExpectNothingLeft(const ContainerCreation& creation) {
    EXPECT_FALSE(PathExists(host_.root + "/" + request_.id));
    EXPECT_FALSE(PathExists(request_.pid_file));
    if (creation.group) {
      EXPECT_FALSE(PathExists(creation.group->place().v2_path));
      for (const auto& one : creation.group->place().v1) EXPECT_FALSE(PathExists(one.path));
    }
    if (creation.init.valid()) {
      EXPECT_TRUE(creation.init.HasEnded());
    }
  }

  std::string directory_;
  ContainerHost host_;
  CreateRequest request_;
};

Status Refuse(ContainerCreation&) {
  return Error{.code = Code::kInternal, .what = "refused by the test"};
}

TEST_F(ContainerCreate, LeavesNothingWhateverRowFails) {
  const auto real = ContainerSteps();
  for (size_t failing = 0; failing < real.size(); ++failing) {
    SCOPED_TRACE(real[failing].name);
    std::vector<StepRow<ContainerCreation>> rows(real.begin(), real.end());
    rows[failing].run = Refuse;
    ContainerCreation creation;
    creation.host = &host_;
    creation.request = &request_;
    std::vector<Timing> timings;
    const Status done =
        RunSteps(std::span<const StepRow<ContainerCreation>>(rows), creation, &timings);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().what, "refused by the test");
    ExpectNothingLeft(creation);
  }
}

TEST_F(ContainerCreate, IsUndoneByDelete) {
  const auto made = CreateContainer(host_, request_);
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  const auto view = ViewContainer(host_, request_.id);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->status, ContainerStatus::kCreated);
  EXPECT_TRUE(DeleteContainer(host_, request_.id, DeleteMode::kForce).has_value());
  EXPECT_TRUE(made->init.HasEnded());
  EXPECT_FALSE(PathExists(host_.root + "/" + request_.id));
}

// A group that was killed once, as a service's is when it is stopped by force.
TEST_F(ContainerCreate, WorksInAGroupThatWasKilledOnce) {
  const auto mounts = cgroups::VisibleCgroupMounts();
  ASSERT_TRUE(mounts.has_value());
  const auto v2 =
      std::find_if(mounts->begin(), mounts->end(), [](const auto& m) { return m.is_v2; });
  ASSERT_NE(v2, mounts->end());
  const std::string group = v2->mount_point + "/hutch-killed-once-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(group.c_str(), 0755), 0);
  const std::string home = v2->mount_point;
  ASSERT_TRUE(WriteExisting(group + "/cgroup.kill", "1").has_value());
  ASSERT_TRUE(WriteExisting(group + "/cgroup.procs", "0").has_value());
  const auto made = CreateContainer(host_, request_);
  EXPECT_TRUE(made.has_value()) << made.error().ToString();
  if (made) {
    const auto view = ViewContainer(host_, request_.id);
    EXPECT_TRUE(view.has_value() && view->status == ContainerStatus::kCreated);
    EXPECT_TRUE(DeleteContainer(host_, request_.id, DeleteMode::kForce).has_value());
  }
  EXPECT_TRUE(WriteExisting(home + "/cgroup.procs", "0").has_value());
  EXPECT_EQ(::rmdir(group.c_str()), 0);
}

TEST_F(ContainerCreate, RefusesAnIdTwice) {
  ASSERT_TRUE(CreateContainer(host_, request_).has_value());
  const auto again = CreateContainer(host_, request_);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kExists);
  EXPECT_TRUE(ViewContainer(host_, request_.id).has_value());
  EXPECT_TRUE(DeleteContainer(host_, request_.id, DeleteMode::kForce).has_value());
}

}  // namespace
}  // namespace hutch::runtime
