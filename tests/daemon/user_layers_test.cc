#include "daemon/user_layers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

ImageUsers Image(const std::string& passwd, const std::string& group) {
  ImageUsers users;
  users.passwd_text = passwd;
  users.group_text = group;
  users.users = ParsePasswd(passwd);
  users.groups = ParseGroup(group);
  return users;
}

TEST(UserFiles, NothingIsAddedToAnImageThatKnowsItsUser) {
  const auto image = Image("root:x:0:0::/:/bin/sh\nme:x:7:7::/:/bin/sh\n", "root:x:0:\nus:x:7:\n");
  EXPECT_EQ(PlanUserFiles(image, 7, 7).name, "");
  EXPECT_EQ(PlanUserFiles(image, 0, 0).name, "");
}

TEST(UserFiles, TheImagesLinesStayAndTheMissingOnesFollow) {
  const auto image = Image("root:x:0:0::/:/bin/sh\n# odd\nme:x:7:7::/:/bin/sh", "root:x:0:\n");
  const UserFiles files = PlanUserFiles(image, 1000, 1001);
  EXPECT_EQ(files.name, "sandbox");
  EXPECT_EQ(files.passwd, image.passwd_text + "\nsandbox:x:1000:1001::/home/sandbox:/bin/sh\n");
  EXPECT_EQ(files.group, "root:x:0:\nsandbox:x:1001:\n");
  const UserFiles group_only = PlanUserFiles(image, 7, 7);
  EXPECT_EQ(group_only.name, "me");
  EXPECT_EQ(group_only.passwd, image.passwd_text + "\n");
  EXPECT_EQ(group_only.group, "root:x:0:\nsandbox:x:7:\n");
}

TEST(UserFiles, ATakenNameIsNotGivenTwice) {
  const auto image = Image("sandbox:x:5:5::/:/bin/sh\n", "sandbox:x:5:\n");
  const UserFiles files = PlanUserFiles(image, 6, 6);
  EXPECT_EQ(files.name, "user6");
  EXPECT_NE(files.passwd.find("user6:x:6:6:"), std::string::npos);
  EXPECT_NE(files.group.find("group6:x:6:"), std::string::npos);
}

TEST(UserFiles, AnImageWithoutUsersGetsRootToo) {
  const UserFiles files = PlanUserFiles({}, 1000, 1000);
  EXPECT_EQ(files.passwd.substr(0, 5), "root:");
  EXPECT_EQ(ParsePasswd(files.passwd).size(), 2u);
  EXPECT_EQ(ParsePasswd(PlanUserFiles({}, 0, 0).passwd).size(), 1u);
}

TEST(UserLayers, MountPointsAreMadeAsTheyAreAskedFor) {
  const TempDir dir;
  UserLayers layers(dir / "layers");
  UserFiles files;
  files.directories = {{.path = "/srv", .mode = 0710, .uid = ::getuid(), .gid = ::getgid()},
                       {.path = "/srv/a b", .mode = 01777, .uid = ::getuid(), .gid = ::getgid()}};
  const auto name = layers.Make(files, {});
  ASSERT_TRUE(name.has_value()) << name.error().ToString();
  const std::string layer = (dir / "layers") + "/" + *name;
  struct stat st {};
  ASSERT_EQ(::stat((layer + "/srv").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0710u);
  ASSERT_EQ(::stat((layer + "/srv/a b").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 01777u);
  EXPECT_FALSE(PathExists(layer + "/etc"));  // the image knows the user
  files.directories[0].mode = 0711;
  EXPECT_NE(*layers.Make(files, {}), *name);
}

TEST(UserLayers, OneDirectoryForEachContentReadableInside) {
  const TempDir dir;
  UserLayers layers(dir / "layers");
  const auto one = layers.Make(PlanUserFiles({}, 5, 5), {});
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(*layers.Make(PlanUserFiles({}, 5, 5), {}), *one);
  EXPECT_NE(*layers.Make(PlanUserFiles({}, 6, 5), {}), *one);
  ASSERT_TRUE(layers.Open(*one).has_value());
  struct stat info {};
  ASSERT_EQ(::stat((dir / "layers" + "/" + *one + "/etc/passwd").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  ASSERT_TRUE(layers.Sweep({*one}).has_value());
  EXPECT_EQ(ListDirectory(dir / "layers")->size(), 1u);
}

TEST(UserLayers, TheirNumberIsBoundedByThoseInUse) {
  const TempDir dir;
  UserLayers layers(dir / "layers");
  std::set<std::string> in_use;
  for (uint32_t uid = 1; uid <= kMaxUserLayers; ++uid)
    in_use.insert(*layers.Make(PlanUserFiles({}, uid, 1), in_use));
  const auto more = layers.Make(PlanUserFiles({}, 5000, 1), in_use);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kLimit);
  in_use.erase(in_use.begin());
  EXPECT_TRUE(layers.Make(PlanUserFiles({}, 5000, 1), in_use).has_value());
}

}  // namespace
}  // namespace hutch::daemon
