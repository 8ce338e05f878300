// The store on disk. See rootfs/store.h for the contract.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "rootfs/image_source.h"
#include "rootfs/layer_jobs.h"
#include "rootfs/store.h"

namespace hutch::rootfs {

// What an unpacked layer takes on disk, bytes, as its size file says; 0 when it says nothing.
uint64_t LayerSize(const std::string& layer_path);

class StoreImpl : public Store {
 public:
  StoreImpl(const std::string& state_dir, std::string default_registry);
  // Reads the index, drops images that are damaged and sweeps what belongs to none.
  Status Load();

  Result<Image> Import(const std::string& path, const std::string& reference,
                       const ProgressFn& progress) override;
  std::string DownloadsDirectory() const override { return downloads_dir_; }
  bool HasLayer(const std::string& diff_id) override;
  Result<Image> ImportFetched(ImageSource source, const std::string& reference, LayerInputs& inputs,
                              const ProgressFn& progress) override;
  Result<Image> Resolve(const std::string& reference) override;
  std::vector<Image> List() override;
  std::vector<std::string> Damaged() override { return damaged_; }
  Result<Removed> Remove(const std::string& reference, const std::string& image_id,
                         const std::vector<std::string>& in_use) override;
  Result<UniqueFd> OpenLayer(const std::string& diff_id) override;
  // store_keeping.cc
  Result<Image> Load(int fd, const std::string& reference, const ProgressFn& progress) override;
  Result<Image> Tag(const std::string& reference, const std::string& name) override;
  Result<std::string> ConfigText(const std::string& image_id) override;
  std::map<std::string, uint64_t> LayerBytes() override;
  std::shared_ptr<const void> Hold(const Image& image) override;
  Result<Pruned> Prune(const PruneRequest& request) override;
  // store_seal.cc
  Result<Image> Seal(const SealRequest& request, const ProgressFn& progress) override;

 private:
  struct Entry {
    Image image;
    std::string config_digest;
  };
  // Layers that an import under way counts on: nobody removes them.
  class Pins {
   public:
    Pins(StoreImpl& store, std::vector<std::string> diff_ids);
    Pins(const Pins&) = delete;
    Pins& operator=(const Pins&) = delete;
    ~Pins();

   private:
    StoreImpl& store_;
    std::vector<std::string> diff_ids_;
  };

  enum class Known { kVerify, kSkip };  // layers that the store has
  struct ImportRun {
    std::string name;  // normal; empty: the source's own
    Known known;
    unsigned seconds;  // for all layers
  };
  // Leaves nothing behind when it fails.
  Result<Image> ImportSource(const ImportRun& run, ImageSource source, LayerInputs& inputs,
                             const ProgressFn& progress);
  Result<Image> ImportLayers(const ImportRun& run, ImageSource source, LayerInputs& inputs,
                             const ProgressFn& progress);
  Result<Image> SealLayer(const SealRequest& request, const ProgressFn& progress);
  // What no image has and nobody holds, off the disk.
  void Sweep();
  // These with mutex_ held.
  Result<Image> Find(const std::string& reference) const;
  // The only image of that name, first of its names; nothing changes when the index cannot be
  // written.
  Result<Image> PutEntry(Entry entry, const std::string& name);
  Result<Image> Commit(const ImageSource& source, const std::string& reference,
                       std::vector<LayerJob>* jobs);
  // The second half of it; an empty name is none.
  Result<Image> Place(const ImageSource& source, const std::string& name,
                      std::vector<LayerJob>* jobs);
  Result<Entry> ReadEntry(const std::string& manifest_digest, const std::string& config_digest);
  // kLimit when Load would not read it.
  Status SaveIndex() const;
  // Renames away every layer and document that no image has and no import is about; the caller
  // removes *doomed, without the mutex. Returns what went.
  Removed CollectGarbage(std::vector<std::string>* doomed);

  // store_keeping.cc, with mutex_ held.
  void ChooseForPrune(const PruneRequest& request, Pruned* pruned) const;
  void PlanGarbage(Pruned* pruned) const;
  void PruneDownloads(const PruneRequest& request, Pruned* pruned) const;

  std::string LayerPath(const std::string& diff_id) const;
  std::string BlobPath(const std::string& digest) const;

  const std::string images_dir_, layers_dir_, downloads_dir_, default_registry_;
  std::mutex mutex_;
  std::map<std::string, Entry> images_;  // by manifest digest
  std::multiset<std::string> pinned_;    // diffIDs
  std::vector<std::string> damaged_;
  std::map<std::string, uint64_t> layer_bytes_;  // of layers that LayerBytes() read
};

// Everything of the layers in one go to the disk, before any of them gets its name.
Status SyncLayers(const std::vector<LayerJob>& jobs);

// kLimit.
Error TooManyNames(const Image& image);

}  // namespace hutch::rootfs
