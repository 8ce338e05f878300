// What a sandbox wrote as a layer over its image: what is kept, what is left out, what fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "rootfs/layer_tar.h"
#include "rootfs/limits.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

constexpr uint32_t kFirstId = 1u << 20;

class SealTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    TarWriter tar;
    tar.Add({.name = "srv", .type = '5', .mode = 0710, .uid = 3, .gid = 4});
    tar.Add({.name = "srv/data", .type = '5'}).Add({.name = "srv/data/below", .data = "x"});
    parent_ = Import(WriteOneLayer(tar.Bytes(), Compression::kGzip, work_ / "layout"), "base:one");
    for (const char* name : {"m0", "upper", "m2"}) {
      ASSERT_EQ(::mkdir((scratch_ / name).c_str(), 0755), 0);
      Own(name, 1000);
    }
  }
  void Own(const std::string& path, uint32_t id) {
    ASSERT_EQ(::lchown((scratch_ / path).c_str(), kFirstId + id, kFirstId + id), 0) << path;
  }
  void Write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(scratch_ / path, text, Durability::kMemory).has_value());
    Own(path, 1000);
  }
  Result<Image> Seal(const std::string& reference = "") {
    skipped_ = {};
    const UniqueFd scratch = *Open(scratch_.path(), O_PATH | O_DIRECTORY);
    std::vector<UniqueFd> layers;
    for (const std::string& diff_id : parent_.diff_ids)
      layers.push_back(*store_->OpenLayer(diff_id));
    const LowerLayers lower(std::move(layers));
    return store_->Seal({.parent = parent_.id,
                         .reference = reference,
                         .created_by = "a test",
                         .labels = {{"kept", "so"}},
                         .write =
                             [&](const ByteSink& sink) {
                               return WriteScratchTar({.scratch_fd = scratch.get(),
                                                       .roots = roots_,
                                                       .lower = lower,
                                                       .host_id_start = kFirstId},
                                                      sink, &skipped_);
                             }},
                        nullptr);
  }
  // Below the new layer.
  static std::string Top(SealTest& test, const Image& image) {
    return test.LayerRoot(image.diff_ids.back());
  }
  bool Skipped(const std::string& path) const {
    return std::any_of(skipped_.examples.begin(), skipped_.examples.end(),
                       [&](const auto& one) { return one.first == path; });
  }
  static struct stat Stat(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st;
  }
  static bool IsOpaque(const std::string& path) {
    char value = 0;
    return ::lgetxattr(path.c_str(), "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
  }

  TempDir scratch_;
  Image parent_;
  SkippedFiles skipped_;
  std::vector<TrackedRoot> roots_ = {{"m2", "/srv/data", false},
                                     {"m0", "/workspace", false},
                                     {"upper", "/", true},
                                     {"none", "/run", false},
                                     {"none", "/proc/meminfo", false}};
};

TEST_F(SealTest, FilesAreKeptAsTheSandboxHasThem) {
  Write("m0/file", "text");
  ASSERT_EQ(::chmod((scratch_ / "m0/file").c_str(), 04751), 0);
  ASSERT_EQ(::link((scratch_ / "m0/file").c_str(), (scratch_ / "m0/hard").c_str()), 0);
  ASSERT_EQ(::symlink("file", (scratch_ / "m0/link").c_str()), 0);
  Own("m0/link", 7);
  Own("m0/file", 65535);
  ASSERT_EQ(::chmod((scratch_ / "m0/file").c_str(), 04751), 0);  // a chown takes set-user-id away
  const bool attributes = ::setxattr((scratch_ / "m0/file").c_str(), "user.a", "1", 1, 0) == 0;
  const auto image = Seal();
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  const std::string top = Top(*this, *image);
  const struct stat file = Stat(top + "/workspace/file");
  EXPECT_EQ(file.st_mode, S_IFREG | 04751u);
  EXPECT_EQ(file.st_uid, 65535u);
  EXPECT_EQ(file.st_ino, Stat(top + "/workspace/hard").st_ino);
  EXPECT_EQ(Stat(top + "/workspace/link").st_uid, 7u);
  EXPECT_EQ(Stat(top + "/workspace").st_uid, 1000u);
  char value = 0;
  if (attributes) {
    EXPECT_EQ(::lgetxattr((top + "/workspace/file").c_str(), "user.a", &value, 1), 1);
  }
  EXPECT_EQ(skipped_.count, 0u);
}

TEST_F(SealTest, AScratchDirectoryHidesWhatIsBelowAndChangesNothingAboveIt) {
  const auto image = Seal();
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  const std::string top = Top(*this, *image);
  EXPECT_TRUE(IsOpaque(top + "/srv/data"));
  EXPECT_FALSE(IsOpaque(top + "/srv"));
  const struct stat above = Stat(top + "/srv");
  EXPECT_EQ(above.st_mode, S_IFDIR | 0710u);
  EXPECT_EQ(above.st_uid, 3u);
}

TEST_F(SealTest, TheUpperTellsWhatWasDeletedAndTheOthersDoNot) {
  const dev_t none = makedev(0, 0);
  ASSERT_EQ(::mknod((scratch_ / "upper/gone").c_str(), S_IFCHR, none), 0);  // the host's root's
  ASSERT_EQ(::mknod((scratch_ / "m0/forged").c_str(), S_IFCHR, none), 0);
  Own("m0/forged", 1);
  const auto image = Seal();
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  const struct stat gone = Stat(Top(*this, *image) + "/gone");
  EXPECT_TRUE(S_ISCHR(gone.st_mode) && gone.st_rdev == none);
  EXPECT_TRUE(Skipped("/workspace/forged"));
}

TEST_F(SealTest, WhatNoLayerHoldsIsLeftOutAndTold) {
  Write("m0/.wh.name", "");
  Write("upper/.wh..wh..opq", "");
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (scratch_ / "m0/socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  Own("m0/socket", 1);
  for (size_t i = 0; i < kSkippedExamples; ++i) Write("m0/.wh.more" + std::to_string(i), "");
  const auto image = Seal();
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  EXPECT_TRUE(Skipped("/.wh..wh..opq"));
  EXPECT_EQ(skipped_.count, kSkippedExamples + 3);
  EXPECT_EQ(skipped_.examples.size(), kSkippedExamples);
  EXPECT_FALSE(IsOpaque(Top(*this, *image)));
  EXPECT_NE(::access((Top(*this, *image) + "/workspace/socket").c_str(), F_OK), 0);
}

TEST_F(SealTest, AnImageLikeAnyOther) {
  const auto image = Seal("sealed:one");
  ASSERT_TRUE(image.has_value()) << Text(image.error());
  EXPECT_EQ(image->references, std::vector<std::string>{"sealed:one"});
  EXPECT_EQ(image->config.labels.at("kept"), "so");
  EXPECT_EQ(image->diff_ids.size(), parent_.diff_ids.size() + 1);
  Reopen();
  EXPECT_TRUE(store_->Resolve("sealed:one").has_value());
  EXPECT_TRUE(store_->Damaged().empty());
}

TEST_F(SealTest, AFailureLeavesNothing) {
  const auto before = Paths();
  Write("upper/stranger", "");
  ASSERT_EQ(::chown((scratch_ / "upper/stranger").c_str(), 0, 0), 0);
  auto image = Seal();
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kCorrupt) << Text(image.error());
  ASSERT_EQ(::unlink((scratch_ / "upper/stranger").c_str()), 0);
  if (::setxattr((scratch_ / "upper").c_str(), "trusted.overlay.redirect", "/x", 2, 0) == 0) {
    image = Seal();
    ASSERT_FALSE(image.has_value());
    EXPECT_EQ(image.error().code, Code::kUnsupported) << Text(image.error());
    ASSERT_EQ(::removexattr((scratch_ / "upper").c_str(), "trusted.overlay.redirect"), 0);
  }
  Write("m0/huge", "");
  ASSERT_EQ(::truncate((scratch_ / "m0/huge").c_str(), int64_t{1} << 40), 0);
  image = Seal();
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kTooLarge) << Text(image.error());
  EXPECT_EQ(Paths(), before);
}

}  // namespace
}  // namespace hutch::rootfs
