#include "rootfs/tar_stream.h"

#include <gtest/gtest.h>

namespace hutch::rootfs {
namespace {

class TarStreamTest : public testing::Test {
 protected:
  TarStream tar_{[this](std::string_view bytes) {
    bytes_ += bytes;
    return OkStatus();
  }};
  std::string Field(size_t offset, size_t size) const { return bytes_.substr(offset, size); }
  std::string bytes_;
};

TEST_F(TarStreamTest, AnEntryThatUstarCanSayHasNoRecords) {
  ASSERT_TRUE(tar_.Begin(
      {.path = "a/f", .mode = 0640, .uid = 7, .gid = 8, .size = 3, .mtime = {1'600'000'000, 0}}));
  ASSERT_TRUE(tar_.Data("abc"));
  ASSERT_TRUE(tar_.Pad());
  ASSERT_EQ(bytes_.size(), PlainEntryBytes(3));
  EXPECT_EQ(Field(0, 4), std::string("a/f\0", 4));
  EXPECT_EQ(Field(100, 7), "0000640");
  EXPECT_EQ(Field(108, 7), "0000007");
  EXPECT_EQ(Field(124, 11), "00000000003");
  EXPECT_EQ(Field(156, 1), "0");
  EXPECT_EQ(Field(257, 8), std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(bytes_[i]);
  EXPECT_EQ(std::stoul(Field(148, 6), nullptr, 8), sum);
  EXPECT_EQ(Field(512, 4), std::string("abc\0", 4));
}

TEST_F(TarStreamTest, WhatUstarCannotSayGoesIntoRecords) {
  ASSERT_TRUE(tar_.Begin({.path = std::string(150, 'p'),
                          .type = '2',
                          .link = std::string(120, 'l'),
                          .mtime = {-2, 250'000'000},
                          .xattrs = {{"user.a", std::string("\0=\n", 3)}}}));
  EXPECT_EQ(Field(156, 1), "x");
  const std::string records = Field(512, 512);
  EXPECT_NE(records.find("160 path=" + std::string(150, 'p') + "\n"), std::string::npos) << records;
  EXPECT_NE(records.find(" linkpath=" + std::string(120, 'l') + "\n"), std::string::npos);
  EXPECT_NE(records.find(" mtime=-2\n"), std::string::npos);
  EXPECT_NE(records.find("27 SCHILY.xattr.user.a=" + std::string("\0=\n", 3)), std::string::npos)
      << records;
}

TEST_F(TarStreamTest, SizesBeyondOctalDigitsGoIntoRecords) {
  ASSERT_TRUE(tar_.Begin({.path = "f", .size = uint64_t{9} << 30}));
  EXPECT_NE(bytes_.find(" size=9663676416\n"), std::string::npos);
}

TEST_F(TarStreamTest, AnEntryIsAsLongAsWasTold) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1} << 33, (uint64_t{1} << 33) - 512}) {
    bytes_.clear();
    ASSERT_TRUE(tar_.Begin({.path = "blobs/sha256/" + std::string(64, 'a'), .size = size}));
    EXPECT_EQ(bytes_.size() + size, PlainEntryBytes(size)) << size;  // of whole blocks
  }
}

TEST_F(TarStreamTest, HolesAreAMapAndWhatLiesBetween) {
  ASSERT_TRUE(tar_.Begin({.path = "d/f", .size = 1 << 20, .pieces = {{4096, 3}, {1 << 20, 0}}}));
  ASSERT_TRUE(tar_.Data("abc"));
  ASSERT_TRUE(tar_.Pad());
  EXPECT_NE(bytes_.find(" GNU.sparse.name=d/f\n"), std::string::npos);
  EXPECT_NE(bytes_.find(" GNU.sparse.realsize=1048576\n"), std::string::npos);
  EXPECT_NE(bytes_.find("2\n4096\n3\n1048576\n0\n"), std::string::npos);
  EXPECT_EQ(bytes_.size(), 512u * 5);  // record header, records, header, map, data
}

TEST_F(TarStreamTest, AnAttributeThatATarCannotHoldIsRefused) {
  const Status begun = tar_.Begin({.path = "f", .xattrs = {{"user.a=b", "x"}}});
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error().code, Code::kUnsupported);
}

TEST(TarStream, TheSinksErrorEndsTheWriting) {
  TarStream tar(
      [](std::string_view) -> Status { return Error{.code = Code::kNoSpace, .what = "full"}; });
  const Status begun = tar.Begin({.path = "f"});
  ASSERT_FALSE(begun.has_value());
  EXPECT_EQ(begun.error().code, Code::kNoSpace);
}

}  // namespace
}  // namespace hutch::rootfs
