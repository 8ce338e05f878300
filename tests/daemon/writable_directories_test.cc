// Volumes and mounts as data: what is mounted, what a layer must have, what is refused.
#include "daemon/writable_directories.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/limits.h"
#include "runtime/default_spec.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

using Paths = std::vector<std::string>;

class WritableDirectoriesTest : public testing::Test {
 protected:
  WritableDirectoriesTest() {
    EXPECT_TRUE(MakeDirectories(image_ / "srv/data", 0755).has_value());
    EXPECT_EQ(::chmod((image_ / "srv").c_str(), 0710), 0);
    EXPECT_EQ(::symlink("srv", (image_ / "link").c_str()), 0);
    EXPECT_TRUE(WriteFileAtomic(image_ / "file", "", Durability::kMemory).has_value());
  }

  Result<std::vector<LayerDirectory>> Plan(const Paths& paths) {
    std::vector<WritableDirectory> directories;
    for (const std::string& path : paths) directories.push_back({.path = path, .users = true});
    return PlanAll(directories);
  }
  Result<std::vector<LayerDirectory>> PlanAll(const std::vector<WritableDirectory>& directories) {
    spec_ = runtime::DefaultSpec();
    spec_.process.user.uid = 5;
    usual_ = spec_.mounts.size();
    std::vector<UniqueFd> layers;
    layers.push_back(*Open(image_.path(), O_PATH | O_DIRECTORY));
    return PlanDirectories(directories, rootfs::LowerLayers(std::move(layers)), spec_);
  }
  Paths Mounted() const {
    Paths paths;
    for (size_t i = usual_; i < spec_.mounts.size(); ++i)
      paths.push_back(spec_.mounts[i].destination);
    return paths;
  }
  static Paths PathsOf(const std::vector<LayerDirectory>& layer) {
    Paths paths;
    for (const LayerDirectory& one : layer) paths.push_back(one.path);
    return paths;
  }

  TempDir image_;
  oci::Spec spec_;
  size_t usual_ = 0;
};

TEST_F(WritableDirectoriesTest, WhatTheImageHasNeedsNoLayer) {
  const auto layer = Plan({"/srv/data"});
  ASSERT_TRUE(layer.has_value());
  EXPECT_TRUE(layer->empty());
  EXPECT_EQ(Mounted(), (Paths{"/srv/data"}));
  const std::vector<std::string>& options = spec_.mounts.back().options;
  EXPECT_NE(std::find(options.begin(), options.end(), "uid=5"), options.end());
  EXPECT_NE(std::find(options.begin(), options.end(), "mode=755"), options.end());
}

TEST_F(WritableDirectoriesTest, MissingOnesComeWithTheirParentsAsTheyAre) {
  const auto layer = Plan({"/srv/new/deep", "/other"});
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(PathsOf(*layer), (Paths{"/other", "/srv", "/srv/new", "/srv/new/deep"}));
  EXPECT_EQ((*layer)[1].mode, 0710u);
  EXPECT_EQ((*layer)[1].uid, ::getuid());
  EXPECT_EQ((*layer)[2].mode, 0755u);
}

TEST_F(WritableDirectoriesTest, TheImagesOwnWorkspaceIsLeftAlone) {
  const auto layer = PlanAll(
      {{.path = "/srv/data", .only_if_missing = true}, {.path = "/app", .only_if_missing = true}});
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(Mounted(), (Paths{"/app"}));
}

TEST_F(WritableDirectoriesTest, WhatIsMountedAnywayStays) {
  const auto layer = Plan({"/workspace", "/tmp"});
  ASSERT_TRUE(layer.has_value());
  EXPECT_TRUE(Mounted().empty());
  EXPECT_TRUE(layer->empty());
  // Below a mount the mount has it, not the layer.
  const auto below = Plan({"/workspace/node_modules"});
  ASSERT_TRUE(below.has_value());
  EXPECT_TRUE(below->empty());
  EXPECT_EQ(Mounted(), (Paths{"/workspace/node_modules"}));
}

TEST_F(WritableDirectoriesTest, WhatIsInTheWayIsNamed) {
  for (const char* path : {"/link", "/link/data", "/file", "/file/x", "/var", "/home"}) {
    const auto layer = Plan({path});
    ASSERT_FALSE(layer.has_value()) << path;
    EXPECT_EQ(layer.error().code, Code::kInvalidArgument) << path;
    EXPECT_NE(layer.error().what.find("cannot make /"), std::string::npos) << layer.error().what;
  }
}

TEST(CollectDirectories, VolumesAreTheUsersAndCountOnce) {
  oci::ImageConfig image;
  image.volumes = {"/b/", "//a", "/b"};
  const auto all = CollectDirectories(image, {{.path = "/a", .mode = 0700}, {.path = "/c"}});
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].path, "/a");
  EXPECT_TRUE((*all)[0].users);
  EXPECT_EQ((*all)[1].path, "/b");
  EXPECT_FALSE((*all)[2].users);
}

TEST(CollectDirectories, AVolumeStaysInItsPlace) {
  for (const char* path : {"", "/", "relative", "/a/../b", "/..", "/proc", "/proc/sys", "/dev/shm",
                           "/sys/fs/cgroup"}) {
    oci::ImageConfig image;
    image.volumes = {path};
    const auto all = CollectDirectories(image, {});
    ASSERT_FALSE(all.has_value()) << path;
    EXPECT_EQ(all.error().field, "image");
  }
  oci::ImageConfig image;
  image.volumes = {"/" + std::string(256, 'x')};
  EXPECT_FALSE(CollectDirectories(image, {}).has_value());
}

TEST(CollectDirectories, VolumesAreBounded) {
  oci::ImageConfig image;
  for (size_t i = 0; i < kMaxWritableDirectories; ++i)
    image.volumes.push_back("/v" + std::to_string(i));
  EXPECT_TRUE(CollectDirectories(image, {}).has_value());
  const auto more = CollectDirectories(image, {{.path = "/one-more"}});
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kLimit);
  image.volumes.push_back("/another");
  EXPECT_FALSE(CollectDirectories(image, {}).has_value());
}

TEST(AddVolumeTargets, WhatTheImageHasThereGivesWay) {
  std::vector<WritableDirectory> directories = {
      {.path = "/data", .users = true}, {.path = "/data/below"}, {.path = "/database"}};
  AddVolumeTargets({{.name = "v", .target = "/data"}, {.name = "w", .target = "/a"}}, &directories);
  std::vector<std::pair<std::string, int>> found;
  for (const WritableDirectory& one : directories) found.emplace_back(one.path, one.volume);
  EXPECT_EQ(found,
            (std::vector<std::pair<std::string, int>>{{"/a", 1}, {"/data", 0}, {"/database", -1}}));
}

}  // namespace
}  // namespace hutch::daemon
