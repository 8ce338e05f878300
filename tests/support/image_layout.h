// OCI image layouts for tests, right or wrong in any part.
#pragma once

#include <string>
#include <vector>

namespace hutch {

enum class Compression { kNone, kGzip, kZstd };
inline constexpr Compression kCompressions[] = {Compression::kNone, Compression::kGzip,
                                                Compression::kZstd};
const char* CompressionName(Compression how);
// The bytes as the tool of that name compresses them; scratch files go below work_dir.
std::string Compress(const std::string& bytes, Compression how, const std::string& work_dir);

// Runs a shell command, its output in the test's; its exit code.
int Shell(const std::string& command);
// A file of the source tree.
std::string SourceFile(const std::string& path);
// Writes OUTDIR/busybox with tests/support/make_busybox_image.sh and returns its path.
std::string MakeBusyboxImage(const std::string& out_dir, const std::string& options = "");

struct LayoutLayer {
  std::string bytes;    // as they are in the blob
  std::string diff_id;  // what the configuration says
};

// Writes a layout. Every text can be given instead of made; digests and sizes are of what is
// written. Returns the layout's directory.
struct Layout {
  std::vector<LayoutLayer> layers;
  std::string config;    // empty: made from the layers
  std::string manifest;  // empty: made from config and layers
  std::string index;     // empty: made from manifest
  std::string reference = "test:latest";
};
std::string WriteLayoutFiles(const Layout& layout, const std::string& directory);
// A layout of one layer, from its plain tar.
std::string WriteOneLayer(const std::string& tar, Compression how, const std::string& directory);

std::string DescriptorJson(const std::string& media_type, const std::string& bytes,
                           const std::string& more = "");

}  // namespace hutch
