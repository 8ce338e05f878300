// Import: files -> verified documents -> layers unpacked by the confined helper -> index.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/text.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/registry/limits.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

constexpr char kUnnamed[] = "imported:latest";

bool IsPlanned(const std::vector<LayerJob>& jobs, const std::string& diff_id) {
  return std::any_of(jobs.begin(), jobs.end(), [&](const LayerJob& job) {
    return job.mode == UnpackMode::kLayer && job.layer.diff_id == diff_id;
  });
}

}  // namespace

Status SyncLayers(const std::vector<LayerJob>& jobs) {
  for (const LayerJob& job : jobs) {
    if (!job.directory) continue;
    RETURN_IF_ERROR(WriteFileAtomic(job.directory->path() + "/size",
                                    std::to_string(job.report.disk_bytes) + "\n",
                                    Durability::kMemory));
  }
  for (const LayerJob& job : jobs) {
    if (!job.directory) continue;
    ASSIGN_OR_RETURN(const UniqueFd any, Open(job.directory->path(), O_RDONLY | O_DIRECTORY));
    return ::syncfs(any.get()) == 0 ? OkStatus() : SysError(errno, "syncfs");
  }
  return OkStatus();
}

StoreImpl::Pins::Pins(StoreImpl& store, std::vector<std::string> diff_ids)
    : store_(store), diff_ids_(std::move(diff_ids)) {
  const std::lock_guard lock(store_.mutex_);
  store_.pinned_.insert(diff_ids_.begin(), diff_ids_.end());
}

StoreImpl::Pins::~Pins() {
  const std::lock_guard lock(store_.mutex_);
  for (const std::string& diff_id : diff_ids_) store_.pinned_.erase(store_.pinned_.find(diff_id));
}

Result<Image> StoreImpl::Import(const std::string& path, const std::string& reference,
                                const ProgressFn& progress) {
  std::string name;
  if (!reference.empty()) {
    ASSIGN_OR_RETURN(name, NormalReference(reference));
  }
  if (progress) progress({"verify", "manifest", 0, 0});
  ASSIGN_OR_RETURN(const SourceFiles files, SourceFiles::Open(path, layers_dir_));
  ASSIGN_OR_RETURN(ImageSource source, ReadImageSource(files, name));
  FileInputs inputs(files);
  // What the store has is verified all the same: an import says that these bytes are right.
  return ImportSource({name, Known::kVerify, kUnpackSeconds}, std::move(source), inputs, progress);
}

Result<Image> StoreImpl::ImportFetched(ImageSource source, const std::string& reference,
                                       LayerInputs& inputs, const ProgressFn& progress) {
  ASSIGN_OR_RETURN(std::string name, NormalReference(reference));
  // There are no bytes to verify of a layer that is not fetched, and no need: its diffID, which the
  // verified configuration names, was computed when it was unpacked.
  return ImportSource({std::move(name), Known::kSkip, registry::kPullSeconds}, std::move(source),
                      inputs, progress);
}

bool StoreImpl::HasLayer(const std::string& diff_id) {
  return HexOf(diff_id).has_value() && PathExists(LayerPath(diff_id));
}

Result<Image> StoreImpl::ImportSource(const ImportRun& run, ImageSource source, LayerInputs& inputs,
                                      const ProgressFn& progress) {
  Result<Image> image = ImportLayers(run, std::move(source), inputs, progress);
  // Layers that were renamed before something else failed belong to no image.
  if (!image) Sweep();
  return image;
}

void StoreImpl::Sweep() {
  std::vector<std::string> doomed;
  {
    const std::lock_guard lock(mutex_);
    CollectGarbage(&doomed);
  }
  for (const std::string& away : doomed) IgnoreError(RemoveTree(away), "swept at the next start");
}

// A layer that stands in the image twice is unpacked once.
Result<Image> StoreImpl::ImportLayers(const ImportRun& run, ImageSource source, LayerInputs& inputs,
                                      const ProgressFn& progress) {
  const Pins pins(*this, source.parsed_config.diff_ids);
  std::vector<LayerJob> jobs;
  for (const LayerSource& layer : source.layers) {
    const bool here = HasLayer(layer.diff_id);
    if (run.known == Known::kSkip && here && progress)
      progress({"exists", layer.digest, layer.size, layer.size});
    const bool known = here || IsPlanned(jobs, layer.diff_id);
    if (run.known == Known::kSkip && known) continue;
    jobs.push_back({layer, known ? UnpackMode::kVerify : UnpackMode::kLayer, {}, {}});
  }
  const std::string subject =
      source.manifest_digest.empty() ? source.config_digest : source.manifest_digest;
  RETURN_IF_ERROR(RunLayerJobs({layers_dir_, subject, progress, run.seconds}, inputs, &jobs));
  RETURN_IF_ERROR(SyncLayers(jobs));
  if (source.manifest.empty()) {  // then nothing was skipped
    for (size_t i = 0; i < jobs.size(); ++i) source.layers[i] = jobs[i].layer;
    source.manifest = SyntheticManifest(source);
    source.manifest_digest = DigestOf(source.manifest);
  }
  const std::lock_guard lock(mutex_);
  return Commit(source, run.name, &jobs);
}

Result<Image> StoreImpl::Commit(const ImageSource& source, const std::string& reference,
                                std::vector<LayerJob>* jobs) {
  std::string name = reference;
  if (name.empty()) name = source.reference.empty() ? kUnnamed : source.reference;
  for (const auto& [digest, entry] : images_) {
    const auto& names = entry.image.references;
    // What an archive calls itself must not take a name that the operator gave to another image.
    if (reference.empty() && name != kUnnamed && digest != source.manifest_digest &&
        std::find(names.begin(), names.end(), name) != names.end())
      return Error{.code = Code::kExists,
                   .what = "the archive calls its image " + name + ", which is another image here",
                   .field = "reference",
                   .hint = "give the name it is to have"};
  }
  return Place(source, name, jobs);
}

Result<Image> StoreImpl::Place(const ImageSource& source, const std::string& name,
                               std::vector<LayerJob>* jobs) {
  for (LayerJob& job : *jobs)
    if (job.directory) RETURN_IF_ERROR(job.directory->RenameTo(LayerPath(job.layer.diff_id)));
  FaultPoint("layer renamed");
  RETURN_IF_ERROR(SyncPath(layers_dir_, O_DIRECTORY));
  RETURN_IF_ERROR(
      WriteFileAtomic(BlobPath(source.config_digest), source.config, Durability::kDisk));
  RETURN_IF_ERROR(
      WriteFileAtomic(BlobPath(source.manifest_digest), source.manifest, Durability::kDisk));
  FaultPoint("image blobs written");
  ASSIGN_OR_RETURN(Entry entry, ReadEntry(source.manifest_digest, source.config_digest));
  return PutEntry(std::move(entry), name);
}

Result<Image> StoreImpl::PutEntry(Entry entry, const std::string& name) {
  const std::map<std::string, Entry> before = images_;
  if (const auto it = images_.find(entry.image.id); it != images_.end())
    entry.image.references = it->second.image.references;
  // A name belongs to one image: it moves here, and an image may be left with its digest alone.
  for (auto& [digest, other] : images_) std::erase(other.image.references, name);
  std::erase(entry.image.references, name);
  if (!name.empty()) entry.image.references.insert(entry.image.references.begin(), name);
  images_[entry.image.id] = entry;
  const bool few = entry.image.references.size() <= kMaxImageNames;
  if (Status saved = few ? SaveIndex() : Status(TooManyNames(entry.image)); !saved) {
    images_ = before;
    return std::move(saved).error();
  }
  return entry.image;
}

Result<Image> Store::ImportFetched(ImageSource, const std::string&, LayerInputs&,
                                   const ProgressFn&) {
  return Error{.code = Code::kUnsupported, .what = "this store takes no images from registries"};
}

}  // namespace hutch::rootfs
