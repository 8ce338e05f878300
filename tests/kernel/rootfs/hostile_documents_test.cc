// Indexes, manifests and configurations that say one thing and hold another.
#include <gtest/gtest.h>

#include "base/file.h"
#include "rootfs/digest.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

constexpr char kManifestType[] = "application/vnd.oci.image.manifest.v1+json";
constexpr char kConfigType[] = "application/vnd.oci.image.config.v1+json";
constexpr char kLayerType[] = "application/vnd.oci.image.layer.v1.tar";

class DocumentTest : public StoreTest {
 protected:
  DocumentTest() : tar_(TarWriter().File("f", "content").Bytes()) {
    layout_.layers.push_back({tar_, DigestOf(tar_)});
  }
  std::string ConfigText(const std::string& more = "") const {
    return "{\"os\":\"linux\"" + more + ",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" +
           DigestOf(tar_) + "\"]}}";
  }
  std::string ManifestText(const std::string& more = "") const {
    return "{\"schemaVersion\":2,\"config\":" + DescriptorJson(kConfigType, ConfigText()) +
           ",\"layers\":[" + DescriptorJson(kLayerType, tar_) + "]" + more + "}";
  }
  static std::string IndexOf(const std::string& descriptors) {
    return "{\"schemaVersion\":2,\"manifests\":[" + descriptors + "]}";
  }
  Error RefusedLayout() { return Refused(WriteLayoutFiles(layout_, work_ / "layout")); }

  std::string tar_;
  Layout layout_;
};

TEST_F(DocumentTest, ManifestAmbiguous) {
  layout_.config = ConfigText();
  layout_.manifest = ManifestText(",\"manifests\":[]");
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
  layout_.manifest.clear();
  layout_.index = IndexOf("").substr(0, IndexOf("").size() - 1) + ",\"layers\":[]}";
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
}

TEST_F(DocumentTest, ManifestOfAnotherTypeThanItsDescriptorSays) {
  layout_.config = ConfigText();
  layout_.manifest =
      ManifestText(",\"mediaType\":\"application/vnd.docker.distribution.manifest.v2+json\"");
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
}

TEST_F(DocumentTest, JsonDuplicateKeys) {
  layout_.config = ConfigText();
  layout_.manifest = ManifestText(",\"layers\":[]");
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
  layout_.manifest.clear();
  layout_.config = ConfigText(",\"os\":\"linux\"");
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
}

TEST_F(DocumentTest, WrongSizeOrBytes) {
  layout_.config = ConfigText();
  const std::string right = DescriptorJson(kManifestType, ManifestText());
  layout_.manifest = ManifestText();
  std::string wrong = right;
  wrong.replace(wrong.find("\"size\":") + 7, 1, "9");
  layout_.index = IndexOf(wrong);
  Error error = RefusedLayout();
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_NE(error.what.find(DigestOf(ManifestText())), std::string::npos) << error.what;
  layout_.index = IndexOf(right);
  const std::string directory = WriteLayoutFiles(layout_, work_ / "layout");
  // Each blob in turn with one bit of it turned over.
  for (const std::string& bytes : {ManifestText(), ConfigText(), tar_}) {
    std::string changed = bytes;
    changed[changed.size() / 2] ^= 1;
    const std::string path = directory + "/blobs/sha256/" + DigestOf(bytes).substr(7);
    ASSERT_TRUE(WriteFileAtomic(path, changed, Durability::kMemory).has_value());
    error = Refused(directory);
    EXPECT_EQ(error.code, Code::kCorrupt) << Text(error);
    EXPECT_NE(error.what.find(DigestOf(bytes)), std::string::npos) << error.what;
    ASSERT_TRUE(WriteFileAtomic(path, bytes, Durability::kMemory).has_value());
  }
  Import(directory);
}

TEST_F(DocumentTest, DigestTraversalTable) {
  const std::string hex = DigestOf(tar_).substr(7);
  for (const std::string& digest :
       {std::string("../../../etc/passwd"), std::string("sha256:../../../../etc/passwd"),
        "sha256:" + hex.substr(1), "sha256:" + hex + "0", "sha256:" + hex.substr(1) + "G",
        "SHA256:" + hex, "sha256:" + hex.substr(0, 62) + "/.", "md5:" + hex,
        "sha256:" + hex + "\\n", std::string("sha256:"), std::string()}) {
    SCOPED_TRACE(digest);
    layout_.index = IndexOf("{\"mediaType\":\"" + std::string(kManifestType) + "\",\"digest\":\"" +
                            digest + "\",\"size\":5}");
    EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
    layout_.index.clear();
    layout_.config = "{\"rootfs\":{\"diff_ids\":[\"" + digest + "\"]}}";
    EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
    layout_.config.clear();
  }
}

TEST_F(DocumentTest, CachePoison) {
  Import(WriteLayoutFiles(layout_, work_ / "good"), "good");
  const Image good = *store_->Resolve("good");
  // Other bytes under the diffID of a layer that the store has.
  const std::string evil = TarWriter().File("f", "evil").Bytes();
  Layout poison;
  poison.layers.push_back({evil, DigestOf(tar_)});
  EXPECT_EQ(Refused(WriteLayoutFiles(poison, work_ / "poison"), "evil").code, Code::kCorrupt);
  const auto text = ReadFile(LayerRoot(good.diff_ids[0]) + "/f", 100);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, "content");
}

TEST_F(DocumentTest, LayersAndDiffIdsOfDifferentNumber) {
  layout_.config = "{\"rootfs\":{\"diff_ids\":[]}}";
  EXPECT_EQ(RefusedLayout().code, Code::kCorrupt);
  layout_.config.clear();
  layout_.layers.clear();
  EXPECT_EQ(RefusedLayout().code, Code::kInvalidArgument);
}

TEST_F(DocumentTest, AMissingBlobIsNamed) {
  const std::string directory = WriteLayoutFiles(layout_, work_ / "layout");
  ASSERT_TRUE(RemoveTree(directory + "/blobs/sha256/" + DigestOf(tar_).substr(7)).has_value());
  const Error error = Refused(directory);
  EXPECT_EQ(error.code, Code::kCorrupt);
  EXPECT_NE(error.what.find(DigestOf(tar_)), std::string::npos) << error.what;
}

TEST_F(DocumentTest, BlobsAreNotReadThroughLinksOutOfTheLayout) {
  const std::string directory = WriteLayoutFiles(layout_, work_ / "layout");
  const std::string blob = directory + "/blobs/sha256/" + DigestOf(tar_).substr(7);
  ASSERT_EQ(Shell("mv " + blob + " " + (work_ / "outside") + " && ln -s " + (work_ / "outside") +
                  " " + blob),
            0);
  Refused(directory);
}

TEST_F(DocumentTest, AnotherMachinesImage) {
  layout_.config = ConfigText(",\"architecture\":\"s390x\"");
  EXPECT_EQ(RefusedLayout().code, Code::kUnsupported);
  layout_.config = ConfigText();
  layout_.manifest = ManifestText();
  const std::string plain = DescriptorJson(kManifestType, ManifestText());
  const std::string platform = ",\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}}";
  layout_.index = IndexOf(plain.substr(0, plain.size() - 1) + platform);
  EXPECT_EQ(RefusedLayout().code, Code::kNotFound);
}

TEST_F(DocumentTest, OfAMultiPlatformIndexThisMachinesIsTaken) {
#if defined(__x86_64__)
  const std::string ours = "amd64";
#else
  const std::string ours = "arm64";
#endif
  layout_.config = ConfigText();
  layout_.manifest = ManifestText();
  const auto with = [&](const std::string& bytes, const std::string& platform) {
    return DescriptorJson(kManifestType, bytes,
                          ",\"platform\":{\"os\":\"linux\",\"architecture\":\"" + platform + "\"}");
  };
  const std::string inner = IndexOf(with("other", "s390x") + "," + with(ManifestText(), ours) +
                                    "," + with("attestation", "unknown"));
  layout_.index = IndexOf(DescriptorJson("application/vnd.oci.image.index.v1+json", inner));
  const std::string directory = WriteLayoutFiles(layout_, work_ / "layout");
  ASSERT_TRUE(WriteFileAtomic(directory + "/blobs/sha256/" + DigestOf(inner).substr(7), inner,
                              Durability::kMemory)
                  .has_value());
  EXPECT_EQ(Import(directory, "multi").id, DigestOf(ManifestText()));
}

TEST_F(DocumentTest, SeveralImagesNeedAName) {
  layout_.config = ConfigText();
  layout_.manifest = ManifestText();
  const std::string second = ManifestText(",\"annotations\":{}");
  const auto named = [&](const std::string& bytes, const std::string& name) {
    return DescriptorJson(
        kManifestType, bytes,
        ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"" + name + "\"}");
  };
  layout_.index = IndexOf(named(ManifestText(), "a:1") + "," + named(second, "b:1"));
  const std::string directory = WriteLayoutFiles(layout_, work_ / "layout");
  ASSERT_TRUE(WriteFileAtomic(directory + "/blobs/sha256/" + DigestOf(second).substr(7), second,
                              Durability::kMemory)
                  .has_value());
  EXPECT_EQ(Refused(directory).code, Code::kInvalidArgument);
  EXPECT_EQ(Refused(directory, "c:1x").code, Code::kInvalidArgument);
  EXPECT_EQ(Import(directory, "b:1").id, DigestOf(second));
}

TEST_F(DocumentTest, ADocumentThatIsTooLong) {
  layout_.config = ConfigText(",\"author\":\"" + std::string(9u << 20, 'a') + "\"");
  EXPECT_EQ(RefusedLayout().code, Code::kTooLarge);
}

TEST_F(DocumentTest, LabelsAndVolumesAreData) {
  layout_.config = ConfigText(
      ",\"config\":{\"Labels\":{\"io.hutch.danger\":\"../../x\"},\"Volumes\":{\"/../../../v\":{}},"
      "\"WorkingDir\":\"../..\"}");
  const Image image = Import(WriteLayoutFiles(layout_, work_ / "layout"));
  EXPECT_EQ(image.config.volumes, std::vector<std::string>{"/../../../v"});
}

}  // namespace
}  // namespace hutch::rootfs
