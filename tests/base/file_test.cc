#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <thread>

#include "tests/base/temp_dir.h"

namespace hutch {
namespace {

bool IsCloseOnExec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(File, DescriptorsAreCloseOnExecFromBirth) {
  const TempDir dir;
  const auto file = Open(dir / "f", O_CREAT | O_RDWR, 0600);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(IsCloseOnExec(file->get()));
  EXPECT_TRUE(IsCloseOnExec(Duplicate(file->get())->get()));
  const auto pipe = MakePipe();
  EXPECT_TRUE(IsCloseOnExec(pipe->read.get()) && IsCloseOnExec(pipe->write.get()));
  EXPECT_TRUE(IsCloseOnExec(SealedMemfd("m", "x")->get()));
}

TEST(File, AnAbsentFileIsNotFoundAndNamed) {
  const auto file = Open("/no/such/file", O_RDONLY);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, Code::kNotFound);
  EXPECT_NE(file.error().what.find("/no/such/file"), std::string::npos);
}

TEST(File, ReadingStopsAtItsBound) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir / "f", std::string(40000, 'x'), Durability::kMemory).has_value());
  EXPECT_EQ(ReadFile(dir / "f", 40000)->size(), 40000u);
  EXPECT_EQ(ReadFile(dir / "f", 39999).error().code, Code::kTooLarge);
  EXPECT_EQ(ReadFile("/dev/zero", 100).error().code, Code::kTooLarge);
}

TEST(File, AtomicWritesReplaceWholeFilesAndLeaveNothingBehind) {
  const TempDir dir;
  for (const Durability durability : {Durability::kMemory, Durability::kDisk}) {
    ASSERT_TRUE(WriteFileAtomic(dir / "f", "old old old", durability).has_value());
    ASSERT_TRUE(WriteFileAtomic(dir / "f", "new", durability).has_value());
    EXPECT_EQ(*ReadFile(dir / "f", 100), "new");
    EXPECT_EQ(*ListDirectory(dir.path()), std::vector<std::string>{"f"});
  }
  struct stat st {};
  ASSERT_EQ(::stat((dir / "f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_FALSE(WriteFileAtomic(dir / "absent/f", "x", Durability::kDisk).has_value());
}

TEST(File, AnAtomicWriteIsNeverSeenInPart) {
  const TempDir dir;
  const std::string path = dir / "f", a(20000, 'a'), b(20000, 'b');
  ASSERT_TRUE(WriteFileAtomic(path, a, Durability::kMemory).has_value());
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i)
      EXPECT_TRUE(WriteFileAtomic(path, i % 2 == 0 ? b : a, Durability::kMemory).has_value());
  });
  for (int i = 0; i < 200; ++i) {
    const auto seen = ReadFile(path, 1u << 20);
    EXPECT_TRUE(seen.has_value() && (*seen == a || *seen == b));
  }
  writer.join();
}

TEST(File, AnAtomicWriteDoesNotFollowALinkAtItsTemporaryName) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir / "victim", "safe", Durability::kMemory).has_value());
  ASSERT_EQ(::symlink("victim", (dir / "f.tmp").c_str()), 0);
  EXPECT_FALSE(WriteFileAtomic(dir / "f", "evil", Durability::kMemory).has_value());
  EXPECT_EQ(*ReadFile(dir / "victim", 100), "safe");
}

TEST(File, WriteExistingNeverCreates) {
  const TempDir dir;
  EXPECT_EQ(WriteExisting(dir / "f", "x").error().code, Code::kNotFound);
  EXPECT_FALSE(PathExists(dir / "f"));
}

TEST(File, MakeDirectoriesAcceptsWhatIsThere) {
  const TempDir dir;
  EXPECT_TRUE(MakeDirectories(dir / "a/b/c", 0700).has_value());
  EXPECT_TRUE(MakeDirectories(dir / "a/b/c", 0700).has_value());
  ASSERT_TRUE(WriteFileAtomic(dir / "f", "", Durability::kMemory).has_value());
  EXPECT_FALSE(MakeDirectories(dir / "f", 0700).has_value());
  EXPECT_FALSE(MakeDirectories(dir / "f/g", 0700).has_value());
}

TEST(File, RemoveTreeNeverFollowsALink) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "outside", 0700).has_value());
  ASSERT_TRUE(WriteFileAtomic(dir / "outside/keep", "x", Durability::kMemory).has_value());
  ASSERT_TRUE(MakeDirectories(dir / "tree/a/b", 0700).has_value());
  ASSERT_EQ(::symlink((dir / "outside").c_str(), (dir / "tree/a/link").c_str()), 0);
  ASSERT_EQ(::symlink("../outside", (dir / "tree/up").c_str()), 0);
  EXPECT_TRUE(RemoveTree(dir / "tree").has_value());
  EXPECT_FALSE(PathExists(dir / "tree"));
  EXPECT_TRUE(PathExists(dir / "outside/keep"));
}

TEST(File, RemoveTreeOfALinkRemovesTheLink) {
  const TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir / "real/inside", 0700).has_value());
  ASSERT_EQ(::symlink("real", (dir / "link").c_str()), 0);
  EXPECT_TRUE(RemoveTree(dir / "link").has_value());
  EXPECT_FALSE(PathExists(dir / "link"));
  EXPECT_TRUE(PathExists(dir / "real/inside"));
}

TEST(File, RemoveTreeTakesFilesDirectoriesAndWhatIsGone) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir / "f", "x", Durability::kMemory).has_value());
  EXPECT_TRUE(RemoveTree(dir / "f").has_value());
  EXPECT_TRUE(RemoveTree(dir / "f").has_value());
  ASSERT_TRUE(MakeDirectories(dir / "closed/inner", 0700).has_value());
  ASSERT_EQ(::chmod((dir / "closed").c_str(), 0), 0);
  EXPECT_TRUE(RemoveTree(dir / "closed").has_value());
}

TEST(File, RemoveTreeSurvivesDepth) {
  const TempDir dir;
  std::string path = dir / "deep";
  for (int i = 0; i < 200; ++i) path += "/d";
  ASSERT_TRUE(MakeDirectories(path, 0700).has_value());
  EXPECT_TRUE(RemoveTree(dir / "deep").has_value());
}

TEST(File, ASealedMemfdCannotBeChanged) {
  const auto fd = SealedMemfd("sealed", "content");
  ASSERT_TRUE(fd.has_value());
  EXPECT_EQ(::pwrite(fd->get(), "X", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
  EXPECT_EQ(::mmap(nullptr, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  char bytes[8] = {};
  EXPECT_EQ(::pread(fd->get(), bytes, 7, 0), 7);
  EXPECT_STREQ(bytes, "content");
}

}  // namespace
}  // namespace hutch
