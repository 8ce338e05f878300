#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"
#include "files/limits.h"
#include "tests/files/files_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::files {
namespace {

using oci::Json;

constexpr const char* kFormats[] = {"tar", "tar.gz", "tar.zst", "zip"};

class ArchiveTest : public FilesTest {
 protected:
  Answer Unpack(const std::string& bytes, Json more = Json::object()) const {
    return Op("unpack", "out", std::move(more), bytes);
  }
  void SetUp() override { ASSERT_EQ(::mkdir(At("out").c_str(), 0755), 0); }
};

TEST_F(ArchiveTest, WhatWasPackedIsUnpackedInEveryFormat) {
  // NFD and NFC of the same letter; libarchive makes them one when it reads a zip.
  for (const char* format : kFormats) {
    ASSERT_EQ(::mkdir(At("t").c_str(), 0755), 0);
    ASSERT_EQ(::mkdir(At("t/dir").c_str(), 0750), 0);
    Put("t/dir/file", "contents", 0640);
    const bool keeps_nfd = std::string(format) != "zip";
    if (keeps_nfd) Put("t/e\xcc\x81", "nfd");
    Put("t/\xc3\xa9", "nfc");
    Put("t/" + std::string(200, 'n'), "long");
    Put("t/empty", "");
    ASSERT_EQ(::symlink("dir/file", At("t/link").c_str()), 0);
    ASSERT_EQ(::mkfifo(At("t/fifo").c_str(), 0600), 0);
    const std::string before = Names("t");
    const auto packed = Op("pack", "t", {{"format", format}});
    EXPECT_EQ(packed.code(), "") << format;
    EXPECT_EQ(packed.One("done")["skipped"], 1);
    ASSERT_EQ(Op("delete", "t", {{"recursive", true}}).code(), "");
    const auto unpacked = Op("unpack", "t", {{"parents", true}}, packed.bytes);
    EXPECT_EQ(unpacked.code(), "") << format << Json(unpacked.lines).dump();
    EXPECT_EQ(Names("t") + " fifo", before.substr(0, before.find(" fifo")) +
                                        before.substr(before.find(" fifo") + 5) + " fifo")
        << format;
    EXPECT_EQ(Get("t/dir/file"), "contents");
    EXPECT_EQ(Get("t/link"), "contents");
    EXPECT_EQ(Get("t/e\xcc\x81"), keeps_nfd ? "nfd" : "unreadable");
    EXPECT_EQ(Get("t/\xc3\xa9"), "nfc") << format;
    EXPECT_EQ(Op("stat", "t/dir").ok()["mode"], "0750");
    EXPECT_EQ(Op("stat", "t/dir/file").ok()["mode"], "0640");
    ASSERT_EQ(Op("delete", "t", {{"recursive", true}}).code(), "");
  }
}

TEST_F(ArchiveTest, NamesThatAreNoTextSurviveTar) {
  Put("out/\xff\xfe", "x");
  const auto packed = Op("pack", "out");
  ASSERT_EQ(packed.code(), "");
  ASSERT_EQ(Op("unpack", "again", {{"parents", true}}, packed.bytes).code(), "");
  EXPECT_EQ(Names("again"), "\xff\xfe");
}

TEST_F(ArchiveTest, OneFileIsPackedUnderItsName) {
  Put("file", "x");
  const auto packed = Op("pack", "file");
  EXPECT_EQ(Unpack(packed.bytes).ok()["files"], 1);
  EXPECT_EQ(Names("out"), "file");
  EXPECT_EQ(Ask({{"op", "pack"}, {"path", "/dev/null"}}).code(), "not_a_file");
  EXPECT_EQ(Op("pack", "file", {{"format", "rar"}}).code(), "invalid_argument");
}

TEST_F(ArchiveTest, HolesStayHolesInTar) {
  Put("file", "x");
  ASSERT_EQ(::truncate(At("file").c_str(), 1ll << 40), 0);
  const auto packed = Op("pack", "file");
  EXPECT_LT(packed.bytes.size(), 1u << 20);
  EXPECT_EQ(Unpack(packed.bytes).code(), "");
  struct stat st {};
  ASSERT_EQ(::stat(At("out/file").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 1ll << 40);
  EXPECT_LT(st.st_blocks, 1 << 12);
}

TEST_F(ArchiveTest, AFileOfTooManyHolesIsPackedWithoutThem) {
  Put("file", "");
  const UniqueFd fd(::open(At("file").c_str(), O_WRONLY | O_CLOEXEC));
  for (size_t i = 0; i <= kMaxSparsePieces + 1; ++i)
    ASSERT_EQ(::pwrite(fd.get(), "x", 1, static_cast<off_t>(i * 16384)), 1);
  const auto packed = Op("pack", "file");
  EXPECT_GT(packed.bytes.size(), kMaxSparsePieces * 16384);
  EXPECT_EQ(Unpack(packed.bytes).code(), "");
  EXPECT_EQ(Get("out/file"), Get("file"));
}

TEST_F(ArchiveTest, AnArchiveOfTooManyEntriesIsRefused) {
  auto pipe = MakePipe();
  ASSERT_TRUE(pipe.has_value());
  ::signal(SIGPIPE, SIG_IGN);
  std::thread sender([&] {
    // The directory itself, over and over: nothing is made for it.
    const std::string header = TarWriter().Directory("./").Bytes().substr(0, 512);
    std::string block;
    for (int i = 0; i < 500; ++i) block += header;
    for (uint64_t sent = 0; sent <= kMaxUnpackEntries; sent += 500)
      if (!WriteFully(pipe->write.get(), block)) break;
    pipe->write.reset();
  });
  const UniqueFd file(::open(At("reply").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ReplyStream reply(file.get());
  Io io{.in = pipe->read.get(), .out = -1, .reply = reply};
  EXPECT_EQ(RunRequest(Json{{"op", "unpack"}, {"path", At("out")}}.dump(), io), 1);
  pipe->read.reset();
  sender.join();
  EXPECT_NE(Get("reply").find("too_large"), std::string::npos);
}

TEST_F(ArchiveTest, AbsoluteNamesBecomeRelative) {
  EXPECT_EQ(Unpack(TarWriter().File("/etc/x", "x").File("././y", "y").Bytes()).code(), "");
  EXPECT_EQ(Names("out"), "etc y");
}

TEST_F(ArchiveTest, NothingIsWrittenOutsideOfTheDirectory) {
  EXPECT_EQ(Unpack(TarWriter().File("../x", "x").Bytes()).code(), "forbidden");
  EXPECT_EQ(Unpack(TarWriter().File("a/../../x", "x").Bytes()).code(), "forbidden");
  EXPECT_EQ(Unpack(TarWriter().Symlink("up", "..").File("up/x", "x").Bytes()).code(), "forbidden");
  EXPECT_EQ(Unpack(TarWriter().Symlink("abs", dir_.path()).File("abs/x", "x").Bytes()).code(),
            "forbidden");
  Put("secret", "s");
  EXPECT_EQ(Unpack(TarWriter().HardLink("h", "../secret").Bytes()).code(), "forbidden");
  EXPECT_EQ(Names(), "out secret");
}

TEST_F(ArchiveTest, LinksWithinTheDirectoryAreOrdinary) {
  const auto tar =
      TarWriter().Directory("d").Symlink("l", "d").File("l/x", "x").HardLink("h", "d/x");
  const auto counts = Unpack(tar.Bytes()).ok();
  EXPECT_EQ(counts["symlinks"], 1);
  EXPECT_EQ(counts["hard_links"], 1);
  EXPECT_EQ(Get("out/d/x") + Get("out/h"), "xx");
}

TEST_F(ArchiveTest, DevicesAreRefused) {
  EXPECT_EQ(Unpack(TarWriter().Add({.name = "null", .type = '3'}).Bytes()).code(), "forbidden");
  EXPECT_EQ(Unpack(TarWriter().Add({.name = "disk", .type = '4'}).Bytes()).code(), "forbidden");
  EXPECT_EQ(Names("out"), "");
}

TEST_F(ArchiveTest, SpecialBitsAreDropped) {
  ASSERT_EQ(Unpack(TarWriter().File("s", "x", 06755).Bytes()).code(), "");
  EXPECT_EQ(Op("stat", "out/s").ok()["mode"], "0755");
}

TEST_F(ArchiveTest, WhatStandsInTheWayIsReplacedUnlessADirectory) {
  Put("out/x", "old");
  ASSERT_EQ(::mkdir(At("out/d").c_str(), 0755), 0);
  EXPECT_EQ(Unpack(TarWriter().File("x", "new").Bytes()).code(), "");
  EXPECT_EQ(Get("out/x"), "new");
  EXPECT_EQ(Unpack(TarWriter().File("d", "new").Bytes()).code(), "is_directory");
}

TEST_F(ArchiveTest, BytesThatAreNoArchiveAreCorrupt) {
  EXPECT_EQ(Unpack("this is no archive, however long it goes on").code(), "corrupt");
  const std::string tar = TarWriter().File("x", std::string(5000, 'x')).Bytes();
  EXPECT_EQ(Unpack(tar.substr(0, 2000)).code(), "corrupt");
  EXPECT_EQ(Unpack(tar, {{"format", "zip"}}).code(), "corrupt");
  EXPECT_EQ(Unpack(tar, {{"format", "rar"}}).code(), "invalid_argument");
  EXPECT_EQ(Op("unpack", "none", {}, tar).code(), "not_found");
}

}  // namespace
}  // namespace hutch::files
