#include "tools/tar_reader.h"

#include <gtest/gtest.h>

#include "tools/host_tree.h"

namespace hutch::tools {
namespace {

std::string Padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512);
  return text;
}
std::string End() { return std::string(1024, '\0'); }

std::string File(const std::string& name, const std::string& bytes) {
  return TarHeader({.kind = TarEntry::Kind::kFile,
                    .name = name,
                    .target = "",
                    .size = bytes.size(),
                    .mode = 0640},
                   1) +
         Padded(bytes);
}

// A header of another type than TarHeader makes.
std::string Typed(std::string header, char type) {
  header[156] = type;
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  std::snprintf(header.data() + 148, 8, "%06o", sum);
  return header;
}

std::string Pax(const std::string& records) { return Typed(File("pax", records), 'x'); }

struct Seen {
  std::vector<TarEntry> entries;
  std::vector<std::string> data;  // holes as '.'
  bool finished = false;
  Status status = OkStatus();
};

Seen Read(const std::string& bytes, size_t piece) {
  Seen seen;
  TarReader reader({.begin =
                        [&](const TarEntry& entry) {
                          seen.entries.push_back(entry);
                          seen.data.emplace_back();
                          return OkStatus();
                        },
                    .data =
                        [&](uint64_t offset, std::string_view part) {
                          seen.data.back().resize(offset, '.');
                          seen.data.back() += part;
                          return OkStatus();
                        },
                    .end = [&] { return OkStatus(); }});
  for (size_t at = 0; at < bytes.size() && seen.status; at += piece)
    seen.status = reader.Feed(std::string_view(bytes).substr(at, piece));
  seen.finished = reader.finished();
  return seen;
}

TEST(TarReader, ReadsWhatComesInPiecesOfAnySize) {
  const std::string name = "directory/" + std::string(200, 'n');
  const std::string bytes =
      File("a", "one") + File("empty", "") + File(name, std::string(1000, 'x')) +
      TarHeader({.kind = TarEntry::Kind::kSymlink,
                 .name = "l",
                 .target = std::string(150, 't'),
                 .size = 0,
                 .mode = 0777},
                1) +
      TarHeader(
          {.kind = TarEntry::Kind::kDirectory, .name = "d/", .target = "", .size = 0, .mode = 0700},
          1) +
      End();
  for (const size_t piece : {size_t{1}, size_t{511}, bytes.size()}) {
    const Seen seen = Read(bytes, piece);
    ASSERT_TRUE(seen.status) << seen.status.error().what;
    EXPECT_TRUE(seen.finished);
    ASSERT_EQ(seen.entries.size(), 5u);
    EXPECT_EQ(seen.data[0], "one");
    EXPECT_EQ(seen.entries[0].mode, 0640u);
    EXPECT_EQ(seen.entries[2].name, name);
    EXPECT_EQ(seen.data[2], std::string(1000, 'x'));
    EXPECT_EQ(seen.entries[3].kind, TarEntry::Kind::kSymlink);
    EXPECT_EQ(seen.entries[3].target, std::string(150, 't'));
    EXPECT_EQ(seen.entries[4].kind, TarEntry::Kind::kDirectory);
  }
}

TEST(TarReader, SparseFilesKeepTheirHoles) {
  const std::string stored = Padded("2\n3\n4\n20\n2\n") + "aaaabb";
  const std::string bytes = Pax("22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
                                "25 GNU.sparse.name=holes\n26 GNU.sparse.realsize=30\n") +
                            File("GNUSparseFile.0/holes", stored) + File("next", "n") + End();
  for (const size_t piece : {size_t{1}, size_t{700}, bytes.size()}) {
    const Seen seen = Read(bytes, piece);
    ASSERT_TRUE(seen.status) << seen.status.error().what;
    ASSERT_EQ(seen.entries.size(), 2u);
    EXPECT_EQ(seen.entries[0].name, "holes");
    EXPECT_EQ(seen.entries[0].size, 30u);
    EXPECT_EQ(seen.data[0], "...aaaa.............bb");
    EXPECT_EQ(seen.data[1], "n");
  }
}

TEST(TarReader, GnuLongNamesAreRead) {
  const std::string name(300, 'g');
  const Seen seen =
      Read(Typed(File("././@LongLink", name + '\0'), 'L') + File("g", "x") + End(), 100);
  ASSERT_TRUE(seen.status);
  ASSERT_EQ(seen.entries.size(), 1u);
  EXPECT_EQ(seen.entries[0].name, name);
}

TEST(TarReader, DamageIsToldAndACutArchiveIsNotFinished) {
  std::string damaged = File("a", "x") + End();
  damaged[0] = 'b';
  EXPECT_EQ(Read(damaged, 64).status.error().code, Code::kCorrupt);
  EXPECT_FALSE(Read(std::string(512, 'x'), 64).status);
  EXPECT_FALSE(Read(Pax("99 path=x\n"), 64).status);
  EXPECT_FALSE(Read(Pax("nonsense"), 64).status);
  const std::string whole = File("a", "x") + End();
  EXPECT_FALSE(Read(whole.substr(0, 1024), 64).finished);
  const std::string endless = Typed(
      TarHeader(
          {.kind = TarEntry::Kind::kFile, .name = "p", .target = "", .size = 2 << 20, .mode = 0},
          0),
      'x');
  EXPECT_EQ(Read(endless, 64).status.error().code, Code::kTooLarge);
}

}  // namespace
}  // namespace hutch::tools
