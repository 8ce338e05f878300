#include "rootfs/unpack/unpacker.h"

#include <archive.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "rootfs/digest.h"
#include "rootfs/unpack/stream.h"
#include "tests/base/temp_dir.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

class UnpackerTest : public testing::Test {
 protected:
  // Unconfined, into a directory of the test's, with the bytes as they are.
  Status Unpack(const std::string& tar, const UnpackLimits& limits = {}) {
    ASSIGN_OR_RETURN(const UniqueFd input, SealedMemfd("tar", tar));
    if (::lseek(input.get(), 0, SEEK_SET) != 0) return SysError(errno, "lseek");
    Stream stream(input.get(), tar.size());
    RETURN_IF_ERROR(stream.Open());
    ASSIGN_OR_RETURN(const ArchivePtr reader, stream.OpenTar());
    ASSIGN_OR_RETURN(const UniqueFd root, Open(directory_.path(), O_RDONLY | O_DIRECTORY));
    return Unpacker(root.get(), limits).Run(reader.get(), &counts_);
  }
  static TarEntry Mine(const std::string& name, const std::string& data = "") {
    return {.name = name, .data = data, .uid = ::getuid(), .gid = ::getgid()};
  }
  TempDir directory_;
  UnpackCounts counts_;
};

TEST(NormalEntryPath, Table) {
  const std::pair<const char*, const char*> rows[] = {{"a", "a"},
                                                      {"./a", "a"},
                                                      {"/a", "a"},
                                                      {"a/", "a"},
                                                      {"a//b/./c", "a/b/c"},
                                                      {".", ""},
                                                      {"./", ""},
                                                      {"/", ""},
                                                      {"", ""},
                                                      {"...", "..."},
                                                      {"a/...b", "a/...b"},
                                                      {".a", ".a"},
                                                      {"a\\..\\b", "a\\..\\b"}};
  for (const auto& [raw, normal] : rows) {
    const auto path = NormalEntryPath(raw);
    ASSERT_TRUE(path.has_value()) << raw;
    EXPECT_EQ(*path, normal) << raw;
  }
  for (const char* raw : {"..", "../a", "a/..", "a/../b", "/..", "./../a", "a/b/../../.."})
    EXPECT_EQ(NormalEntryPath(raw).error().code, Code::kInvalidArgument) << raw;
  EXPECT_EQ(NormalEntryPath(nullptr).error().code, Code::kInvalidArgument);
}

TEST(NormalEntryPath, PathsAreBounded) {
  const auto code = [](const std::string& path) {
    const auto normal = NormalEntryPath(path.c_str());
    return normal ? Code::kInternal : normal.error().code;
  };
  std::string deep, wide;
  for (size_t i = 0; i < kMaxEntryDepth; ++i) deep += "d/";
  while (wide.size() + 101 <= kMaxEntryPathBytes) wide += std::string(100, 'w') + "/";
  wide.resize(kMaxEntryPathBytes, 'w');
  EXPECT_EQ(code(deep), Code::kInternal);
  EXPECT_EQ(code(deep + "d"), Code::kTooLarge);
  EXPECT_EQ(code(std::string(kMaxEntryNameBytes, 'n')), Code::kInternal);
  EXPECT_EQ(code(std::string(kMaxEntryNameBytes + 1, 'n')), Code::kTooLarge);
  EXPECT_EQ(code(wide), Code::kInternal);
  EXPECT_EQ(code(wide + "w"), Code::kTooLarge);
}

TEST_F(UnpackerTest, BombEntries) {
  const std::string tar = TarWriter().Add(Mine("a")).Add(Mine("b")).Add(Mine("c")).Bytes();
  EXPECT_TRUE(Unpack(tar, {.entries = 3}).has_value());
  counts_ = {};
  EXPECT_EQ(Unpack(tar, {.entries = 2}).error().code, Code::kTooLarge);
}

TEST_F(UnpackerTest, BombBytes) {
  const std::string tar = TarWriter().Add(Mine("a", "12345")).Add(Mine("b", "67890")).Bytes();
  EXPECT_TRUE(Unpack(tar, {.bytes = 10}).has_value());
  EXPECT_EQ(counts_.bytes, 10u);
  counts_ = {};
  EXPECT_EQ(Unpack(tar, {.bytes = 9}).error().code, Code::kTooLarge);
}

TEST_F(UnpackerTest, AttributesAreBounded) {
  TarEntry large = Mine("large");
  large.pax["SCHILY.xattr.user.x"] = std::string(kMaxXattrBytes + 1, 'x');
  EXPECT_EQ(Unpack(TarWriter().Add(large).Bytes()).error().code, Code::kTooLarge);
  TarEntry many = Mine("many");
  for (size_t i = 0; i <= kMaxXattrsPerEntry; ++i)
    many.pax["SCHILY.xattr.user." + std::to_string(i)] = "x";
  EXPECT_EQ(Unpack(TarWriter().Add(many).Bytes()).error().code, Code::kTooLarge);
}

TEST_F(UnpackerTest, CountsWhatItDropsAndRemaps) {
  TarEntry device = Mine("null");
  device.type = '3';
  TarEntry directory = Mine("d");
  directory.type = '5';
  ASSERT_TRUE(
      Unpack(TarWriter().Add(device).Add(directory).Add(Mine("d/f", "x")).Bytes()).has_value());
  EXPECT_EQ(counts_.entries, 3u);
  EXPECT_EQ(counts_.dropped, 1u);
  EXPECT_EQ(counts_.remapped, 0u);
  EXPECT_EQ(counts_.disk_bytes, 8192u);
}

TEST(Stream, DigestsOfPlainBytesAreOne) {
  const std::string tar = TarWriter().File("f", "content").Bytes() + std::string(9000, '\0');
  const auto input = SealedMemfd("tar", tar);
  ASSERT_TRUE(input.has_value());
  ASSERT_EQ(::lseek(input->get(), 0, SEEK_SET), 0);
  Stream stream(input->get(), tar.size());
  ASSERT_TRUE(stream.Open().has_value());
  ASSERT_TRUE(stream.Drain().has_value());
  const Stream::Digests digests = stream.Finish();
  EXPECT_EQ(digests.packed, DigestOf(tar));  // with what lies behind the end mark
  EXPECT_EQ(digests.plain, digests.packed);
  EXPECT_FALSE(stream.compressed());
}

}  // namespace
}  // namespace hutch::rootfs
