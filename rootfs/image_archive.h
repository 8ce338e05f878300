// An image of the store as one tar that other programs load: an OCI archive or a docker-archive.
// Its layers are written again from their unpacked trees, so their digests, the configuration's
// diffIDs and the image's id are not those of the image as it came; the same image of one store
// gives the same bytes.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/store.h"
#include "rootfs/tar_stream.h"

namespace hutch::rootfs {

enum class ArchiveFormat { kOci, kDocker };

class ImageArchive {
 public:
  // Reads every layer once for its digest, so this takes as long as that; `store` is borrowed, the
  // image's layers are held until the archive is destroyed. `name`: what the archive calls it,
  // empty for nothing. `cancelled` is looked at often: kUnavailable. kNotFound, kUnsupported and
  // kCorrupt as of WriteLayerTar.
  static Result<ImageArchive> Plan(Store& store, const Image& image, ArchiveFormat format,
                                   const std::string& name, const std::atomic<bool>& cancelled);
  ImageArchive(ImageArchive&&) = default;  // and no copies: members point to layers
  uint64_t size_bytes() const { return size_bytes_; }
  // Writes exactly size_bytes(). kCorrupt when a layer is not what it was when it was planned.
  Status Write(const ByteSink& sink) const;

 private:
  struct Layer {
    std::string diff_id;  // in the store
    std::string digest;   // as written
    uint64_t size = 0;
  };
  struct Member {
    std::string path;
    std::string bytes;
    const Layer* layer = nullptr;  // instead of bytes
  };
  ImageArchive(Store& store, std::shared_ptr<const void> hold)
      : store_(&store), hold_(std::move(hold)) {}
  Status ReadLayers(const Image& image, const std::atomic<bool>& cancelled);
  Result<std::string> NewConfig(const std::string& text) const;
  void AddOciMembers(const std::string& config, const std::string& name);
  void AddDockerMembers(const std::string& config, const std::string& name);
  Status WriteLayer(TarStream& tar, const Layer& layer) const;

  Store* store_;
  std::shared_ptr<const void> hold_;
  std::vector<std::string> order_;  // diffIDs as the configuration lists them
  std::vector<Layer> layers_;       // each once
  std::vector<Member> members_;
  uint64_t size_bytes_ = 0;
};

}  // namespace hutch::rootfs
