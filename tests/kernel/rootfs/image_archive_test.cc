// Saved images: the same tree when they are imported again, the same bytes when they are saved
// again.
#include "rootfs/image_archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "rootfs/digest.h"
#include "rootfs/layer_tar.h"
#include "rootfs/limits.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

std::string Bytes(const ImageArchive& archive) {
  std::string bytes;
  const Status written = archive.Write([&](std::string_view piece) {
    bytes += piece;
    return OkStatus();
  });
  EXPECT_TRUE(written.has_value()) << Text(written.error());
  EXPECT_EQ(bytes.size(), archive.size_bytes());
  return bytes;
}

// One of everything that a layer can hold.
std::string FullLayer() {
  TarEntry file{.name = "d/file", .data = "content", .mode = 04755, .uid = 7, .gid = 8};
  file.pax = {{"SCHILY.xattr.user.note", std::string("a\0b", 3)},
              {"mtime", "1600000000.123456789"}};
  TarEntry old{.name = "d/old", .mtime = 0};
  old.pax = {{"mtime", "-2"}};
  TarEntry directory{.name = "d", .type = '5', .mode = 02751, .uid = 3};
  directory.pax = {{"SCHILY.xattr.user.of-a-directory", "1"}};
  TarEntry holes{.name = "d/holes", .data = "2\n1048576\n6\n4194304\n0\n"};
  holes.data.resize(512, '\0');
  holes.data += "middle";
  holes.pax = {{"GNU.sparse.major", "1"},
               {"GNU.sparse.minor", "0"},
               {"GNU.sparse.realsize", "4194304"},
               {"GNU.sparse.name", "d/holes"}};
  TarEntry fifo{.name = "d/fifo", .type = '6', .mode = 0600};
  return TarWriter()
      .Directory("./", 0700)
      .Add(directory)
      .Add(file)
      .Add(old)
      .HardLink("d/hard", "d/file")
      .Symlink("d/link", std::string(200, 't'))
      .HardLink("d/hard-link", "d/link")
      .Add(holes)
      .Add(fifo)
      .File("d/" + std::string(200, 'n'), "long")
      .File(std::string(90, 'o') + "/" + std::string(90, '\xff'), "no utf-8")
      .File("gone/.wh.file", "")
      .File("opaque/.wh..wh..opq", "")
      .File("opaque/new", "")
      .Bytes();
}

class ImageArchiveTest : public StoreTest {
 protected:
  ImageArchive Plan(const Image& image, ArchiveFormat format, const std::string& name = "") {
    auto archive = ImageArchive::Plan(*store_, image, format, name, cancelled_);
    EXPECT_TRUE(archive.has_value()) << Text(archive.error());
    return *std::move(archive);
  }
  // Of a whiteout nothing but its place means anything.
  std::vector<std::string> Tree(const std::string& diff_id) const {
    std::vector<std::string> lines = ListTree(LayerRoot(diff_id));
    for (std::string& line : lines)
      if (line.find(" device 0:0") != std::string::npos) line.resize(line.find(' '));
    return lines;
  }
  std::atomic<bool> cancelled_{false};
};

TEST_F(ImageArchiveTest, ComesBackAsTheSameTreesAndTheSameBytes) {
  const std::string upper = TarWriter().File("d/.wh.file", "").File("new", "x").Bytes();
  Layout layout;
  for (const std::string& tar : {FullLayer(), upper}) layout.layers.push_back({tar, DigestOf(tar)});
  const Image image = Import(WriteLayoutFiles(layout, work_ / "layout"), "original:1");
  for (const ArchiveFormat format : {ArchiveFormat::kOci, ArchiveFormat::kDocker}) {
    const std::string bytes = Bytes(Plan(image, format, "docker.io/library/copy:1"));
    EXPECT_TRUE(Bytes(Plan(image, format, "docker.io/library/copy:1")) == bytes);
    const std::string path = work_ / "archive";
    ASSERT_TRUE(WriteFileAtomic(path, bytes, Durability::kMemory).has_value());
    const Image copy = Import(path);
    EXPECT_EQ(copy.references.front(), "docker.io/library/copy:1");
    ASSERT_EQ(copy.diff_ids.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Tree(copy.diff_ids[i]), Tree(image.diff_ids[i]));
    EXPECT_TRUE(Bytes(Plan(copy, format, "docker.io/library/copy:1")) == bytes);
    ASSERT_TRUE(store_->Remove(copy.id, copy.id, {}).has_value());
  }
}

TEST_F(ImageArchiveTest, KeepsWhatTheConfigurationSays) {
  const std::string tar = TarWriter().File("f", "x").Bytes();
  Layout layout;
  layout.layers = {{tar, DigestOf(tar)}};
  layout.config =
      R"({"os":"linux","config":{"Env":["A=b"],"User":"7"},"history":[{"created_by":"me"}],)"
      R"("odd":{"kept":true},"rootfs":{"type":"layers","diff_ids":[")" +
      DigestOf(tar) + "\"]}}";
  const Image image = Import(WriteLayoutFiles(layout, work_ / "layout"), "original:1");
  const std::string bytes = Bytes(Plan(image, ArchiveFormat::kOci));
  ASSERT_TRUE(WriteFileAtomic(work_ / "archive", bytes, Durability::kMemory).has_value());
  const Image copy = Import(work_ / "archive", "copy:1");
  EXPECT_EQ(copy.config.env, image.config.env);
  EXPECT_EQ(copy.config.user, "7");
  const auto text = store_->ConfigText(copy.id);
  ASSERT_TRUE(text.has_value());
  EXPECT_NE(text->find(R"("odd":{"kept":true})"), std::string::npos);
  EXPECT_NE(text->find(R"("created_by":"me")"), std::string::npos);
}

TEST_F(ImageArchiveTest, LayersStayWhileAnArchiveIsWritten) {
  const Image image = Import(MakeBusyboxImage(work_.path()));
  {
    const ImageArchive archive = Plan(image, ArchiveFormat::kOci);
    ASSERT_TRUE(store_->Remove(image.id, image.id, {}).has_value());
    EXPECT_TRUE(store_->List().empty());
    Bytes(archive);
  }
  // And go with it: nobody has to come for them.
  EXPECT_FALSE(PathExists(LayerRoot(image.diff_ids[0])));
}

TEST_F(ImageArchiveTest, ALayerThatChangesIsNoticed) {
  const Image image = Import(MakeBusyboxImage(work_.path()));
  const ImageArchive archive = Plan(image, ArchiveFormat::kOci);
  const std::string motd = LayerRoot(image.diff_ids[0]) + "/etc/motd";
  for (const char* text : {"BASE\n", "longer than it was, by more than one block"}) {
    ASSERT_TRUE(WriteFileAtomic(motd, text, Durability::kMemory).has_value());
    const Status written = archive.Write([](std::string_view) { return OkStatus(); });
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, Code::kCorrupt) << Text(written.error());
  }
}

TEST_F(ImageArchiveTest, CanBeCancelled) {
  const Image image = Import(MakeBusyboxImage(work_.path()));
  cancelled_ = true;
  const auto archive = ImageArchive::Plan(*store_, image, ArchiveFormat::kOci, "", cancelled_);
  ASSERT_FALSE(archive.has_value());
  EXPECT_EQ(archive.error().code, Code::kUnavailable);
}

TEST(LayerTarTest, AFileOfTooManyHolesIsSavedWithoutThem) {
  const TempDir layer;
  const auto sizes = [&](size_t pieces) {
    const auto fd = Open(layer / "f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    EXPECT_TRUE(fd.has_value());
    for (size_t i = 0; i < pieces; ++i)
      EXPECT_EQ(::pwrite(fd->get(), "x", 1, static_cast<off_t>(2 * i) * 65536), 1);
    const auto root = Open(layer.path(), O_PATH | O_DIRECTORY);
    uint64_t bytes = 0;
    const Status written = WriteLayerTar(root->get(), [&](std::string_view piece) {
      bytes += piece.size();
      return OkStatus();
    });
    EXPECT_TRUE(written.has_value()) << Text(written.error());
    return bytes;
  };
  EXPECT_LT(sizes(16), 1u << 20);
  EXPECT_GT(sizes(kMaxSavedPieces + 1), uint64_t{kMaxSavedPieces} * 2 * 65536);
}

TEST(LayerTarTest, NamesThatAreKeptAreBounded) {
  const TempDir work;
  std::string path = work / "fs";
  while (path.size() < 3700) path += "/" + std::string(250, 'd');
  ASSERT_TRUE(MakeDirectories(path, 0700).has_value());
  ASSERT_TRUE(MakeDirectories(work / "others", 0700).has_value());
  const auto inside = Open(path, O_RDONLY | O_DIRECTORY);
  const auto outside = Open(work / "others", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(inside.has_value() && outside.has_value());
  // The first path of a file of several links is kept until the end.
  for (size_t i = 0; i * path.size() < kMaxSavedNameBytes; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_EQ(::mknodat(inside->get(), name.c_str(), S_IFREG | 0600, 0), 0);
    ASSERT_EQ(::linkat(inside->get(), name.c_str(), outside->get(), name.c_str(), 0), 0);
  }
  const auto root = Open(work / "fs", O_PATH | O_DIRECTORY);
  const Status written = WriteLayerTar(root->get(), [](std::string_view) { return OkStatus(); });
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Code::kTooLarge);
}

TEST(LayerTarTest, NamesThatWouldMeanARemovalAreRefused) {
  const TempDir layer;
  ASSERT_TRUE(WriteFileAtomic(layer / ".wh.x", "", Durability::kMemory).has_value());
  const auto root = Open(layer.path(), O_PATH | O_DIRECTORY);
  const Status written = WriteLayerTar(root->get(), [](std::string_view) { return OkStatus(); });
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace hutch::rootfs
