// Snapshots and their differences on a real tmpfs and under a real overlay.
#include "rootfs/changes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "rootfs/limits.h"
#include "rootfs/overlay.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}
std::string Line(const FileChange& change) {
  return std::string(ChangeActionName(change.action)) + " " + change.path + " " +
         FileKindName(change.kind) + " " + std::to_string(change.size_bytes);
}
using Lines = std::vector<std::string>;
Lines ToLines(const ChangeSet& set) {
  Lines lines;
  for (const FileChange& change : set.changes) lines.push_back(Line(change));
  return lines;
}

// The scratch of a sandbox, attached in a mount namespace of the test's own.
class ChangesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=256m,nr_inodes=2000000"), 0);
    for (const char* name : {"m0", "upper", "work", "low", "high", "root"})
      ASSERT_EQ(::mkdir((dir_ / name).c_str(), 0755), 0);
    root_.reset(::open(dir_.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    before_ = Now();
  }
  void TearDown() override {
    ::umount2((dir_ / "root").c_str(), MNT_DETACH);
    EXPECT_EQ(::umount2(dir_.path().c_str(), MNT_DETACH), 0);
  }
  Snapshot Now() {
    auto snapshot = Snapshot::Take(root_.get(), roots_);
    EXPECT_TRUE(snapshot.has_value()) << snapshot.error().ToString();
    return snapshot ? std::move(*snapshot) : Snapshot();
  }
  ChangeSet Changes(size_t max = 1000) {
    Snapshot after = Now();
    ChangeSet set = Diff(before_, after, roots_, lower_ ? &*lower_ : nullptr, max);
    before_ = std::move(after);
    return set;
  }
  std::string Path(const std::string& name) const { return dir_ / ("m0/" + name); }
  // What an image's layers have, "low" below "high"; then the overlay over both.
  void MountOverlay() {
    std::vector<UniqueFd> layers;
    for (const char* name : {"low", "high"})
      layers.emplace_back(::open((dir_ / name).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    lower_.emplace(std::move(layers));
    const std::string options = "lowerdir=" + dir_ / "high" + ":" + dir_ / "low" +
                                ",upperdir=" + dir_ / "upper" + ",workdir=" + dir_ / "work";
    ASSERT_EQ(::mount("overlay", (dir_ / "root").c_str(), "overlay", 0, options.c_str()), 0);
    before_ = Now();
  }
  std::string Root(const std::string& name) const { return dir_ / ("root/" + name); }

  TempDir dir_;
  UniqueFd root_;
  std::vector<TrackedRoot> roots_ = {{"m0", "/workspace", false}, {"upper", "/", true}};
  std::optional<LowerLayers> lower_;
  Snapshot before_;
};

TEST_F(ChangesTest, CreatedModifiedAndDeletedAreTold) {
  Write(Path("kept"), "same");
  Write(Path("grown"), "1");
  Write(Path("gone"), "12345");
  Changes();
  Write(Path("grown"), "123");
  ASSERT_EQ(::unlink(Path("gone").c_str()), 0);
  ASSERT_EQ(::mkdir(Path("d").c_str(), 0755), 0);
  Write(Path("d/new"), "12");
  ASSERT_EQ(::symlink("/etc/shadow", Path("link").c_str()), 0);
  EXPECT_EQ(ToLines(Changes()), (Lines{
                                    "created /workspace/d directory 0",
                                    "created /workspace/d/new file 2",
                                    "deleted /workspace/gone file 5",
                                    "modified /workspace/grown file 3",
                                    "created /workspace/link symlink 11",
                                }));
  EXPECT_EQ(ToLines(Changes()), Lines());
}

TEST_F(ChangesTest, SameSizeWriteBackdatedTimesAndModeAreSeen) {
  for (const char* name : {"rewritten", "backdated", "mode"}) Write(Path(name), "abc");
  Changes();
  Write(Path("rewritten"), "xyz");
  const struct timeval old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimes(Path("backdated").c_str(), old), 0);
  ASSERT_EQ(::chmod(Path("mode").c_str(), 0600), 0);
  EXPECT_EQ(ToLines(Changes()),
            (Lines{"modified /workspace/backdated file 3", "modified /workspace/mode file 3",
                   "modified /workspace/rewritten file 3"}));
  Write(Path("backdated"), "xyz");
  ASSERT_EQ(::utimes(Path("backdated").c_str(), old), 0);
  EXPECT_EQ(ToLines(Changes()), (Lines{"modified /workspace/backdated file 3"}));
}

TEST_F(ChangesTest, RenameIsDeletedAndCreatedAndReplacementIsModified) {
  Write(Path("a"), "1");
  Write(Path("target"), "1");
  Changes();
  ASSERT_EQ(::rename(Path("a").c_str(), Path("b").c_str()), 0);
  Write(Path(".tmp"), "2");
  ASSERT_EQ(::rename(Path(".tmp").c_str(), Path("target").c_str()), 0);
  EXPECT_EQ(ToLines(Changes()), (Lines{"deleted /workspace/a file 1", "created /workspace/b file 1",
                                       "modified /workspace/target file 1"}));
}

TEST_F(ChangesTest, DirectoriesAreNotModifiedByTheirEntriesButByReplacement) {
  ASSERT_EQ(::mkdir(Path("d").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(Path("e").c_str(), 0755), 0);
  Write(Path("e/old"), "");
  Changes();
  Write(Path("d/x"), "");
  ASSERT_EQ(::rename(Path("e").c_str(), Path("f").c_str()), 0);
  ASSERT_EQ(::mkdir(Path("e").c_str(), 0755), 0);
  EXPECT_EQ(ToLines(Changes()),
            (Lines{"created /workspace/d/x file 0", "modified /workspace/e directory 0",
                   "deleted /workspace/e/old file 0", "created /workspace/f directory 0",
                   "created /workspace/f/old file 0"}));
  ASSERT_EQ(::unlink(Path("d/x").c_str()), 0);
  ASSERT_EQ(::rmdir(Path("d").c_str()), 0);
  Write(Path("d"), "a file now");
  EXPECT_EQ(ToLines(Changes()),
            (Lines{"modified /workspace/d file 10", "deleted /workspace/d/x file 0"}));
}

TEST_F(ChangesTest, LinksMountsAndDevicesAreNeverEntered) {
  ASSERT_EQ(::symlink("/", Path("root").c_str()), 0);
  ASSERT_EQ(::symlink("../work", Path("sideways").c_str()), 0);
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);  // opening it would block for ever
  ASSERT_EQ(::mknod(Path("null").c_str(), S_IFCHR | 0600, ::makedev(0, 0)), 0);
  ASSERT_EQ(::mkdir(Path("other").c_str(), 0755), 0);
  ASSERT_EQ(::mount("tmpfs", Path("other").c_str(), "tmpfs", 0, nullptr), 0);
  Write(Path("other/hidden"), "");
  const ChangeSet set = Changes();
  // "null" is no whiteout outside the upper. The foreign mount cannot be listed, and that is said.
  EXPECT_EQ(ToLines(set),
            (Lines{"created /workspace/fifo other 0", "created /workspace/null other 0",
                   "created /workspace/other directory 0", "created /workspace/root symlink 1",
                   "created /workspace/sideways symlink 7"}));
  EXPECT_FALSE(set.complete);
  EXPECT_EQ(::umount2(Path("other").c_str(), MNT_DETACH), 0);
}

TEST_F(ChangesTest, AMillionNamesCostBoundedTime) {
  for (size_t i = 0; i < kMaxTrackedFiles + 30'000; ++i)
    UniqueFd(::open(Path(std::to_string(i)).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const auto start = std::chrono::steady_clock::now();
  const Snapshot snapshot = Now();
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_FALSE(snapshot.complete());
  EXPECT_EQ(snapshot.size(), kMaxTrackedFiles);
  EXPECT_LT(took, std::chrono::seconds(2));
}

TEST_F(ChangesTest, WhatIsListedIsTrueEvenWhenTheWalkWasCut) {
  ASSERT_EQ(::mkdir(Path("many").c_str(), 0755), 0);
  for (size_t i = 0; i < kMaxTrackedFiles; ++i)
    UniqueFd(
        ::open(Path("many/" + std::to_string(i)).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  Write(Path("seen"), "1");
  Changes();
  Write(Path("seen"), "12");
  Write(Path("new"), "");
  ASSERT_EQ(::unlink(Path("many/7").c_str()), 0);
  const ChangeSet set = Changes();
  EXPECT_FALSE(set.complete);
  // Which of "many" fell out of the first walk is the kernel's order: none of it may be claimed
  // new.
  for (const FileChange& change : set.changes)
    EXPECT_TRUE(change.path == "/workspace/seen" || change.path == "/workspace/new" ||
                change.path == "/workspace/many/7")
        << change.path;
  EXPECT_GE(set.changes.size(), 2u);
}

TEST_F(ChangesTest, DepthAndPathLengthEndTheWalk) {
  UniqueFd at(::open(Path("").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; i < kMaxTrackedDepth + 5; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), "d", 0755), 0);
    at.reset(::openat(at.get(), "d", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  Snapshot snapshot = Now();
  EXPECT_FALSE(snapshot.complete());
  EXPECT_EQ(snapshot.size(), kMaxTrackedDepth);

  at.reset(::open(Path("").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::renameat2(AT_FDCWD, Path("d").c_str(), AT_FDCWD, (dir_ / "work/d").c_str(), 0), 0);
  EXPECT_TRUE(Now().complete());
  const std::string name(255, 'n');
  for (size_t i = 0; i < kMaxTrackedPathBytes / 256 + 2; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), name.c_str(), 0755), 0);
    at.reset(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  EXPECT_FALSE(Now().complete());
}

TEST_F(ChangesTest, LongNamesEndTheWalk) {
  const std::string tail(245, 'n');
  for (size_t i = 0; i < kMaxTrackedNameBytes / 250 + 10; ++i)
    UniqueFd(::open(Path(std::to_string(100000 + i) + tail).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC,
                    0600));
  const Snapshot snapshot = Now();
  EXPECT_FALSE(snapshot.complete());
  EXPECT_LT(snapshot.size(), kMaxTrackedFiles);
}

TEST_F(ChangesTest, ChangesAreBoundedAndSaidToBe) {
  for (int i = 0; i < 30; ++i) Write(Path(std::to_string(i)), "");
  const ChangeSet set = Changes(10);
  EXPECT_EQ(set.changes.size(), 10u);
  EXPECT_FALSE(set.complete);
}

TEST_F(ChangesTest, TheUpperIsReadAgainstTheLayers) {
  ASSERT_EQ(::mkdir((dir_ / "low/etc").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((dir_ / "high/etc").c_str(), 0755), 0);
  Write(dir_ / "low/etc/hosts", "hosts");
  Write(dir_ / "low/etc/passwd", "12345678");
  Write(dir_ / "low/etc/removed-above", "");
  ASSERT_EQ(::mknod((dir_ / "high/etc/removed-above").c_str(), S_IFCHR, ::makedev(0, 0)), 0);
  MountOverlay();
  Write(Root("etc/hosts"), "changed");
  Write(Root("etc/new"), "1");
  Write(Root("etc/removed-above"), "12");
  ASSERT_EQ(::unlink(Root("etc/passwd").c_str()), 0);
  EXPECT_EQ(ToLines(Changes()),
            (Lines{"modified /etc/hosts file 7", "created /etc/new file 1",
                   "deleted /etc/passwd file 8", "created /etc/removed-above file 2"}));
  Write(Root("etc/passwd"), "back");
  ASSERT_EQ(::unlink(Root("etc/hosts").c_str()), 0);
  ASSERT_EQ(::unlink(Root("etc/new").c_str()), 0);
  EXPECT_EQ(ToLines(Changes()), (Lines{"deleted /etc/hosts file 7", "deleted /etc/new file 1",
                                       "created /etc/passwd file 4"}));
}

TEST_F(ChangesTest, DirectoriesOfTheImageAreDeletedAndReplacedAsOne) {
  for (const char* name : {"low/a", "low/b", "low/c"})
    ASSERT_EQ(::mkdir((dir_ / name).c_str(), 0755), 0);
  for (const char* name : {"low/a/f", "low/b/f", "low/b/g", "low/c/f"}) Write(dir_ / name, "1");
  MountOverlay();
  ASSERT_EQ(::unlink(Root("a/f").c_str()), 0);
  ASSERT_EQ(::rmdir(Root("a").c_str()), 0);
  for (const char* name : {"b/f", "b/g"}) ASSERT_EQ(::unlink(Root(name).c_str()), 0);
  ASSERT_EQ(::rmdir(Root("b").c_str()), 0);
  ASSERT_EQ(::mkdir(Root("b").c_str(), 0755), 0);
  Write(Root("b/f"), "12");
  Write(Root("b/new"), "");
  Write(Root("c/new"), "");  // copies the directory up, which is no change of it
  EXPECT_EQ(ToLines(Changes()),
            (Lines{"deleted /a directory 0", "modified /b directory 0", "modified /b/f file 2",
                   "created /b/new file 0", "created /c/new file 0"}));
}

TEST_F(ChangesTest, OpaqueDirectoriesOfALayerHideWhatIsBelow) {
  for (const char* name : {"low/d", "high/d"}) ASSERT_EQ(::mkdir((dir_ / name).c_str(), 0755), 0);
  Write(dir_ / "low/d/hidden", "1");
  Write(dir_ / "high/d/shown", "1");
  ASSERT_EQ(::setxattr((dir_ / "high/d").c_str(), "trusted.overlay.opaque", "y", 1, 0), 0);
  MountOverlay();
  Write(Root("d/hidden"), "12");
  Write(Root("d/shown"), "12");
  EXPECT_EQ(ToLines(Changes()), (Lines{"created /d/hidden file 2", "modified /d/shown file 2"}));
}

TEST_F(ChangesTest, AWalkWhileFilesComeAndGoEnds) {
  std::atomic<bool> stop = false;
  std::atomic<int> made = 0;
  std::thread churn([&] {
    for (int i = 0; !stop; ++i) {
      const std::string a = Path("d" + std::to_string(i % 7)), b = Path("link");
      ::mkdir(a.c_str(), 0755);
      Write(a + "/f", "1");
      made += ::symlink("/etc", b.c_str()) == 0 ? 1 : 0;
      ::rename(b.c_str(), (a + "/f").c_str());
      ::unlink((a + "/f").c_str());
      ::rmdir(a.c_str());
    }
  });
  for (int i = 0; i < 300 || made < 20; ++i) Changes();  // both at work
  stop = true;
  churn.join();
  EXPECT_GT(made, 0);
  Changes();
  EXPECT_EQ(ToLines(Changes()), Lines());
}

}  // namespace
}  // namespace hutch::rootfs
