// What a layer keeps: modes, owners, times, links, holes, attributes, long and foreign names.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/file.h"
#include "rootfs/digest.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

class LayerContentTest : public StoreTest {
 protected:
  // The root of the unpacked layer.
  std::string Unpack(const std::string& tar) {
    const Image image = Import(WriteOneLayer(tar, Compression::kGzip, work_ / "layout"));
    return image.diff_ids.empty() ? "" : LayerRoot(image.diff_ids[0]);
  }
  static struct stat Stat(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st;
  }
  static std::string Read(const std::string& path) {
    const auto text = ReadFile(path, 1u << 20);
    return text ? *text : "unreadable";
  }
  static std::string Xattr(const std::string& path, const std::string& name) {
    char value[256];
    const ssize_t n = ::lgetxattr(path.c_str(), name.c_str(), value, sizeof value);
    return n < 0 ? "none" : std::string(value, static_cast<size_t>(n));
  }
};

TEST_F(LayerContentTest, ModesOwnersAndTimes) {
  TarEntry file{.name = "d/setuid", .data = "x", .mode = 06755, .uid = 7, .gid = 8};
  file.pax["mtime"] = "1500000000.123456789";
  TarEntry directory{.name = "d", .type = '5', .mode = 02770, .uid = 1000, .gid = 1001};
  directory.pax["mtime"] = "1400000000.5";
  TarEntry link{.name = "d/link", .type = '2', .link = "/no/where", .uid = 5, .gid = 6};
  const std::string root = Unpack(TarWriter().Add(directory).Add(file).Add(link).Bytes());
  struct stat st = Stat(root + "/d/setuid");
  EXPECT_EQ(st.st_mode, S_IFREG | 06755u);
  EXPECT_EQ(st.st_uid, 7u);
  EXPECT_EQ(st.st_gid, 8u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'500'000'000);
  EXPECT_EQ(st.st_mtim.tv_nsec, 123'456'789);
  st = Stat(root + "/d");
  EXPECT_EQ(st.st_mode, S_IFDIR | 02770u);
  EXPECT_EQ(st.st_uid, 1000u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'400'000'000);
  EXPECT_EQ(st.st_mtim.tv_nsec, 500'000'000);
  st = Stat(root + "/d/link");
  EXPECT_EQ(st.st_uid, 5u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'600'000'000);
}

TEST_F(LayerContentTest, AnOwnerNoSandboxHasIsNobody) {
  const std::string root = Unpack(TarWriter()
                                      .Add({.name = "a", .uid = 65536, .gid = 65535})
                                      .Add({.name = "b", .uid = 4'294'967'296, .gid = 1})
                                      .Bytes());
  EXPECT_EQ(Stat(root + "/a").st_uid, 65534u);
  EXPECT_EQ(Stat(root + "/a").st_gid, 65535u);
  EXPECT_EQ(Stat(root + "/b").st_uid, 65534u);  // 2^32 must not become 0
}

TEST_F(LayerContentTest, UntarOverlayXattr) {
  TarEntry entry{.name = "f"};
  entry.pax = {{"SCHILY.xattr.user.note", "kept"},
               {"SCHILY.xattr.trusted.overlay.redirect", "/etc"},
               {"SCHILY.xattr.trusted.overlay.opaque", "y"},
               {"SCHILY.xattr.trusted.note", "x"},
               {"SCHILY.xattr.user.overlay.redirect", "/etc"},
               {"SCHILY.xattr.security.capability", "\x01"}};
  TarEntry directory = entry;
  directory.name = "d";
  directory.type = '5';
  const std::string root = Unpack(TarWriter().Add(entry).Add(directory).Bytes());
  for (const std::string& path : {root + "/f", root + "/d"}) {
    EXPECT_EQ(Xattr(path, "user.note"), "kept");
    for (const char* name : {"trusted.overlay.redirect", "trusted.overlay.opaque", "trusted.note",
                             "user.overlay.redirect", "security.capability"})
      EXPECT_EQ(Xattr(path, name), "none") << name;
  }
}

TEST_F(LayerContentTest, HardLinksShareOneFile) {
  const std::string root = Unpack(TarWriter()
                                      .Directory("a")
                                      .File("a/f", "content")
                                      .Directory("b")
                                      .HardLink("b/g", "a/f")
                                      .HardLink("/b/h", "./a/f")
                                      .Bytes());
  EXPECT_EQ(Stat(root + "/b/g").st_ino, Stat(root + "/a/f").st_ino);
  EXPECT_EQ(Stat(root + "/b/h").st_nlink, 3u);
}

TEST_F(LayerContentTest, LaterEntriesReplaceEarlierOnes) {
  const std::string root = Unpack(TarWriter()
                                      .Directory("tree/a/b")
                                      .File("tree/a/b/f", "old")
                                      .File("tree", "a file now")
                                      .File("file", "old")
                                      .Directory("file")
                                      .File("file/inside", "new")
                                      .Directory("kept", 0700)
                                      .File("kept/f", "stays")
                                      .Directory("kept", 0755)
                                      .Bytes());
  EXPECT_EQ(Read(root + "/tree"), "a file now");
  EXPECT_EQ(Read(root + "/file/inside"), "new");
  EXPECT_EQ(Read(root + "/kept/f"), "stays");
  EXPECT_EQ(Stat(root + "/kept").st_mode & 07777, 0755u);
}

TEST_F(LayerContentTest, WhiteoutsBesideWhatTheyName) {
  const std::string root = Unpack(TarWriter()
                                      .File(".wh.first", "")
                                      .Directory("first")
                                      .Directory("second")
                                      .File(".wh.second", "")
                                      .File(".wh.file", "")
                                      .File("file", "new")
                                      .File(".wh.gone", "")
                                      .File("auto/made/.wh..wh..opq", "")
                                      .File(".wh..wh.plnk/123.456", "aufs")
                                      .Bytes());
  EXPECT_EQ(Xattr(root + "/first", "trusted.overlay.opaque"), "y");
  EXPECT_EQ(Xattr(root + "/second", "trusted.overlay.opaque"), "y");
  EXPECT_EQ(Xattr(root + "/auto/made", "trusted.overlay.opaque"), "y");
  EXPECT_EQ(Xattr(root + "/auto", "trusted.overlay.opaque"), "none");
  EXPECT_EQ(Read(root + "/file"), "new");
  EXPECT_TRUE(S_ISCHR(Stat(root + "/gone").st_mode));
  EXPECT_FALSE(PathExists(root + "/.wh..wh.plnk"));
}

TEST_F(LayerContentTest, NamesThatAreLongOrForeign) {
  const std::string name(200, 'n'), deep = std::string(90, 'a') + "/" + std::string(90, 'b') + "/";
  const std::string utf8 = "größe-日本",
                    latin1 =
                        "gr\xf6\xdf"
                        "e",
                    newline = "a\nb\tc\\";
  TarEntry in_pax{.name = "plain", .data = "pax"};
  in_pax.pax["path"] = utf8;
  const std::string root = Unpack(TarWriter()
                                      .File(name, "long")
                                      .File(deep + name, "deep")
                                      .Add(in_pax)
                                      .File(latin1, "bytes")
                                      .File(newline, "control")
                                      .Symlink("link", std::string(300, 't'))
                                      .Bytes());
  EXPECT_EQ(Read(root + "/" + name), "long");
  EXPECT_EQ(Read(root + "/" + deep + name), "deep");
  EXPECT_EQ(Read(root + "/" + utf8), "pax");
  EXPECT_EQ(Read(root + "/" + latin1), "bytes");
  EXPECT_EQ(Read(root + "/" + newline), "control");
  EXPECT_EQ(Stat(root + "/link").st_size, 300);
}

TEST_F(LayerContentTest, HolesStayHoles) {
  const std::string tar = work_ / "sparse.tar";
  ASSERT_EQ(Shell("cd " + work_.path() +
                  " && truncate -s 64M f && printf begin | dd of=f conv=notrunc status=none && "
                  "printf end | dd of=f bs=1 seek=33554432 conv=notrunc status=none && "
                  "tar --sparse -cf sparse.tar f"),
            0);
  const auto bytes = ReadFile(tar, 1u << 22);
  ASSERT_TRUE(bytes.has_value());
  const std::string root = Unpack(*bytes);
  EXPECT_EQ(Stat(root + "/f").st_size, 64 << 20);
  EXPECT_LT(Stat(root + "/f").st_blocks, 2048);
  EXPECT_EQ(Shell("cmp " + (work_ / "f") + " " + root + "/f"), 0);
}

TEST_F(LayerContentTest, TheRootsOwnEntryCounts) {
  TarEntry entry{.name = "./", .type = '5', .mode = 0711, .uid = 3, .gid = 4};
  const std::string root = Unpack(TarWriter().Add(entry).File("./f", "").Bytes());
  EXPECT_EQ(Stat(root).st_mode & 07777, 0711u);
  EXPECT_EQ(Stat(root).st_uid, 3u);
  EXPECT_EQ(Stat(root).st_mtim.tv_sec, 1'600'000'000);
}

TEST_F(LayerContentTest, WithoutAnEntryTheRootIsOpenToAll) {
  const std::string root = Unpack(TarWriter().File("f", "").Bytes());
  EXPECT_EQ(Stat(root).st_mode & 07777, 0755u);
}

}  // namespace
}  // namespace hutch::rootfs
