// Which directories a sandbox sees as its image has them: a label that anybody may have written.
#include "daemon/sealed_directories.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "daemon/limits.h"
#include "runtime/default_spec.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

oci::ImageConfig Labelled(const std::string& text) {
  oci::ImageConfig image;
  image.labels[kSealedLabel] = text;
  return image;
}

class UseSealed : public testing::Test {
 protected:
  UseSealed() {
    for (const char* path : {"workspace", "tmp", "etc", "run", "home/sandbox", "srv/data"})
      EXPECT_TRUE(MakeDirectories(layer_ / path, 0755).has_value());
    EXPECT_EQ(::chmod((layer_ / "workspace").c_str(), 0711), 0);
    EXPECT_EQ(::chmod((layer_ / "srv").c_str(), 0750), 0);
    request_.spec = runtime::DefaultSpec();
    request_.layers.push_back(*Open(layer_.path(), O_PATH | O_DIRECTORY));
  }
  std::string TypeOf(const std::string& path) const {
    for (const oci::Mount& mount : request_.spec.mounts)
      if (mount.destination == path) return mount.type;
    return "none";
  }
  void Use(const std::string& text) {
    const Status used = UseSealedDirectories(Labelled(text), request_);
    ASSERT_TRUE(used.has_value()) << used.error().what;
  }

  TempDir layer_;
  runtime::CreateRequest request_;
};

TEST_F(UseSealed, WhatIsListedAndWritableAnywayIsTheImages) {
  Use(R"(["/workspace", "/home/sandbox"])");
  EXPECT_EQ(TypeOf("/workspace"), "root");
  EXPECT_EQ(TypeOf("/home/sandbox"), "root");
  EXPECT_EQ(TypeOf("/tmp"), "tmpfs");
  ASSERT_EQ(request_.upper_directories.size(), 3u);
  EXPECT_EQ(request_.upper_directories[0].name, "home");
  EXPECT_EQ(request_.upper_directories[2].name, "workspace");
  EXPECT_EQ(request_.upper_directories[2].mode, 0711u);
}

TEST_F(UseSealed, NothingElseBecomesWritable) {
  const size_t before = request_.spec.mounts.size();
  Use(R"(["/etc", "/", "/usr", "/run", "/dev/shm", "/proc", "/../etc", "/srv/data"])");
  EXPECT_EQ(request_.spec.mounts.size(), before);
  for (const oci::Mount& mount : request_.spec.mounts) EXPECT_NE(mount.type, "root");
  EXPECT_TRUE(request_.upper_directories.empty());
}

TEST_F(UseSealed, WhereTheImageHasNoDirectoryItStaysEmpty) {
  EXPECT_EQ(::symlink("/etc", (layer_ / "root").c_str()), 0);
  Use(R"(["/root", "/var/tmp"])");
  EXPECT_EQ(TypeOf("/root"), "tmpfs");
  EXPECT_EQ(TypeOf("/var/tmp"), "tmpfs");
}

TEST_F(UseSealed, AMountInOneIsTheImagesWhereItHasIt) {
  EXPECT_TRUE(MakeDirectories(layer_ / "workspace/in", 0755).has_value());
  for (const char* path : {"/workspace/in", "/workspace/new"})
    request_.spec.mounts.push_back({path, "tmpfs", "tmpfs", {}});
  Use(R"(["/workspace"])");
  EXPECT_EQ(TypeOf("/workspace/in"), "none");
  EXPECT_EQ(TypeOf("/workspace/new"), "tmpfs");
}

TEST_F(UseSealed, OneInADirectoryThatIsNotListedStaysWithIt) {
  request_.spec.mounts.push_back({"/srv", "tmpfs", "tmpfs", {}});
  request_.spec.mounts.push_back({"/srv/data", "tmpfs", "tmpfs", {}});
  Use(R"(["/srv/data"])");
  EXPECT_EQ(TypeOf("/srv/data"), "tmpfs");
}

TEST(SealedDirectories, WhatIsNoListOfPathsIsRefused) {
  for (const char* text : {"", "{", "{}", "7", "[7]", "[\"\"]", "[\"tmp\"]", "[\"/a\\u0000b\"]"}) {
    const auto directories = SealedDirectories(Labelled(text));
    ASSERT_FALSE(directories.has_value()) << text;
    EXPECT_EQ(directories.error().field, "image");
  }
  EXPECT_TRUE(SealedDirectories({})->empty());
  EXPECT_EQ(SealedDirectories(Labelled(SealedLabelText({"/a", "/b"})))->size(), 2u);
}

TEST(SealedDirectories, LabelsAreBounded) {
  const std::string text = "[\"/" + std::string(kMaxSealedLabelBytes - 5, 'a') + "\"]";
  ASSERT_EQ(text.size(), kMaxSealedLabelBytes);
  EXPECT_TRUE(SealedDirectories(Labelled(text)).has_value());
  EXPECT_FALSE(SealedDirectories(Labelled(text + " ")).has_value());
}

}  // namespace
}  // namespace hutch::daemon
