// Volumes against the real kernel: what a killed daemon leaves, and that an image has one device.
#include "rootfs/volumes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "rootfs/limits.h"
#include "rootfs/loop_device.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr int kKilled = 42;

std::string Text(const Error& error) {
  return error.ToString() + " (" + CodeName(error.code) + ")";
}

class VolumesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  }
  void TearDown() override {
    volumes_.reset();
    ::umount2((work_ / "mounts").c_str(), MNT_DETACH);
    EXPECT_TRUE(NoDevices());
  }
  Result<std::unique_ptr<Volumes>> Make(std::function<void(const char*)> at = [](const char*) {}) {
    return Volumes::Open({.directory = work_ / "volumes",
                          .mounts = work_ / "mounts",
                          .later = [](const std::function<void()>& job) { job(); },
                          .at = std::move(at)});
  }
  void Reopen() {
    volumes_.reset();
    ::umount2((work_ / "mounts").c_str(), MNT_DETACH);
    auto volumes = Make();
    ASSERT_TRUE(volumes.has_value()) << Text(volumes.error());
    volumes_ = *std::move(volumes);
  }
  VolumeFacts Create(const std::string& name, uint64_t bytes = 16 * kMiB) {
    auto made = volumes_->Create({.name = name, .size_bytes = bytes});
    EXPECT_TRUE(made.has_value()) << Text(made.error());
    return made ? *made : VolumeFacts();
  }
  std::string ImageOf(const std::string& name) { return work_ / ("volumes/" + name + "/image"); }
  bool HasDevice(const std::string& name) {
    auto image = Open(ImageOf(name), O_RDWR);
    auto loop = image ? FindLoop(image->get(), work_ / "mounts") : Result<LoopDevice>(Error{});
    return loop && loop->fd.valid();
  }
  bool NoDevices() {
    const auto names = ListDirectory(work_ / "volumes");
    if (!names) return true;
    for (int i = 0; i < 1000; ++i) {
      bool found = false;
      for (const std::string& name : *names) found |= HasDevice(name);
      if (!found) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // A daemon that is killed before its step number `at`, counted from 0; false when it had fewer.
  bool KilledAt(int at, const std::function<void(Volumes&)>& act) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::unshare(CLONE_NEWNS);  // goes with it, as a daemon's does
      int left = at;
      auto volumes = Make([&](const char*) {
        if (left-- == 0) ::_exit(kKilled);
      });
      if (!volumes) ::_exit(1);
      act(**volumes);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 1);
    return WEXITSTATUS(status) == kKilled;
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const VolumeFacts& facts : volumes_->List()) names.push_back(facts.name);
    return names;
  }
  // What is on disk is what is listed, and all of it can be used.
  void ExpectWhole() {
    EXPECT_EQ(*ListDirectory(work_ / "volumes"), Names());
    for (const VolumeFacts& facts : volumes_->List()) {
      EXPECT_GT(facts.size_bytes, 0u) << facts.name;
      EXPECT_TRUE(volumes_->Attach(facts.name).has_value()) << facts.name;
    }
  }
  TempDir work_;
  std::unique_ptr<Volumes> volumes_;
};

using Strings = std::vector<std::string>;

TEST_F(VolumesTest, OneIsMadeFoundAgainAndRemoved) {
  Reopen();
  const VolumeFacts made = Create("v", 17 * kMiB + 1);
  EXPECT_EQ(made.size_bytes, 18 * kMiB);
  EXPECT_LT(volumes_->disk_bytes("v"), 8 * kMiB);
  Reopen();
  EXPECT_EQ(volumes_->Find("v")->size_bytes, 18 * kMiB);
  EXPECT_EQ(volumes_->Create({.name = "v", .size_bytes = 16 * kMiB}).error().code, Code::kExists);
  {
    const auto mount = volumes_->Attach("v");
    ASSERT_TRUE(mount.has_value()) << Text(mount.error());
    struct stat st {};
    ASSERT_EQ(::stat((*mount)->directory().c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 1000u);
    EXPECT_EQ(*ListDirectory((*mount)->directory()), Strings{});
    EXPECT_EQ(volumes_->Remove("v").error().code, Code::kBadState);
  }
  ASSERT_TRUE(volumes_->Remove("v").has_value());
  EXPECT_EQ(*ListDirectory(work_ / "volumes"), Strings{});
}

TEST_F(VolumesTest, SizesAndNamesAreBounded) {
  Reopen();
  EXPECT_EQ(volumes_->Create({.name = "v", .size_bytes = kMinVolumeBytes - 1}).error().field,
            "size_bytes");
  EXPECT_EQ(volumes_->Create({.name = "v", .size_bytes = kMaxVolumeBytes + 1}).error().field,
            "size_bytes");
  for (const char* name : {"", ".x", "..", "a/b", "-a"})
    EXPECT_EQ(volumes_->Create({.name = name, .size_bytes = 16 * kMiB}).error().field, "name");
}

TEST_F(VolumesTest, TheirNumberIsBounded) {
  for (size_t i = 0; i < kMaxVolumesStored; ++i)
    ASSERT_TRUE(MakeDirectories(work_ / ("volumes/v" + std::to_string(i)), 0700).has_value());
  Reopen();
  EXPECT_EQ(volumes_->Create({.name = "more", .size_bytes = 16 * kMiB}).error().code, Code::kLimit);
  ASSERT_TRUE(volumes_->Remove("v7").has_value());
  Create("more");
}

TEST_F(VolumesTest, AnImageHasOneDeviceWhoeverAsks) {
  Reopen();
  Create("v");
  const auto first = volumes_->Attach("v");
  ASSERT_TRUE(first.has_value());
  // Another daemon finds the device, and the file system.
  const auto again = VolumeMount::Attach(ImageOf("v"), work_ / "mounts/other");
  ASSERT_TRUE(again.has_value()) << Text(again.error());
  struct stat one {
  }, two{};
  ASSERT_EQ(::fstat((*first)->fd(), &one), 0);
  ASSERT_EQ(::fstat(again->fd(), &two), 0);
  EXPECT_EQ(one.st_dev, two.st_dev);
  // And one that does not look for it is refused by the lock.
  const auto image = Open(ImageOf("v"), O_RDWR);
  ASSERT_TRUE(image.has_value());
  EXPECT_NE(::flock(image->get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(errno, EWOULDBLOCK);
}

TEST_F(VolumesTest, ADaemonKilledWhileItMakesOneLeavesNothingOrAllOfIt) {
  int at = 0;
  for (bool killed = true; killed; ++at) {
    killed = KilledAt(at, [](Volumes& v) {
      IgnoreError(v.Create({.name = "v", .size_bytes = 16 * kMiB}), "looked at from outside");
    });
    Reopen();
    ExpectWhole();
    if (!Names().empty()) {
      ASSERT_TRUE(volumes_->Remove("v").has_value());
    }
    Create("v");
    ASSERT_TRUE(NoDevices());
    ASSERT_TRUE(volumes_->Remove("v").has_value());
  }
  EXPECT_GE(at, 6);
}

TEST_F(VolumesTest, ADaemonKilledWhileItRemovesOneRemovesItOrNothing) {
  int at = 0;
  for (bool killed = true; killed; ++at) {
    Reopen();
    if (Names().empty()) Create("v");
    ASSERT_TRUE(NoDevices());
    killed = KilledAt(at, [](Volumes& v) { IgnoreError(v.Remove("v"), "looked at from outside"); });
    Reopen();
    ExpectWhole();
  }
  EXPECT_GE(at, 3);
}

TEST_F(VolumesTest, ADaemonKilledWhileItCopiesLeavesNothingFrozen) {
  Reopen();
  Create("v");
  const auto used = volumes_->Attach("v");  // as a sandbox's mount, it outlives the daemon
  ASSERT_TRUE(used.has_value());
  ASSERT_TRUE(WriteFileAtomic((*used)->directory() + "/file", "kept", Durability::kDisk));
  const std::atomic<bool> never{false};
  int at = 0;
  for (bool killed = true; killed; ++at) {
    killed = KilledAt(at, [&](Volumes& v) {
      IgnoreError(v.Copy(
                      "v", "w", [](uint64_t, uint64_t) {}, never),
                  "looked at from outside");
    });
    {
      auto next = Make();  // thaws
      ASSERT_TRUE(next.has_value()) << Text(next.error());
      ::umount2((work_ / "mounts").c_str(), MNT_DETACH);
    }
    ASSERT_TRUE(WriteFileAtomic((*used)->directory() + "/file", "kept", Durability::kDisk));
    auto later = Make();
    ASSERT_TRUE(later.has_value());
    if ((*later)->Find("w").has_value()) {
      {
        const auto copy = (*later)->Attach("w");
        ASSERT_TRUE(copy.has_value()) << Text(copy.error());
        EXPECT_EQ(*ReadFile((*copy)->directory() + "/file", 100), "kept");
      }
      ASSERT_TRUE((*later)->Remove("w").has_value());
    }
    EXPECT_EQ(*ListDirectory(work_ / "volumes"), Strings{"v"});
    ::umount2((work_ / "mounts").c_str(), MNT_DETACH);
  }
  EXPECT_GE(at, 5);
}

TEST_F(VolumesTest, ItGrowsAndKeepsWhatIsInIt) {
  Reopen();
  Create("v");
  {
    const auto mount = volumes_->Attach("v");
    ASSERT_TRUE(mount.has_value());
    ASSERT_TRUE(WriteFileAtomic((*mount)->directory() + "/file", "kept", Durability::kDisk));
    if (!CanGrowLive()) {
      EXPECT_EQ(volumes_->Grow("v", 64 * kMiB).error().code, Code::kUnsupported);
    }
  }
  const auto grown = volumes_->Grow("v", 64 * kMiB);
  ASSERT_TRUE(grown.has_value()) << Text(grown.error());
  EXPECT_EQ(grown->size_bytes, 64 * kMiB);
  const auto mount = volumes_->Attach("v");
  ASSERT_TRUE(mount.has_value()) << Text(mount.error());
  EXPECT_EQ(*ReadFile((*mount)->directory() + "/file", 100), "kept");
  EXPECT_GT((*mount)->Measure()->total_bytes, 50 * kMiB);
  EXPECT_EQ(volumes_->Grow("v", 32 * kMiB).error().code, Code::kInvalidArgument);
}

TEST_F(VolumesTest, ADamagedOneIsListedNotUsedAndNotRemovedByItself) {
  Reopen();
  Create("v");
  ASSERT_TRUE(NoDevices());
  ASSERT_EQ(::truncate(ImageOf("v").c_str(), 100), 0);
  Reopen();
  EXPECT_EQ(Names(), Strings{"v"});
  EXPECT_EQ(volumes_->Find("v")->size_bytes, 0u);
  EXPECT_FALSE(volumes_->Attach("v").has_value());
  EXPECT_TRUE(volumes_->Remove("v").has_value());
}

}  // namespace
}  // namespace hutch::rootfs
