// The tree on plain directories, in hybrid mode: what needs a kernel is in tests/kernel/cgroups/.
#include "cgroups/tree.h"

#include <sys/stat.h>

#include "base/file.h"
#include "tests/base/temp_dir.h"

namespace hutch::cgroups {
namespace {

class TreeTest : public testing::Test {
 protected:
  TreeTest() {
    for (const char* name : {"v2", "memory", "cpu,pids"})
      EXPECT_EQ(::mkdir((dir_ / name).c_str(), 0755), 0);
    layout_.mode = Mode::kHybrid;
    layout_.v2_root = dir_ / "v2";
    layout_.v1_roots = {
        {"memory", dir_ / "memory"}, {"pids", dir_ / "cpu,pids"}, {"cpu", dir_ / "cpu,pids"}};
  }
  Result<Tree> OpenTree() const { return Tree::Open(layout_, {.parent = "/a/b"}); }
  std::string Group(const std::string& hierarchy, const std::string& id) const {
    return dir_ / (hierarchy + "/a/b/sandboxes/" + id);
  }

  TempDir dir_;
  Layout layout_;
};

TEST_F(TreeTest, ParentsAreMadeInEveryHierarchyAndGoAgain) {
  const auto tree = OpenTree();
  ASSERT_TRUE(tree) << tree.error().ToString();
  EXPECT_EQ(tree->parent(), "/a/b");
  EXPECT_EQ(tree->controllers(), (std::vector<std::string>{"memory", "pids", "cpu"}));
  for (const char* name : {"v2", "memory", "cpu,pids"})
    EXPECT_TRUE(PathExists(Group(name, ""))) << name;
  EXPECT_TRUE(OpenTree()) << "opened again by the next daemon";
  EXPECT_TRUE(tree->RemoveParents());
  for (const char* name : {"v2", "memory", "cpu,pids"})
    EXPECT_FALSE(PathExists(dir_ / (std::string(name) + "/a/b"))) << name;
  EXPECT_TRUE(tree->RemoveParents()) << "already gone is success";
}

TEST_F(TreeTest, FailedCreateLeavesNoneOfItsGroups) {
  const auto tree = OpenTree();
  ASSERT_TRUE(tree);
  // A plain directory has no cgroup.max.descendants: set-up fails after every mkdir.
  const auto group = tree->Create("sb-x");
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kUnsupported);
  EXPECT_NE(group.error().what.find("sb-x/cgroup.max.descendants"), std::string::npos);
  for (const char* name : {"v2", "memory", "cpu,pids"})
    EXPECT_FALSE(PathExists(Group(name, "sb-x"))) << name;
  ASSERT_EQ(::mkdir(Group("cpu,pids", "sb-x").c_str(), 0755), 0);
  EXPECT_EQ(tree->Create("sb-x").error().code, Code::kExists);
  EXPECT_FALSE(PathExists(Group("v2", "sb-x")));
  EXPECT_TRUE(PathExists(Group("cpu,pids", "sb-x"))) << "not made by this create";
}

TEST_F(TreeTest, ListLooksInEveryHierarchy) {
  const auto tree = OpenTree();
  ASSERT_TRUE(tree);
  ASSERT_EQ(::mkdir(Group("memory", "sb-b").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(Group("v2", "sb-a").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(Group("cpu,pids", "sb-b").c_str(), 0755), 0);
  const auto ids = tree->List();
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, (std::vector<std::string>{"sb-a", "sb-b"}));
}

// Before Linux 6.11 a refused fork is counted in the group of the process, and there is no
// pids.events.local.
TEST_F(TreeTest, RefusedForksOfOldKernelsAreSummedUp) {
  layout_.mode = Mode::kV2;
  layout_.v1_roots.clear();
  const std::string work = Group("v2", "sb-old") + "/work";
  ASSERT_TRUE(MakeDirectories(work + "/p1", 0755));
  ASSERT_TRUE(MakeDirectories(work + "/p2", 0755));
  const auto set = [](const std::string& path, std::string_view text) {
    EXPECT_TRUE(WriteFileAtomic(path, text, Durability::kMemory));
  };
  for (const char* group : {"v2", "v2/a", "v2/a/b", "v2/a/b/sandboxes"})
    set(dir_ / (std::string(group) + "/cgroup.subtree_control"), "cpu io memory pids\n");
  set(work + "/pids.events", "max 0\n");
  set(work + "/p1/pids.events", "max 2\n");
  set(work + "/p2/pids.events", "max 3\n");
  const auto tree = OpenTree();
  ASSERT_TRUE(tree) << tree.error().ToString();
  const auto group = tree->OpenExisting("sb-old");
  ASSERT_TRUE(group);
  EXPECT_EQ(group->ReadStats().pids_limit_hits, 5u);
  set(work + "/pids.events", "max 4\n");
  set(work + "/pids.events.local", "max 4\n");
  EXPECT_EQ(group->ReadStats().pids_limit_hits, 4u);
}

TEST_F(TreeTest, ControllerThatCannotBeEnabledIsNamed) {
  layout_.mode = Mode::kV2;
  const auto tree = OpenTree();
  ASSERT_FALSE(tree);
  EXPECT_NE(tree.error().ToString().find("v2/cgroup.subtree_control"), std::string::npos)
      << tree.error().ToString();
}

}  // namespace
}  // namespace hutch::cgroups
