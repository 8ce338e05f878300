#include <gtest/gtest.h>

#include "rootfs/unpack_process.h"

namespace hutch::rootfs {
namespace {

const std::string kDigest = "sha256:" + std::string(64, 'a');

TEST(UnpackReport, IsRead) {
  const auto report = ParseUnpackReport("digest " + kDigest + "\ndiff_id " + kDigest +
                                        "\nentries 3\ndisk_bytes 4096\ndropped 1\nremapped 2\n"
                                        "opaque 612f62\nfile 61 512 7\nsymlink 62 2e2e2f61\nend\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->digest, kDigest);
  EXPECT_EQ(report->entries, 3u);
  EXPECT_EQ(report->opaque, std::vector<std::string>{"a/b"});
  ASSERT_EQ(report->files.size(), 2u);
  EXPECT_EQ(report->files[0].offset, 512u);
  EXPECT_EQ(report->files[1].target, "../a");
  EXPECT_FALSE(report->error.has_value());
}

TEST(UnpackReport, AnErrorComesWithItsCode) {
  const auto report = ParseUnpackReport("digest " + kDigest + "\nerror too_large a bomb\nend\n");
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->error->code, Code::kTooLarge);
  EXPECT_EQ(report->error->what, "a bomb");
  // Codes that an unpacker has no business with.
  EXPECT_EQ(ParseUnpackReport("error not_found x\nend\n")->error->code, Code::kKernel);
}

TEST(UnpackReport, AnythingElseIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("end"), std::string("entries 3\n"), std::string("end\nend\n"),
        std::string("end\nx"), std::string("entries -1\nend\n"), std::string("entries 1 2\nend\n"),
        std::string("digest ../../x\nend\n"), std::string("opaque 6\nend\n"),
        std::string("opaque 00\nend\n"), std::string("opaque 6G\nend\n"), std::string("\nend\n"),
        std::string("file 61 9223372036854775808 1\nend\n"), std::string("unknown 1\nend\n")})
    EXPECT_FALSE(ParseUnpackReport(text).has_value()) << text;
}

}  // namespace
}  // namespace hutch::rootfs
