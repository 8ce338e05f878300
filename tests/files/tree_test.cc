#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "files/limits.h"
#include "files/tree.h"
#include "files/walk.h"
#include "tests/files/files_fixture.h"

namespace hutch::files {
namespace {

using oci::Json;

class TreeTest : public FilesTest {
 protected:
  void Directory(const std::string& name, mode_t mode = 0755) const {
    ASSERT_EQ(::mkdir(At(name).c_str(), mode), 0) << name;
  }
  Answer Transfer(const char* op, const std::string& from, const std::string& to,
                  Json more = Json::object()) const {
    more["op"] = op;
    more["from"] = At(from);
    more["to"] = At(to);
    return Ask(more);
  }
  // Relative paths of all entries of a list, joined by spaces.
  std::string Paths(const Answer& answer) const {
    std::string paths;
    for (const Json& entry : answer.All("entry"))
      paths += (paths.empty() ? "" : " ") +
               entry["path"].get<std::string>().substr(dir_.path().size() + 1);
    return paths;
  }
  void MakeTree() const {
    Directory("t");
    Directory("t/a");
    Directory("t/b");
    Put("t/a/1.cc", "int one;\n");
    Put("t/a/2.h", "int two;\n");
    Put("t/b/3.cc", "int three;\n");
    Put("t/c.cc", "int c;\n");
    ASSERT_EQ(::symlink("a/1.cc", At("t/link").c_str()), 0);
  }
};

TEST_F(TreeTest, DirectoriesAreMadeWithParentsAndModes) {
  EXPECT_EQ(Op("mkdir", "a", {{"mode", "0700"}}).ok()["mode"], "0700");
  EXPECT_EQ(Op("mkdir", "a").code(), "exists");
  EXPECT_EQ(Op("mkdir", "a", {{"parents", true}}).ok()["created"], false);
  EXPECT_EQ(Op("mkdir", "b/c/d").code(), "not_found");
  EXPECT_EQ(Op("mkdir", "b/c/d", {{"parents", true}, {"mode", "0711"}}).ok()["mode"], "0711");
  Put("file", "");
  EXPECT_EQ(Op("mkdir", "file", {{"parents", true}}).code(), "not_directory");
}

TEST_F(TreeTest, ListsAreSortedAndGoAsDeepAsAsked) {
  MakeTree();
  EXPECT_EQ(Paths(Op("list", "t")), "t/a t/b t/c.cc t/link");
  EXPECT_EQ(Paths(Op("list", "t", {{"depth", 2}})),
            "t/a t/a/1.cc t/a/2.h t/b t/b/3.cc t/c.cc t/link");
  EXPECT_EQ(Paths(Op("list", "t", {{"depth", 9}, {"glob", "*.cc"}})), "t/a/1.cc t/b/3.cc t/c.cc");
  EXPECT_EQ(Paths(Op("glob", "t", {{"pattern", "**/*.cc"}})), "t/a/1.cc t/b/3.cc t/c.cc");
  EXPECT_EQ(Paths(Op("glob", "t", {{"pattern", "a/*"}})), "t/a/1.cc t/a/2.h");
  EXPECT_EQ(Op("list", "t/c.cc").code(), "not_directory");
  EXPECT_EQ(Op("list", "none").code(), "not_found");
  EXPECT_EQ(Op("list", "t").All("entry")[3]["target"], "a/1.cc");
}

TEST_F(TreeTest, PagesTogetherAreTheWholeList) {
  MakeTree();
  const std::string whole = Paths(Op("list", "t", {{"depth", 9}}));
  for (int limit = 1; limit < 9; ++limit) {
    std::string together;
    Json more = {{"depth", 9}, {"limit", limit}};
    for (bool last = false; !last;) {
      const auto page = Op("list", "t", more);
      together += (together.empty() ? "" : " ") + Paths(page);
      last = !page.ok().contains("next");
      EXPECT_EQ(page.ok()["truncated"], !last);
      if (!last) more["cursor"] = page.ok()["next"];
    }
    EXPECT_EQ(together, whole) << limit;
  }
  EXPECT_EQ(Op("list", "t", {{"cursor", "?"}}).code(), "invalid_argument");
  EXPECT_EQ(Op("list", "t", {{"limit", kMaxListLimit + 1}}).code(), "invalid_argument");
  EXPECT_EQ(Op("list", "t", {{"depth", kMaxTreeDepth + 1}}).code(), "invalid_argument");
}

TEST_F(TreeTest, ALargeDirectoryIsListedInPagesOfBoundedMemory) {
  Directory("many");
  const UniqueFd fd(::open(At("many").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const size_t count = kMaxSortedNames + 10'000;
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(::mknodat(fd.get(), std::to_string(1'000'000 + i).c_str(), S_IFREG | 0600, 0), 0);
  EXPECT_EQ(Op("list", "many", {{"limit", kMaxListLimit}}).All("entry").size(), kMaxListLimit);
  // Only the very last: all refills are needed.
  const std::string last = std::to_string(1'000'000 + count - 1);
  EXPECT_EQ(Paths(Op("list", "many", {{"glob", last}})), "many/" + last);
  EXPECT_EQ(Op("delete", "many", {{"recursive", true}}).ok()["removed"], count + 1);
}

TEST_F(TreeTest, DeletingNeedsToBeAskedForWholeTrees) {
  MakeTree();
  EXPECT_EQ(Op("delete", "t").code(), "bad_state");
  EXPECT_EQ(Op("delete", "t/c.cc").ok()["removed"], 1);
  EXPECT_EQ(Op("delete", "t/c.cc").code(), "not_found");
  Directory("empty");
  EXPECT_EQ(Op("delete", "empty").code(), "");
  EXPECT_EQ(Op("delete", "t", {{"recursive", true}}).ok()["removed"], 7);
  EXPECT_EQ(Op("delete", "t", {{"recursive", true}}).code(), "not_found");
  EXPECT_EQ(Names(), "");
}

TEST_F(TreeTest, ASymlinkIsDeletedNotWhatItPointsTo) {
  Directory("kept");
  Put("kept/file", "x");
  Directory("t");
  ASSERT_EQ(::symlink("../kept", At("t/link").c_str()), 0);
  EXPECT_EQ(Op("delete", "t", {{"recursive", true}}).code(), "");
  EXPECT_EQ(Names("kept"), "file");
}

TEST_F(TreeTest, AMountPointIsNotEmptiedBeforeItIsRefused) {
  EXPECT_EQ(Ask({{"op", "delete"}, {"path", "/proc"}, {"recursive", true}}).code(), "bad_state");
  EXPECT_EQ(Ask({{"op", "delete"}, {"path", "/"}, {"recursive", true}}).code(), "invalid_argument");
}

// Deeper than descriptors reach: made and removed one component at a time.
TEST_F(TreeTest, ATreeOfAnyDepthIsDeleted) {
  Directory("deep");
  UniqueFd fd(::open(At("deep").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(::mkdirat(fd.get(), "d", 0755), 0);
    fd.reset(::openat(fd.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid());
  }
  EXPECT_EQ(Transfer("copy", "deep", "copy", {{"recursive", true}}).code(), "invalid_argument");
  EXPECT_EQ(Names(), "deep");
  EXPECT_EQ(Op("list", "deep", {{"depth", kMaxTreeDepth}}).code(), "");
  EXPECT_EQ(Op("delete", "deep", {{"recursive", true}}).ok()["removed"], 5001);
  EXPECT_EQ(Names(), "");
}

TEST_F(TreeTest, MovingDoesNotOverwriteUnlessAsked) {
  Put("a", "A");
  Put("b", "B");
  EXPECT_EQ(Transfer("move", "a", "b").code(), "exists");
  EXPECT_EQ(Transfer("move", "a", "x/y/c").code(), "not_found");
  EXPECT_EQ(Transfer("move", "a", "x/y/c", {{"parents", true}}).code(), "");
  EXPECT_EQ(Transfer("move", "b", "x/y/c", {{"overwrite", true}}).code(), "");
  EXPECT_EQ(Get("x/y/c"), "B");
  EXPECT_EQ(Names(), "x");
  EXPECT_EQ(Transfer("move", "x", "x/y/x").code(), "invalid_argument");
}

TEST_F(TreeTest, ACopyHasModesTimesLinksAndHoles) {
  MakeTree();
  ASSERT_EQ(::chmod(At("t/a").c_str(), 0555), 0);
  Put("t/hole", "x");
  ASSERT_EQ(::truncate(At("t/hole").c_str(), 1ll << 40), 0);
  ASSERT_EQ(::mkfifo(At("t/fifo").c_str(), 0600), 0);
  const struct timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, At("t/c.cc").c_str(), times, 0), 0);
  EXPECT_EQ(Transfer("copy", "t", "u").code(), "is_directory");
  const auto copied = Transfer("copy", "t", "u", {{"recursive", true}}).ok()["copied"];
  EXPECT_EQ(copied["files"], 6);
  EXPECT_EQ(copied["directories"], 3);
  EXPECT_EQ(copied["symlinks"], 1);
  EXPECT_LT(copied["bytes"], 1 << 20);
  struct stat st {};
  ASSERT_EQ(::stat(At("u/c.cc").c_str(), &st), 0);
  EXPECT_EQ(st.st_mtim.tv_sec, 1000);
  ASSERT_EQ(::stat(At("u/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0555u);
  ASSERT_EQ(::stat(At("u/hole").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 1ll << 40);
  EXPECT_LT(st.st_blocks, 1 << 12);
  EXPECT_EQ(Get("u/link"), "int one;\n");
  EXPECT_EQ(Transfer("copy", "t", "u", {{"recursive", true}}).code(), "exists");
  EXPECT_EQ(Names(), "t u");
}

TEST_F(TreeTest, ADirectoryIsNotCopiedIntoItself) {
  MakeTree();
  EXPECT_EQ(Transfer("copy", "t", "t/a/t", {{"recursive", true}}).code(), "invalid_argument");
  EXPECT_EQ(Names("t/a"), "1.cc 2.h");
}

TEST_F(TreeTest, DevicesAndSocketsAreNotCopied) {
  EXPECT_EQ(Ask({{"op", "copy"}, {"from", "/dev/null"}, {"to", At("null")}}).code(), "not_a_file");
  EXPECT_EQ(Names(), "");
}

TEST_F(TreeTest, GrepTellsLinesColumnsAndContext) {
  MakeTree();
  const auto found = Op("grep", "t", {{"pattern", "two|three"}}).All("match");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["path"], At("t/a/2.h"));
  EXPECT_EQ(found[0]["line"], 1);
  EXPECT_EQ(found[0]["column"], 5);
  EXPECT_EQ(Op("grep", "t", {{"pattern", "int"}, {"include", "*.h"}}).ok()["matches"], 1);
  Put("lines", "1\n2\nX 3\n4\n5\nx 6\n7");
  const auto context =
      Op("grep", "lines", {{"pattern", "^x"}, {"ignore_case", true}, {"context", 1}});
  const auto hits = context.All("match");
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(hits[0]["before"], Json({"2"}));
  EXPECT_EQ(hits[0]["after"], Json({"4"}));
  EXPECT_EQ(hits[1]["line"], 6);
  EXPECT_EQ(hits[1]["after"], Json({"7"}));
  EXPECT_EQ(Op("grep", "lines", {{"pattern", "."}, {"fixed", true}}).ok()["matches"], 0);
  EXPECT_EQ(Op("grep", "lines", {{"pattern", "2\\s*X"}}).ok()["matches"], 0);
  EXPECT_EQ(Op("grep", "lines", {{"pattern", "("}}).code(), "invalid_argument");
}

TEST_F(TreeTest, GrepIsBounded) {
  std::string many;
  for (uint64_t i = 0; i <= kMaxMatches; ++i) many += "hit\n";
  Put("many", many);
  Put("binary", std::string("hit\0", 4));
  Put("long", std::string(3 * kMaxGrepLineBytes, 'x') + "hit");
  const auto all = Op("grep", "many", {{"pattern", "hit"}, {"max_matches", kMaxMatches}});
  EXPECT_EQ(all.All("match").size(), kMaxMatches);
  EXPECT_EQ(all.ok()["truncated"], true);
  EXPECT_EQ(Op("grep", "many", {{"pattern", "hit"}, {"max_matches", kMaxMatches + 1}}).code(),
            "invalid_argument");
  EXPECT_EQ(Op("grep", "many", {{"pattern", "hit"}, {"context", kMaxContextLines + 1}}).code(),
            "invalid_argument");
  EXPECT_EQ(Op("grep", "many", {{"pattern", std::string(kMaxPatternBytes + 1, 'x')}}).code(),
            "invalid_argument");
  EXPECT_EQ(Op("grep", "binary", {{"pattern", "hit"}}).ok()["binary_files_skipped"], 1);
  const auto piece = Op("grep", "long", {{"pattern", "xhit"}}).One("match");
  EXPECT_EQ(piece["text"].get<std::string>().size(), kMaxShownLineBytes);
  EXPECT_EQ(piece["text_truncated"], true);
}

TEST_F(TreeTest, GrepStopsAfterManyBytes) {
  Put("endless", std::string(8192, 'x'));  // text at its beginning, then nothing but zeros
  ASSERT_EQ(::truncate(At("endless").c_str(), static_cast<off_t>(2 * kMaxGrepBytes)), 0);
  EXPECT_EQ(Op("grep", "endless", {{"pattern", "hit"}, {"fixed", true}}).ok()["truncated"], true);
}

TEST_F(TreeTest, AWalkStopsAfterManyNamesAndGoesOnFromThere) {
  MakeTree();
  std::string visited;
  WalkOptions options{.max_steps = 6, .max_depth = 9};
  for (bool stopped = true; stopped;) {
    const auto outcome = Walk(At("t"), options, [&](const WalkedEntry& entry) -> Result<Step> {
      visited += entry.relative + " ";
      return Step::kGoOn;
    });
    ASSERT_TRUE(outcome.has_value());
    ASSERT_TRUE(!outcome->stopped || outcome->last != options.after);
    options.after = outcome->last;
    stopped = outcome->stopped;
  }
  EXPECT_EQ(visited, "a a/1.cc a/2.h b b/3.cc c.cc link ");
}

TEST_F(TreeTest, AnAnswerHasNoMoreBytesThanItMay) {
  std::string lines;
  for (int i = 0; i < 9000; ++i) lines += std::string(kMaxShownLineBytes - 1, '\x01') + "\n";
  Put("lines", lines);
  const auto answer = Op("grep", "lines", {{"pattern", "."}, {"max_matches", kMaxMatches}});
  EXPECT_EQ(answer.ok()["truncated"], true);
  size_t bytes = 0;
  for (const Json& line : answer.lines) bytes += line.dump().size() + 1;
  EXPECT_LE(bytes, kMaxReplyBytes);
  EXPECT_GT(bytes, kMaxReplyBytes / 2);
}

// A tenant that swaps a directory and a link to elsewhere as fast as it can: no operation may touch
// what is elsewhere through a name that it looked at before.
TEST_F(TreeTest, SwappingADirectoryForALinkLeadsNoDeleteAstray) {
  Directory("kept");
  Put("kept/file", "kept");
  std::atomic<bool> stop = false;
  Directory("t");
  Directory("t/real");
  ASSERT_EQ(::symlink("../kept", At("t/link").c_str()), 0);
  std::thread tenant([&] {
    while (!stop)
      ::renameat2(AT_FDCWD, At("t/real").c_str(), AT_FDCWD, At("t/link").c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 300; ++i) {
    ::mkdir(At("t/real").c_str(), 0755);
    Op("write", "t/real/file", {}, "x");
    Op("read", "t/real/file");
    Transfer("copy", "t", "u", {{"recursive", true}});
    Op("delete", "u", {{"recursive", true}});
    Op("delete", "t/real", {{"recursive", true}});
    // The delete may have taken the link, under the other name.
    ASSERT_TRUE(::symlink("../kept", At("t/link").c_str()) == 0 || errno == EEXIST);
    ASSERT_EQ(Names("kept"), "file");
  }
  stop = true;
  tenant.join();
  // A write through the link is the tenant's own doing and replaces the file whole.
  EXPECT_TRUE(Get("kept/file") == "kept" || Get("kept/file") == "x");
}

}  // namespace
}  // namespace hutch::files
