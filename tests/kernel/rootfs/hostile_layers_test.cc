// The corpus of hostile layers: each is refused, or unpacks to something harmless; nothing outside
// the layer's directory changes; the same whatever the compression.
#include <gtest/gtest.h>
#include <ostream>

#include "base/file.h"
#include "rootfs/limits.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

struct HostileLayer {
  const char* name;
  std::string (*make)(const std::string& outside);  // the tar; outside: a directory of the host's
  Code code;                                        // how it is refused; kInternal: it unpacks
  std::vector<std::string> paths = {};              // what it unpacks to, without the root
};

void PrintTo(const HostileLayer& layer, std::ostream* out) { *out << layer.name; }

constexpr Code kHarmless = Code::kInternal;

std::string Deep(size_t levels) {
  std::string path;
  for (size_t i = 0; i < levels; ++i) path += "d/";
  return path + "f";
}

const HostileLayer kHostileLayers[] = {
    {"untar_symlink_then_write",
     [](const std::string& outside) {
       return TarWriter().Symlink("x", outside).File("x/evil", "x").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_relative_symlink_then_write",
     [](const std::string&) {
       return TarWriter().Symlink("x", "../../../../../../../../tmp").File("x/evil", "").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_symlink_then_directory_below",
     [](const std::string& outside) {
       return TarWriter().Symlink("x", outside).Directory("x/evil/").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_file_replaces_symlink",
     [](const std::string& outside) {
       return TarWriter().Symlink("x", outside + "/victim").File("x", "mine").Bytes();
     },
     kHarmless,
     {"x"}},
    {"untar_directory_replaces_symlink",
     [](const std::string& outside) {
       return TarWriter().Symlink("x", outside).Directory("x").File("x/f", "").Bytes();
     },
     kHarmless,
     {"x", "x/f"}},
    {"untar_chmod_via_link",
     [](const std::string& outside) {
       return TarWriter()
           .Symlink("x", outside + "/victim")
           .Add({.name = "x",
                 .type = '2',
                 .data = {},
                 .link = outside + "/victim",
                 .mode = 04777,
                 .uid = 1000})
           .Bytes();
     },
     kHarmless,
     {"x"}},
    {"untar_chmod_via_hardlink_to_symlink",
     [](const std::string& outside) {
       return TarWriter()
           .Symlink("a", outside + "/victim")
           .HardLink("b", "a")
           .File("b", "")
           .Bytes();
     },
     kHarmless,
     {"a", "b"}},
    {"untar_hardlink_outside",
     [](const std::string& outside) {
       return TarWriter().HardLink("x", outside + "/victim").File("x", "evil").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_hardlink_dotdot",
     [](const std::string&) {
       return TarWriter().HardLink("x", "../../../../../etc/passwd").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_hardlink_through_symlink",
     [](const std::string& outside) {
       return TarWriter().Symlink("d", outside).HardLink("x", "d/victim").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_hardlink_to_directory",
     [](const std::string&) { return TarWriter().Directory("d").HardLink("x", "d").Bytes(); },
     Code::kInvalidArgument},
    {"untar_hardlink_to_itself",
     [](const std::string&) { return TarWriter().File("x", "1").HardLink("x", "x").Bytes(); },
     Code::kInvalidArgument},
    {"untar_hardlink_into_what_it_replaces",
     [](const std::string&) {
       return TarWriter().Directory("d").File("d/f", "1").HardLink("d", "d/f").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_dotdot", [](const std::string&) { return TarWriter().File("../evil", "x").Bytes(); },
     Code::kInvalidArgument},
    {"untar_dotdot_inside",
     [](const std::string&) { return TarWriter().File("a/../../evil", "x").Bytes(); },
     Code::kInvalidArgument},
    {"untar_dotdot_in_pax",
     [](const std::string&) {
       TarEntry entry{.name = "innocent"};
       entry.pax["path"] = "../evil";
       return TarWriter().Add(entry).Bytes();
     },
     Code::kInvalidArgument},
    {"untar_absolute",
     [](const std::string& outside) { return TarWriter().File(outside + "/victim", "x").Bytes(); },
     kHarmless},
    {"untar_devnode_dropped",
     [](const std::string&) {
       TarEntry null{.name = "null", .type = '3'}, disk{.name = "sda", .type = '4'};
       return TarWriter().Add(null).Add(disk).File("f", "").Bytes();
     },
     kHarmless,
     {"f"}},
    {"untar_write_through_fifo",
     [](const std::string&) {
       TarEntry fifo{.name = "p", .type = '6'};
       return TarWriter().Add(fifo).File("p", "data").Bytes();
     },
     kHarmless,
     {"p"}},
    {"untar_below_a_file",
     [](const std::string&) { return TarWriter().File("f", "").File("f/g", "").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_below_a_file",
     [](const std::string&) {
       return TarWriter().File("f", "").File("f/.wh.g", "").File("f/d/.wh..wh..opq", "").Bytes();
     },
     kHarmless,
     {"f"}},
    {"untar_root_as_symlink",
     [](const std::string& outside) { return TarWriter().Symlink("./", outside).Bytes(); },
     Code::kInvalidArgument},
    // Read as a directory, which has no data: what follows is no header.
    {"untar_root_as_file", [](const std::string&) { return TarWriter().File("/", "x").Bytes(); },
     Code::kCorrupt},
    {"untar_root_as_hardlink",
     [](const std::string&) { return TarWriter().File("f", "").HardLink(".", "f").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_of_nothing",
     [](const std::string&) { return TarWriter().File("d/.wh.", "").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_of_dot",
     [](const std::string&) { return TarWriter().File("d/.wh..", "").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_of_dotdot",
     [](const std::string&) { return TarWriter().File("d/.wh...", "").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_with_slash",
     [](const std::string&) { return TarWriter().File("d/.wh./etc", "").Bytes(); },
     Code::kInvalidArgument},
    {"untar_whiteout_through_symlink",
     [](const std::string& outside) {
       return TarWriter().Symlink("d", outside).File("d/.wh.victim", "").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_opaque_through_symlink",
     [](const std::string& outside) {
       return TarWriter().Symlink("d", outside).File("d/.wh..wh..opq", "").Bytes();
     },
     Code::kInvalidArgument},
    {"untar_opaque_then_symlink",
     [](const std::string& outside) {
       return TarWriter().File("d/.wh..wh..opq", "").Symlink("d", outside).Bytes();
     },
     kHarmless,
     {"d"}},
    {"untar_hardlink_to_whiteout",
     [](const std::string&) { return TarWriter().File(".wh.a", "").HardLink("b", "a").Bytes(); },
     Code::kInvalidArgument},
    {"untar_negative_owner",
     [](const std::string&) { return TarWriter().Add({.name = "f", .uid = -5}).Bytes(); },
     Code::kInvalidArgument},
    {"bomb_long_path",
     [](const std::string&) { return TarWriter().File(std::string(5000, 'a'), "").Bytes(); },
     Code::kTooLarge},
    {"bomb_long_name",
     [](const std::string&) { return TarWriter().File(std::string(300, 'a'), "").Bytes(); },
     Code::kTooLarge},
    {"bomb_depth", [](const std::string&) { return TarWriter().File(Deep(200), "").Bytes(); },
     Code::kTooLarge},
    {"bomb_sparse",
     [](const std::string&) {
       TarEntry entry{.name = "f", .data = "0\n" + std::string(510, '\0')};
       entry.pax = {{"GNU.sparse.major", "1"},
                    {"GNU.sparse.minor", "0"},
                    {"GNU.sparse.realsize", "1099511627776"},
                    {"GNU.sparse.name", "f"}};
       return TarWriter().Add(entry).Bytes();
     },
     Code::kTooLarge},
    {"untar_cut_off",
     [](const std::string&) {
       const std::string whole = TarWriter().File("f", std::string(4096, 'x')).Bytes();
       return whole.substr(0, 2048);
     },
     Code::kCorrupt},
    {"untar_no_tar", [](const std::string&) { return std::string(8192, 'x'); }, Code::kCorrupt},
};

class HostileLayerTest : public StoreTest, public testing::WithParamInterface<HostileLayer> {};

TEST_P(HostileLayerTest, IsRefusedOrHarmless) {
  const HostileLayer& hostile = GetParam();
  const TempDir outside;
  ASSERT_TRUE(WriteFileAtomic(outside / "victim", "precious", Durability::kMemory).has_value());
  const auto outside_before = ListTree(outside.path());
  for (const Compression how : kCompressions) {
    SCOPED_TRACE(CompressionName(how));
    const std::string layout = work_ / CompressionName(how);
    WriteOneLayer(hostile.make(outside.path()), how, layout);
    if (hostile.code != kHarmless) {
      const Error error = Refused(layout);
      EXPECT_EQ(CodeName(error.code), std::string(CodeName(hostile.code))) << Text(error);
      EXPECT_NE(error.what.find("layer sha256:"), std::string::npos) << error.what;
      EXPECT_EQ(error.what.find("digest sha256:"), std::string::npos) << error.what;
      continue;
    }
    const Image image = Import(layout);
    ASSERT_EQ(image.diff_ids.size(), 1u);
    std::vector<std::string> paths;
    for (const std::string& line : ListTree(LayerRoot(image.diff_ids[0])))
      if (!line.starts_with(". ")) paths.push_back(line.substr(0, line.find(' ')));
    if (!hostile.paths.empty()) {
      EXPECT_EQ(paths, hostile.paths);
    }
    ASSERT_TRUE(store_->Remove(image.id, image.id, {}).has_value());
  }
  EXPECT_EQ(ListTree(outside.path()), outside_before);
}

INSTANTIATE_TEST_SUITE_P(Corpus, HostileLayerTest, testing::ValuesIn(kHostileLayers),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(StoreTest, AnAbsoluteNameLandsBelowTheRoot) {
  WriteOneLayer(TarWriter().File("/etc/passwd", "mine").Bytes(), Compression::kNone, work_ / "l");
  const Image image = Import(work_ / "l");
  const auto text = ReadFile(LayerRoot(image.diff_ids.at(0)) + "/etc/passwd", 100);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "mine");
}

TEST_F(StoreTest, ADecompressionBombIsRefused) {
  const std::string zeros = TarWriter().File("zeros", std::string(100u << 20, '\0')).Bytes();
  for (const Compression how : {Compression::kGzip, Compression::kZstd}) {
    const std::string layout = work_ / CompressionName(how);
    WriteOneLayer(zeros, how, layout);
    EXPECT_EQ(Refused(layout).code, Code::kTooLarge) << CompressionName(how);
  }
  // The same bytes as they are: not a bomb.
  WriteOneLayer(zeros, Compression::kNone, work_ / "plain");
  Import(work_ / "plain");
}

TEST_F(StoreTest, AnArchiveOfTooManyFilesIsRefused) {
  TarWriter tar;
  for (size_t i = 0; i <= kMaxArchiveFiles; ++i) tar.File("f" + std::to_string(i), "");
  ASSERT_TRUE(WriteFileAtomic(work_ / "tar", tar.Bytes(), Durability::kMemory).has_value());
  EXPECT_EQ(Refused(work_ / "tar").code, Code::kTooLarge);
}

// Every opaque directory is a line of the unpacker's report.
TEST_F(StoreTest, AReportThatIsTooLongIsRefused) {
  std::string path;
  for (int i = 0; i < 15; ++i) path += std::string(250, 'd') + "/";
  TarWriter tar;
  for (size_t i = 0; i <= kMaxReportBytes / (2 * path.size()); ++i)
    tar.File(path + std::to_string(i) + "/.wh..wh..opq", "");
  WriteOneLayer(tar.Bytes(), Compression::kGzip, work_ / "layout");
  EXPECT_EQ(Refused(work_ / "layout").code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::rootfs
