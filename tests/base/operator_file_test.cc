#include "base/operator_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/base/temp_dir.h"

namespace hutch {
namespace {

class OperatorFile : public testing::Test {
 protected:
  std::string Write(mode_t mode) {
    const std::string path = directory_ / "file";
    EXPECT_TRUE(WriteFileAtomic(path, "text", Durability::kMemory).has_value());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  TempDir directory_;
};

TEST_F(OperatorFile, IsBelievedWhenNobodyElseCouldWriteIt) {
  const std::string path = Write(0644);
  EXPECT_EQ(ReadOperatorFile(path, 4, Readers::kAnyone).value(), "text");
  EXPECT_EQ(ReadOperatorFile(path, 4, Readers::kOwnerOnly).error().code, Code::kForbidden);
  EXPECT_EQ(ReadOperatorFile(path, 3, Readers::kAnyone).error().code, Code::kTooLarge);
  for (const mode_t mode : {0620u, 0602u, 0666u})
    EXPECT_EQ(ReadOperatorFile(Write(mode), 4, Readers::kAnyone).error().code, Code::kForbidden);
  EXPECT_EQ(ReadOperatorFile(Write(0600), 4, Readers::kOwnerOnly).value(), "text");
  for (const mode_t mode : {0640u, 0604u})
    EXPECT_EQ(ReadOperatorFile(Write(mode), 4, Readers::kOwnerOnly).error().code, Code::kForbidden);
}

TEST_F(OperatorFile, BelongsToRootOrToUs) {
  if (::geteuid() != 0) return;  // nobody else can give a file away
  const std::string path = Write(0600);
  ASSERT_EQ(::chown(path.c_str(), 1234, 1234), 0);
  EXPECT_EQ(ReadOperatorFile(path, 4, Readers::kAnyone).error().code, Code::kForbidden);
}

TEST_F(OperatorFile, LinksPipesAndWhatIsNotThereAreNoFiles) {
  const std::string link = directory_ / "link", pipe = directory_ / "pipe";
  ASSERT_EQ(::symlink(Write(0600).c_str(), link.c_str()), 0);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadOperatorFile(link, 4, Readers::kAnyone).error().code, Code::kForbidden);
  EXPECT_EQ(ReadOperatorFile(pipe, 4, Readers::kAnyone).error().code, Code::kForbidden);
  EXPECT_EQ(ReadOperatorFile(directory_ / "none", 4, Readers::kAnyone).error().code,
            Code::kNotFound);
}

TEST_F(OperatorFile, DirectoriesThatOthersMayWriteAreRefused) {
  EXPECT_TRUE(CheckOperatorDirectory(directory_.path()).has_value());
  ASSERT_EQ(::chmod(directory_.path().c_str(), 01777), 0);
  EXPECT_EQ(CheckOperatorDirectory(directory_.path()).error().code, Code::kForbidden);
}

}  // namespace
}  // namespace hutch
