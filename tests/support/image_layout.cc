#include "tests/support/image_layout.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/file.h"
#include "rootfs/digest.h"

namespace hutch {
namespace {

constexpr char kManifestType[] = "application/vnd.oci.image.manifest.v1+json";
constexpr char kConfigType[] = "application/vnd.oci.image.config.v1+json";
constexpr char kLayerType[] = "application/vnd.oci.image.layer.v1.tar";
constexpr size_t kMaxFileBytes = size_t{1} << 31;

void Write(const std::string& path, const std::string& bytes) {
  const Status written = WriteFileAtomic(path, bytes, Durability::kMemory);
  EXPECT_TRUE(written.has_value()) << path;
}

void WriteBlob(const std::string& directory, const std::string& bytes) {
  Write(directory + "/blobs/sha256/" + rootfs::DigestOf(bytes).substr(7), bytes);
}

}  // namespace

const char* CompressionName(Compression how) {
  constexpr const char* kNames[] = {"none", "gzip", "zstd"};
  return kNames[static_cast<size_t>(how)];
}

int Shell(const std::string& command) {
  const int status = ::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

std::string Compress(const std::string& bytes, Compression how, const std::string& work_dir) {
  if (how == Compression::kNone) return bytes;
  const std::string plain = work_dir + "/plain", packed = work_dir + "/packed";
  Write(plain, bytes);
  const std::string tool = how == Compression::kGzip ? "gzip -n -c " : "zstd -q -c ";
  EXPECT_EQ(Shell(tool + plain + " > " + packed), 0);
  const auto out = ReadFile(packed, kMaxFileBytes);
  EXPECT_TRUE(out.has_value());
  return out ? *out : "";
}

std::string SourceFile(const std::string& path) { return HUTCH_SOURCE_DIR "/" + path; }

std::string MakeBusyboxImage(const std::string& out_dir, const std::string& options) {
  EXPECT_EQ(
      Shell(SourceFile("tests/support/make_busybox_image.sh") + " " + out_dir + " " + options), 0);
  return out_dir + "/busybox";
}

std::string DescriptorJson(const std::string& media_type, const std::string& bytes,
                           const std::string& more) {
  return "{\"mediaType\":\"" + media_type + "\",\"digest\":\"" + rootfs::DigestOf(bytes) +
         "\",\"size\":" + std::to_string(bytes.size()) + more + "}";
}

std::string WriteLayoutFiles(const Layout& layout, const std::string& directory) {
  EXPECT_TRUE(MakeDirectories(directory + "/blobs/sha256", 0700).has_value());
  std::string diff_ids, layers;
  for (const LayoutLayer& layer : layout.layers) {
    diff_ids += (diff_ids.empty() ? "\"" : ",\"") + layer.diff_id + "\"";
    layers += (layers.empty() ? "" : ",") + DescriptorJson(kLayerType, layer.bytes);
    WriteBlob(directory, layer.bytes);
  }
  const std::string config =
      !layout.config.empty()
          ? layout.config
          : "{\"os\":\"linux\",\"config\":{\"User\":\"1000:1000\"},\"rootfs\":{\"type\":\"layers\","
            "\"diff_ids\":[" +
                diff_ids + "]}}";
  const std::string manifest = !layout.manifest.empty()
                                   ? layout.manifest
                                   : std::string("{\"schemaVersion\":2,\"mediaType\":\"") +
                                         kManifestType +
                                         "\",\"config\":" + DescriptorJson(kConfigType, config) +
                                         ",\"layers\":[" + layers + "]}";
  WriteBlob(directory, config);
  WriteBlob(directory, manifest);
  Write(directory + "/index.json",
        !layout.index.empty()
            ? layout.index
            : "{\"schemaVersion\":2,\"manifests\":[" +
                  DescriptorJson(kManifestType, manifest,
                                 ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"" +
                                     layout.reference + "\"}") +
                  "]}");
  Write(directory + "/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
  return directory;
}

std::string WriteOneLayer(const std::string& tar, Compression how, const std::string& directory) {
  EXPECT_TRUE(MakeDirectories(directory, 0700).has_value());
  Layout layout;
  layout.layers.push_back({Compress(tar, how, directory), rootfs::DigestOf(tar)});
  return WriteLayoutFiles(layout, directory);
}

}  // namespace hutch
