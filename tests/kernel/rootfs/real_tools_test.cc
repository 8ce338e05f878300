// Images written by skopeo and umoci, compared with what umoci unpacks.
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <algorithm>

#include "base/file.h"
#include "tests/kernel/rootfs/store_fixture.h"

namespace hutch::rootfs {
namespace {

class RealToolsTest : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    ASSERT_EQ(Shell("command -v skopeo umoci >/dev/null"), 0) << "apt-get install skopeo umoci";
    MakeBusyboxImage(work_.path(), "--two-layers");
    layout_ = work_ / "busybox";
  }
  int Skopeo(const std::string& to, const std::string& from = "") {
    return Shell("skopeo --insecure-policy copy -q oci:" +
                 (from.empty() ? layout_ + ":busybox:latest" : from) + " " + to + " 2>&1");
  }
  // The tree, ready to be compared with another: the root's own line aside, and what only an
  // unpacked layer has.
  static std::vector<std::string> Comparable(const std::string& root) {
    std::vector<std::string> lines = ListTree(root);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with(". "); });
    return lines;
  }
  std::string layout_;
};

TEST_F(RealToolsTest, DockerArchive) {
  ASSERT_EQ(Skopeo("docker-archive:" + (work_ / "docker.tar") + ":busybox:docker"), 0);
  const Image layout = Import(layout_, "layout");
  const Image image = Import(work_ / "docker.tar");
  EXPECT_EQ(image.references, std::vector<std::string>{"docker.io/library/busybox:docker"});
  EXPECT_EQ(image.diff_ids, layout.diff_ids);
  EXPECT_EQ(image.config.user, "1000:1000");
  // Compressed as a whole, the same image.
  ASSERT_EQ(Shell("gzip -k " + (work_ / "docker.tar") + " && zstd -q " + (work_ / "docker.tar")),
            0);
  EXPECT_EQ(Import(work_ / "docker.tar.gz", "gz").id, image.id);
  EXPECT_EQ(Import(work_ / "docker.tar.zst", "zst").id, image.id);
}

TEST_F(RealToolsTest, OciArchive) {
  ASSERT_EQ(Skopeo("oci-archive:" + (work_ / "oci.tar") + ":busybox:oci"), 0);
  const Image layout = Import(layout_, "layout");
  const Image image = Import(work_ / "oci.tar");
  EXPECT_EQ(image.references, std::vector<std::string>{"busybox:oci"});
  EXPECT_EQ(image.diff_ids, layout.diff_ids);
  ASSERT_EQ(Shell("gzip -k " + (work_ / "oci.tar")), 0);
  EXPECT_EQ(Import(work_ / "oci.tar.gz", "gz").id, image.id);
}

TEST_F(RealToolsTest, ALayoutCutOffIsRefused) {
  ASSERT_EQ(Skopeo("docker-archive:" + (work_ / "docker.tar") + ":busybox:docker"), 0);
  ASSERT_EQ(Shell("truncate -s 600000 " + (work_ / "docker.tar")), 0);
  const Error error = Refused(work_ / "docker.tar");
  EXPECT_TRUE(error.code == Code::kCorrupt || error.code == Code::kNotFound) << Text(error);
}

TEST_F(RealToolsTest, EqualsWhatUmociUnpacks) {
  const std::string image = work_ / "made";
  const std::string tree = work_ / "tree";
  ASSERT_EQ(Shell("set -e; mkdir -p " + tree + "/a/b; cd " + tree +
                  "; echo text >a/file; ln -s file a/link; ln a/file a/b/hard; mkfifo a/fifo; "
                  "truncate -s 1M a/sparse; printf x >>a/sparse; chmod 4755 a/file; "
                  "chown 12:34 a/b; mkdir -m 1777 a/sticky; echo ü >'a/größe'; "
                  "touch -d '2001-02-03 04:05:06.789' a/file a/sticky"),
            0);
  ASSERT_EQ(::setxattr((tree + "/a/b").c_str(), "user.note", "kept", 4, 0), 0);
  ASSERT_EQ(Shell("set -e; umoci init --layout " + image + "; umoci new --image " + image +
                  ":v1; umoci insert --image " + image + ":v1 " + tree + "/a /a 2>&1"),
            0);
  ASSERT_EQ(Shell("umoci unpack --image " + image + ":v1 " + (work_ / "bundle") + " 2>&1"), 0);
  const Image imported = Import(image, "made");
  ASSERT_EQ(imported.diff_ids.size(), 1u);
  EXPECT_EQ(Comparable(LayerRoot(imported.diff_ids[0])), Comparable(work_ / "bundle/rootfs"));
}

TEST_F(RealToolsTest, EqualsWhatUmociUnpacksOfBusybox) {
  MakeBusyboxImage(work_.path(), "--gzip");
  ASSERT_EQ(
      Shell("umoci unpack --image " + layout_ + ":busybox:latest " + (work_ / "bundle") + " 2>&1"),
      0);
  const Image image = Import(layout_);
  EXPECT_EQ(Comparable(LayerRoot(image.diff_ids[0])), Comparable(work_ / "bundle/rootfs"));
}

}  // namespace
}  // namespace hutch::rootfs
