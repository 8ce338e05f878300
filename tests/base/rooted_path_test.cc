#include "base/rooted_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/file.h"
#include "base/sys_raw.h"
#include "tests/base/temp_dir.h"

namespace hutch {
namespace {

// <dir>/root is the untrusted root; <dir>/outside/secret is what nobody may reach from it.
struct Rooted : testing::Test {
  TempDir dir;
  UniqueFd root;

  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir / "root/etc", 0755).has_value());
    ASSERT_TRUE(MakeDirectories(dir / "outside", 0755).has_value());
    Write("outside/secret", "host");
    Write("root/etc/passwd", "inside");
    root = *Open(dir / "root", O_PATH | O_DIRECTORY);
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir / name, text, Durability::kMemory).has_value());
  }
  void Link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), (dir / name).c_str()), 0) << name;
  }
  Result<std::string> Read(const std::string& path, Links links = Links::kInRoot) {
    ASSIGN_OR_RETURN(const RootedPath rooted, RootedPath::Make(root.get(), path, links));
    ASSIGN_OR_RETURN(const UniqueFd file, rooted.OpenRegularFile());
    return ReadAll(file.get(), 100);
  }
};

TEST_F(Rooted, PlainPathsAndSlashesMeanTheRoot) {
  for (const char* path :
       {"etc/passwd", "/etc/passwd", "///etc//passwd", "./etc/./passwd", "etc/../etc/passwd"})
    EXPECT_EQ(*Read(path), "inside") << path;
}

TEST_F(Rooted, DotDotStaysInTheRoot) {
  EXPECT_EQ(*Read("../../../etc/passwd"), "inside");
  EXPECT_EQ(Read("../outside/secret").error().code, Code::kNotFound);
  EXPECT_EQ(Read("../outside/secret", Links::kBeneath).error().code, Code::kForbidden);
  EXPECT_EQ(Read("etc/../../outside/secret", Links::kNone).error().code, Code::kForbidden);
}

TEST_F(Rooted, AbsoluteLinksMeanTheRootToo) {
  Link("/etc/passwd", "root/absolute");
  Link(dir / "outside/secret", "root/host");
  Link("/", "root/slash");
  EXPECT_EQ(*Read("absolute"), "inside");
  EXPECT_EQ(*Read("slash/etc/passwd"), "inside");
  EXPECT_EQ(Read("host").error().code, Code::kNotFound);
  EXPECT_EQ(Read("absolute", Links::kBeneath).error().code, Code::kForbidden);
  EXPECT_EQ(Read("absolute", Links::kNone).error().code, Code::kForbidden);
}

TEST_F(Rooted, RelativeLinksCannotClimbOut) {
  Link("../../outside/secret", "root/etc/up");
  Link("../outside", "root/out");
  Link("passwd", "root/etc/near");
  EXPECT_EQ(Read("etc/up").error().code, Code::kNotFound);
  EXPECT_EQ(Read("out/secret").error().code, Code::kNotFound);
  EXPECT_EQ(Read("out/secret", Links::kBeneath).error().code, Code::kForbidden);
  EXPECT_EQ(*Read("etc/near", Links::kBeneath), "inside");
  EXPECT_EQ(Read("etc/near", Links::kNone).error().code, Code::kForbidden);
}

TEST_F(Rooted, LinkLoopsEnd) {
  Link("b", "root/a");
  Link("a", "root/b");
  EXPECT_EQ(Read("a").error().code, Code::kForbidden);
}

TEST_F(Rooted, MagicLinksAreNotFollowed) {
  const UniqueFd host = *Open("/", O_PATH | O_DIRECTORY);
  for (const char* path :
       {"proc/self/root/etc/passwd", "proc/self/cwd", "proc/self/exe", "proc/self/fd/0"}) {
    const auto rooted = RootedPath::Make(host.get(), path);
    EXPECT_FALSE(rooted->Open(O_PATH).has_value()) << path;
  }
}

TEST_F(Rooted, AFifoNeitherBlocksNorOpens) {
  ASSERT_EQ(::mkfifo((dir / "root/fifo").c_str(), 0600), 0);
  EXPECT_EQ(Read("fifo").error().code, Code::kInvalidArgument);
  Link("fifo", "root/link_to_fifo");
  EXPECT_EQ(Read("link_to_fifo").error().code, Code::kInvalidArgument);
  EXPECT_EQ(Read("etc").error().code, Code::kInvalidArgument);
}

TEST_F(Rooted, BadPathsAreRefusedBeforeTheKernelSeesThem) {
  EXPECT_EQ(RootedPath::Make(root.get(), std::string("a\0b", 3)).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(RootedPath::Make(root.get(), std::string(PATH_MAX, 'a')).error().code,
            Code::kInvalidArgument);
  EXPECT_DEATH(IgnoreError(RootedPath::Make(root.get(), "f")->Open(O_CREAT | O_WRONLY), ""),
               "check failed");
}

TEST_F(Rooted, ParentGivesTheNameAndRefusesDots) {
  std::string name;
  ASSERT_TRUE(RootedPath::Make(root.get(), "etc/new//")->OpenParent(&name).has_value());
  EXPECT_EQ(name, "new");
  ASSERT_TRUE(RootedPath::Make(root.get(), "top")->OpenParent(&name).has_value());
  EXPECT_EQ(name, "top");
  for (const char* path : {"/", ".", "etc/..", "etc/.", ".."})
    EXPECT_EQ(RootedPath::Make(root.get(), path)->OpenParent(&name).error().code,
              Code::kInvalidArgument)
        << path;
}

TEST_F(Rooted, CreateNeverGoesThroughALink) {
  Link(dir / "outside/new", "root/dangling");
  Link("../outside", "root/out");
  EXPECT_EQ(RootedPath::Make(root.get(), "dangling")->CreateFile(0600).error().code, Code::kExists);
  EXPECT_FALSE(RootedPath::Make(root.get(), "out/new")->CreateFile(0600).has_value());
  EXPECT_FALSE(PathExists(dir / "outside/new"));
  EXPECT_TRUE(RootedPath::Make(root.get(), "etc/new")->CreateFile(0600).has_value());
  EXPECT_EQ(RootedPath::Make(root.get(), "etc/new")->CreateFile(0600).error().code, Code::kExists);
}

TEST_F(Rooted, MakeDirectoriesStaysInside) {
  Link("../outside", "root/out");
  const auto made =
      RootedPath::Make(root.get(), "a/b/c")->MakeDirectories(0750, ::getuid(), ::getgid());
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  struct stat st {};
  ASSERT_EQ(::stat((dir / "root/a/b/c").c_str(), &st), 0);
  EXPECT_TRUE(RootedPath::Make(root.get(), "a/b/c")
                  ->MakeDirectories(0750, ::getuid(), ::getgid())
                  .has_value());
  EXPECT_FALSE(RootedPath::Make(root.get(), "out/evil")
                   ->MakeDirectories(0750, ::getuid(), ::getgid())
                   .has_value());
  EXPECT_FALSE(RootedPath::Make(root.get(), "a/../../evil")
                   ->MakeDirectories(0750, ::getuid(), ::getgid())
                   .has_value());
  EXPECT_EQ(*ListDirectory(dir / "outside"), std::vector<std::string>{"secret"});
}

TEST_F(Rooted, StatIsOfTheLinkItself) {
  Link("/nowhere", "root/link");
  const auto st = RootedPath::Make(root.get(), "link")->Stat();
  ASSERT_TRUE(st.has_value());
  EXPECT_TRUE(S_ISLNK(st->st_mode));
  EXPECT_EQ(RootedPath::Make(root.get(), "absent")->Stat().error().code, Code::kNotFound);
}

// Whoever owns the root exchanges a directory for a link to the outside while we open below it.
// Every answer is the inside file or an error, never the outside one.
TEST_F(Rooted, ARenameRaceNeverLeadsOut) {
  ASSERT_TRUE(MakeDirectories(dir / "root/d", 0755).has_value());
  Write("root/d/secret", "inside");
  Link(dir / "outside", "root/evil");
  std::atomic<bool> stop{false};
  std::thread attacker([&] {
    const std::string a = dir / "root/d", b = dir / "root/evil";
    while (!stop)
      sys::Raw(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), 2u /* RENAME_EXCHANGE */);
  });
  int inside = 0;
  for (int i = 0; i < 10000; ++i) {
    const auto text = Read("d/secret");
    if (!text.has_value()) continue;
    ++inside;
    ASSERT_EQ(*text, "inside");
  }
  stop = true;
  attacker.join();
  EXPECT_GT(inside, 0);
}

}  // namespace
}  // namespace hutch
