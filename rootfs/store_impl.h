// The store on disk. See rootfs/store.h for the contract.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "rootfs/image_source.h"
#include "rootfs/store.h"
#include "rootfs/unpack_process.h"

namespace hutch::rootfs {

class StoreImpl : public Store {
 public:
  explicit StoreImpl(std::string state_dir);
  Status Load();

  Result<Image> Import(const std::string& path, const std::string& reference,
                       const ProgressFn& progress) override;
  Result<Image> Resolve(const std::string& reference) override;
  std::vector<Image> List() override;
  Result<Removed> Remove(const std::string& reference,
                         const std::vector<std::string>& in_use) override;
  Result<UniqueFd> OpenLayer(const std::string& diff_id) override;

 private:
  struct LayerOutcome {
    std::string digest;  // of the packed bytes
    uint64_t packed_bytes = 0;
  };

  Result<Image> ImportSource(int root_fd, const std::string& reference, const ProgressFn& progress);
  Result<Image> ImportArchive(int file_fd, const std::string& reference,
                              const ProgressFn& progress);
  Result<Removed> Unregister(const Image& image, const std::string& reference,
                             std::vector<std::string>* doomed);
  Result<LayerOutcome> EnsureLayer(int root_fd, const LayerSource& layer);
  Result<LayerOutcome> UnpackLayer(int root_fd, const LayerSource& layer);
  Status FinishLayer(const std::string& temporary, const LayerSource& layer,
                     const UnpackReport& report);
  Status WriteBlob(const std::string& digest, const std::string& bytes) const;
  Result<Image> Register(const ImageSource& source, const std::string& reference);
  Status LoadImage(const std::string& manifest_digest, std::vector<std::string> references,
                   const std::string& config_digest);
  Status SaveIndex() const;  // with mutex_ held
  void Sweep() const;
  std::string LayerPath(const std::string& diff_id) const;
  std::string BlobPath(const std::string& digest) const;

  struct Entry {
    Image image;
    std::string config_digest;
  };
  const std::string images_dir_, layers_dir_;
  std::mutex mutex_;
  std::map<std::string, Entry> images_;  // by manifest digest
  std::set<std::string> unpacking_;      // diffIDs; others wait for them
  std::condition_variable unpacked_;
};

}  // namespace hutch::rootfs
