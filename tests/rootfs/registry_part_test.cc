// Parts of downloads: who has one, and what becomes of it.
#include <gtest/gtest.h>

#include "base/file.h"
#include "rootfs/registry/part_file.h"
#include "tests/base/temp_dir.h"

namespace hutch::rootfs::registry {
namespace {

class PartFileTest : public testing::Test {
 protected:
  PartOf Part(const std::string& registry = "one.example", uint64_t size = 7) const {
    return {registry, DigestOf("content"), size};
  }
  std::optional<PartFile> Lock(const PartOf& part) {
    auto locked = PartFile::TryLock(directory_.path(), part);
    EXPECT_TRUE(locked.has_value());
    return locked ? std::move(*locked) : std::nullopt;
  }
  std::string Read(int fd) {
    char bytes[64];
    const ssize_t n = ::pread(fd, bytes, sizeof bytes, 0);
    return n < 0 ? "failed" : std::string(bytes, static_cast<size_t>(n));
  }
  TempDir directory_;
};

TEST_F(PartFileTest, OneHasItButOtherRegistriesAndSizesHaveTheirOwn) {
  auto first = Lock(Part());
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(Lock(Part()).has_value());
  EXPECT_TRUE(Lock(Part("two.example")).has_value());
  EXPECT_TRUE(Lock(Part("one.example", 8)).has_value());
  ASSERT_TRUE(first->Append("cont").has_value());
  first.reset();
  const auto again = Lock(Part());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->size(), 4u);
}

TEST_F(PartFileTest, WhoReadsAPartReadsOnWhenItIsStartedOver) {
  auto ready = Lock(Part());
  ASSERT_TRUE(ready.has_value() && ready->Append("content").has_value());
  const auto reader = ready->OpenForReading();
  ASSERT_TRUE(reader.has_value() && ready->Unlock().has_value());
  auto other = Lock(Part());
  ASSERT_TRUE(other.has_value());
  ASSERT_TRUE(other->Restart().has_value());
  EXPECT_EQ(other->size(), 0u);
  EXPECT_EQ(Read(reader->get()), "content");
  EXPECT_FALSE(Lock(Part()).has_value()) << "it still has the name";
  ASSERT_TRUE(other->Append("new").has_value());
  EXPECT_EQ(Read(reader->get()), "content");
  ASSERT_TRUE(ready->Remove().has_value());
  EXPECT_EQ(ListDirectory(directory_.path())->size(), 1u) << "the name is another's by now";
  ASSERT_TRUE(other->Remove().has_value());
  EXPECT_TRUE(ListDirectory(directory_.path())->empty());
}

}  // namespace
}  // namespace hutch::rootfs::registry
