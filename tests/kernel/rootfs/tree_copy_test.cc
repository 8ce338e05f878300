// Trees as a tenant may leave them, from a real tmpfs to a disk and back.
#include "rootfs/tree_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "rootfs/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs {
namespace {

constexpr uint32_t kFirst = 0x70000000, kSecond = 0x70050000;

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info;
}

std::string Attribute(const std::string& path, const char* name) {
  char value[256];
  const ssize_t size = ::lgetxattr(path.c_str(), name, value, sizeof value);
  return size < 0 ? "-" : std::string(value, static_cast<size_t>(size));
}

class TreeCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    for (const char* name : {"/one", "/two"}) {
      const std::string path = dir_.path() + name;
      ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
      ASSERT_EQ(::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=16m"), 0);
    }
    for (const std::string& path : {from_, disk_, back_})
      ASSERT_TRUE(MakeDirectories(path, 0755).has_value());
    Own(from_, 0, 0);
  }
  void TearDown() override {
    for (const char* name : {"/one", "/two"}) ::umount2((dir_.path() + name).c_str(), MNT_DETACH);
  }

  void Own(const std::string& path, uint32_t uid, uint32_t gid) {
    ASSERT_EQ(::lchown(path.c_str(), kFirst + uid, kFirst + gid), 0) << path;
  }
  std::string Make(const std::string& name, const std::string& text, uint32_t uid = 0) {
    const std::string path = from_ + "/" + name;
    std::ofstream(path) << text;
    Own(path, uid, uid);
    return path;
  }
  Result<TreeCopied> Copy(const std::string& from, const std::string& to, uint32_t from_start,
                          uint32_t to_start) {
    ASSIGN_OR_RETURN(const UniqueFd source, Open(from, O_RDONLY | O_DIRECTORY));
    ASSIGN_OR_RETURN(const UniqueFd target, Open(to, O_RDONLY | O_DIRECTORY));
    return CopyTree({.source = source.get(),
                     .target = target.get(),
                     .from_start = from_start,
                     .to_start = to_start});
  }
  Result<TreeCopied> ToDisk() { return Copy(from_, disk_, kFirst, 0); }
  Result<TreeCopied> Back() { return Copy(disk_, back_, 0, kSecond); }

  TempDir dir_;
  const std::string from_ = dir_.path() + "/one/upper", disk_ = dir_.path() + "/disk/upper",
                    back_ = dir_.path() + "/two/upper";
};

TEST_F(TreeCopyTest, OverlayMarksAndAttributesComeBack) {
  const std::string whiteout = from_ + "/removed", opaque = from_ + "/opaque";
  ASSERT_EQ(::mknod(whiteout.c_str(), S_IFCHR, 0), 0);
  Own(whiteout, 0, 0);
  ASSERT_EQ(::mkdir(opaque.c_str(), 0750), 0);
  Own(opaque, 5, 6);
  ASSERT_EQ(::lsetxattr(opaque.c_str(), "trusted.overlay.opaque", "y", 1, 0), 0);
  const std::string file = Make("file", "text", 7);
  const bool has_user = ::lsetxattr(file.c_str(), "user.note", "mine", 4, 0) == 0;
  // cap_net_raw for the root of the range.
  std::string capability(
      "\x01\x00\x00\x03\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x00\x00\x00\x70",
      24);
  ASSERT_EQ(::lsetxattr(file.c_str(), "security.capability", capability.data(), 24, 0), 0);
  ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  ASSERT_TRUE(ToDisk().has_value());
  EXPECT_EQ(StatOf(disk_ + "/file").st_uid, 7u);
  EXPECT_EQ(StatOf(disk_ + "/opaque").st_gid, 6u);
  EXPECT_EQ(Attribute(disk_ + "/file", "security.capability").size(), 20u);
  ASSERT_TRUE(Back().has_value());
  const struct stat removed = StatOf(back_ + "/removed");
  EXPECT_TRUE(S_ISCHR(removed.st_mode));
  EXPECT_EQ(removed.st_rdev, 0u);
  EXPECT_EQ(Attribute(back_ + "/opaque", "trusted.overlay.opaque"), "y");
  EXPECT_EQ(StatOf(back_ + "/opaque").st_uid, kSecond + 5);
  EXPECT_EQ(StatOf(back_ + "/opaque").st_mode & 07777, 0750u);
  if (has_user) {
    EXPECT_EQ(Attribute(back_ + "/file", "user.note"), "mine");
  }
  std::string shifted = capability;
  shifted[22] = 0x05;
  EXPECT_EQ(Attribute(back_ + "/file", "security.capability"), shifted);
}

TEST_F(TreeCopyTest, FilesKeepHolesLinksModesAndTimes) {
  const std::string sparse = Make("sparse", "");
  {
    const int fd = ::open(sparse.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::pwrite(fd, "end", 3, 4 << 20), 3);
    ASSERT_EQ(::ftruncate(fd, 8 << 20), 0);
    ::close(fd);
  }
  const std::string file = Make("set", "run", 9);
  ASSERT_EQ(::chmod(file.c_str(), 06711), 0);
  const std::string below = from_ + "/below";
  ASSERT_EQ(::mkdir(below.c_str(), 0700), 0);
  Own(below, 1, 1);
  ASSERT_EQ(::link(file.c_str(), (below + "/again").c_str()), 0);
  const struct timespec times[2] = {{11, 22}, {1'000'000'000, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, below.c_str(), times, 0), 0);
  ASSERT_TRUE(ToDisk().has_value());
  ASSERT_TRUE(Back().has_value());
  EXPECT_EQ(StatOf(back_ + "/sparse").st_size, 8 << 20);
  EXPECT_LE(StatOf(disk_ + "/sparse").st_blocks, 64);
  EXPECT_LE(StatOf(back_ + "/sparse").st_blocks, 64);
  const struct stat again = StatOf(back_ + "/below/again");
  EXPECT_EQ(again.st_ino, StatOf(back_ + "/set").st_ino);
  EXPECT_EQ(again.st_nlink, 2u);
  EXPECT_EQ(again.st_mode & 07777, 06711u);
  EXPECT_EQ(again.st_mtim.tv_nsec, 123'456'789);
  EXPECT_EQ(StatOf(back_ + "/below").st_mtim.tv_nsec, 123'456'789);
  EXPECT_FALSE(PathExists(dir_.path() + "/two/.links"));
}

TEST_F(TreeCopyTest, WhatNobodyInsideCanMakeIsRefused) {
  const std::string file = Make("file", "text");
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  EXPECT_EQ(ToDisk().error().code, Code::kCorrupt) << "the host's root is nobody inside";
  Own(file, 0, 0);
  ASSERT_EQ(::chown(file.c_str(), kFirst + 65536, kFirst), 0);
  ASSERT_TRUE(RemoveTree(disk_).has_value() && MakeDirectories(disk_, 0755).has_value());
  EXPECT_EQ(ToDisk().error().code, Code::kCorrupt);
  ASSERT_EQ(::unlink(file.c_str()), 0);
  ASSERT_EQ(::mknod(file.c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  Own(file, 0, 0);
  ASSERT_TRUE(RemoveTree(disk_).has_value() && MakeDirectories(disk_, 0755).has_value());
  EXPECT_EQ(ToDisk().error().code, Code::kCorrupt);
}

TEST_F(TreeCopyTest, SocketsAreLeftOutAndLinksNotFollowed) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_EQ(::chdir(from_.c_str()), 0);
  std::strcpy(address.sun_path, "socket");
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  ASSERT_EQ(::chdir("/"), 0);
  ASSERT_EQ(::symlink("/etc/passwd", (from_ + "/link").c_str()), 0);
  Own(from_ + "/link", 3, 3);
  const auto copied = ToDisk();
  ASSERT_TRUE(copied.has_value()) << copied.error().ToString();
  EXPECT_EQ(copied->files, 1u);
  EXPECT_FALSE(PathExists(disk_ + "/socket"));
  EXPECT_TRUE(S_ISLNK(StatOf(disk_ + "/link").st_mode));
  EXPECT_EQ(StatOf(disk_ + "/link").st_uid, 3u);
}

TEST_F(TreeCopyTest, DepthIsBounded) {
  ASSERT_EQ(::chdir(from_.c_str()), 0);
  for (size_t i = 0; i < kMaxCopyDepth + 1; ++i) {
    ASSERT_EQ(::mkdir("d", 0700), 0);
    ASSERT_EQ(::lchown("d", kFirst, kFirst), 0);
    ASSERT_EQ(::chdir("d"), 0);
  }
  ASSERT_EQ(::chdir("/"), 0);
  EXPECT_EQ(ToDisk().error().code, Code::kLimit);
}

}  // namespace
}  // namespace hutch::rootfs
