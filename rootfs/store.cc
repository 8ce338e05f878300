#include "rootfs/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/reference.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

constexpr size_t kMinDigestPrefix = 6;

std::string HexPart(const std::string& digest) { return digest.substr(digest.find(':') + 1); }

bool Contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// One of a layer that stands in an image more than once is enough, and more than overlayfs takes:
// the topmost, which repeats whatever the lower ones did.
std::vector<std::string> WithoutRepeats(const std::vector<std::string>& diff_ids) {
  std::vector<std::string> kept;
  for (auto it = diff_ids.rbegin(); it != diff_ids.rend(); ++it)
    if (!Contains(kept, *it)) kept.push_back(*it);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

uint64_t LayerSize(const std::string& layer_path) {
  constexpr size_t kMaxSizeFileBytes = 32;
  const auto text = ReadFile(layer_path + "/size", kMaxSizeFileBytes);
  const auto bytes = text ? ParseUint(Trim(*text)) : Result<uint64_t>(text.error());
  return bytes ? *bytes : 0;
}

StoreImpl::StoreImpl(const std::string& state_dir, std::string default_registry)
    : images_dir_(state_dir + "/images"),
      layers_dir_(state_dir + "/layers"),
      downloads_dir_(state_dir + "/downloads"),
      default_registry_(std::move(default_registry)) {}

std::string StoreImpl::LayerPath(const std::string& diff_id) const {
  return layers_dir_ + "/" + HexPart(diff_id);
}
std::string StoreImpl::BlobPath(const std::string& digest) const {
  return images_dir_ + "/blobs/sha256/" + HexPart(digest);
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& state_dir,
                                           const std::string& default_registry) {
  auto store = std::make_unique<StoreImpl>(state_dir, default_registry);
  RETURN_IF_ERROR(store->Load());
  return std::unique_ptr<Store>(std::move(store));
}

Status StoreImpl::Load() {
  for (const std::string& directory : {images_dir_, layers_dir_}) {
    RETURN_IF_ERROR(MakeDirectories(directory, 0700));
    if (::chmod(directory.c_str(), 0700) != 0) return SysError(errno, "chmod " + directory);
  }
  RETURN_IF_ERROR(MakeDirectories(images_dir_ + "/blobs/sha256", 0700));
  const std::string path = images_dir_ + "/index.json";
  if (PathExists(path)) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxDocumentBytes));
    ASSIGN_OR_RETURN(const oci::Json index,
                     oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes, .max_depth = 8}));
    oci::ObjectReader top(index, "");
    const oci::Json* images = top.Member("images");
    RETURN_IF_ERROR(top.Done(oci::ObjectReader::Unknown::kIgnore));
    if (images == nullptr || !images->is_object())
      return Error{.code = Code::kCorrupt, .what = path + " has no images"};
    for (const auto& [digest, value] : images->items()) {
      std::vector<std::string> references;
      std::string config;
      RETURN_IF_ERROR(oci::ObjectReader(value, digest)
                          .Strings("references", &references, kMaxImageNames)
                          .String("config", &config)
                          .Done(oci::ObjectReader::Unknown::kIgnore));
      auto entry = ReadEntry(digest, config);
      if (!entry) {
        damaged_.push_back(digest + ": " + entry.error().what);
        continue;
      }
      entry->image.references = std::move(references);
      images_[digest] = *std::move(entry);
    }
  }
  std::vector<std::string> doomed;
  CollectGarbage(&doomed);
  for (const std::string& directory : {images_dir_, layers_dir_}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
    for (const std::string& name : names)
      if (name.starts_with(kTemporaryPrefix))
        IgnoreError(RemoveTree(directory + "/" + name), "swept again at the next start");
  }
  return OkStatus();
}

Result<StoreImpl::Entry> StoreImpl::ReadEntry(const std::string& manifest_digest,
                                              const std::string& config_digest) {
  RETURN_IF_ERROR(HexOf(manifest_digest));
  RETURN_IF_ERROR(HexOf(config_digest));
  std::string config;
  for (const std::string& digest : {manifest_digest, config_digest}) {
    ASSIGN_OR_RETURN(config, ReadFile(BlobPath(digest), kMaxDocumentBytes));
    if (DigestOf(config) != digest)
      return Error{.code = Code::kCorrupt, .what = BlobPath(digest) + " was changed"};
  }
  Entry entry;
  entry.config_digest = config_digest;
  entry.image.id = manifest_digest;
  ASSIGN_OR_RETURN(entry.image.config, oci::ParseImageConfig(config));
  entry.image.diff_ids = WithoutRepeats(entry.image.config.diff_ids);
  entry.image.created = entry.image.config.created;
  for (const std::string& diff_id : entry.image.diff_ids) {
    if (!PathExists(LayerPath(diff_id) + "/fs"))
      return Error{.code = Code::kCorrupt, .what = "layer " + diff_id + " is missing"};
    entry.image.size_bytes += LayerSize(LayerPath(diff_id));
  }
  return entry;
}

Status StoreImpl::SaveIndex() const {
  oci::Json images = oci::Json::object();
  for (const auto& [digest, entry] : images_)
    images[digest] = {{"references", entry.image.references}, {"config", entry.config_digest}};
  const std::string text = oci::PrintJson({{"images", std::move(images)}});
  if (text.size() > kMaxDocumentBytes)
    return Error{.code = Code::kLimit,
                 .what = "an index of images of more than " + FormatSize(kMaxDocumentBytes),
                 .hint = "remove names or images: hutch image ls"};
  FaultPoint("index unwritten");
  RETURN_IF_ERROR(WriteFileAtomic(images_dir_ + "/index.json", text, Durability::kDisk));
  FaultPoint("index written");
  return OkStatus();
}

Store::Removed StoreImpl::CollectGarbage(std::vector<std::string>* doomed) {
  std::set<std::string> layers, blobs;  // their hex
  for (const std::string& diff_id : pinned_) layers.insert(HexPart(diff_id));
  for (const auto& [digest, entry] : images_) {
    blobs.insert({HexPart(digest), HexPart(entry.config_digest)});
    for (const std::string& diff_id : entry.image.diff_ids) layers.insert(HexPart(diff_id));
  }
  Removed removed;
  const auto layer_names = ListDirectory(layers_dir_);
  for (const std::string& name : layer_names ? *layer_names : std::vector<std::string>()) {
    if (name.starts_with(kTemporaryPrefix) || layers.contains(name)) continue;
    const std::string path = layers_dir_ + "/" + name;
    const std::string away = layers_dir_ + "/" + kTemporaryPrefix + RandomBase32(16);
    const uint64_t size = LayerSize(path);
    if (::rename(path.c_str(), away.c_str()) != 0) continue;  // collected the next time
    FaultPoint("garbage moved away");
    doomed->push_back(away);
    removed.layers.push_back("sha256:" + name);
    removed.freed_bytes += size;
  }
  const std::string blobs_dir = images_dir_ + "/blobs/sha256";
  const auto blob_names = ListDirectory(blobs_dir);
  for (const std::string& name : blob_names ? *blob_names : std::vector<std::string>())
    if (!blobs.contains(name))
      IgnoreError(RemoveTree(blobs_dir + "/" + name), "collected the next time");
  return removed;
}

Result<Image> StoreImpl::Resolve(const std::string& reference) {
  const std::lock_guard lock(mutex_);
  return Find(reference);
}

Result<Image> StoreImpl::Find(const std::string& reference) const {
  const std::string hex = reference.starts_with("sha256:") ? HexPart(reference) : reference;
  const auto named = NormalReference(reference);
  const auto canonical = ParseReference(reference, default_registry_);
  const Entry* found = nullptr;
  const Entry* pulled = nullptr;
  for (const auto& [digest, entry] : images_) {
    if (named && Contains(entry.image.references, *named)) return entry.image;
    if (canonical && Contains(entry.image.references, canonical->ToString())) pulled = &entry;
    if (hex.size() < kMinDigestPrefix || !HexPart(digest).starts_with(hex)) continue;
    if (found != nullptr)
      return Error{.code = Code::kInvalidArgument,
                   .what = "more than one image begins with " + reference,
                   .field = "image"};
    found = &entry;
  }
  if (pulled != nullptr) return pulled->image;
  if (found != nullptr) return found->image;
  return Error{.code = Code::kNotFound,
               .what = "no image \"" + reference + "\"",
               .field = "image",
               .hint = "see hutch image ls; hutch image build python makes one"};
}

std::vector<Image> StoreImpl::List() {
  const std::lock_guard lock(mutex_);
  std::vector<Image> images;
  for (const auto& [digest, entry] : images_) images.push_back(entry.image);
  return images;
}

Result<UniqueFd> StoreImpl::OpenLayer(const std::string& diff_id) {
  RETURN_IF_ERROR(HexOf(diff_id));
  return hutch::Open(LayerPath(diff_id) + "/fs", O_PATH | O_DIRECTORY | O_NOFOLLOW);
}

Result<Store::Removed> StoreImpl::Remove(const std::string& reference, const std::string& image_id,
                                         const std::vector<std::string>& in_use) {
  std::vector<std::string> doomed, names;
  Removed removed;
  {
    const std::lock_guard lock(mutex_);
    ASSIGN_OR_RETURN(const Image image, Find(reference));
    // The caller made sure of that one alone that no sandbox begins with it.
    if (image.id != image_id)
      return Error{.code = Code::kBadState,
                   .what = "image " + reference + " was just made another one",
                   .hint = "see hutch image ls, and try again"};
    if (Contains(in_use, image.id))
      return Error{.code = Code::kBadState,
                   .what = "image " + reference + " is used by a running sandbox",
                   .hint = "remove its sandboxes first: hutch ls"};
    const auto it = images_.find(image.id);
    const Entry before = it->second;
    const auto named = NormalReference(reference);
    const auto completed = ParseReference(reference, default_registry_);
    if (named && Contains(image.references, *named))
      names = {*named};
    else if (completed && Contains(image.references, completed->ToString()))
      names = {completed->ToString()};
    else
      names = image.references;
    std::erase_if(it->second.image.references,
                  [&](const std::string& name) { return Contains(names, name); });
    if (it->second.image.references.empty()) images_.erase(it);
    // First: a crash leaves layers of no image, never an image without them.
    if (Status saved = SaveIndex(); !saved) {
      images_[image.id] = before;
      return std::move(saved).error();
    }
    removed = CollectGarbage(&doomed);
  }
  removed.references = std::move(names);
  for (const std::string& path : doomed) IgnoreError(RemoveTree(path), "swept at the next start");
  return removed;
}

}  // namespace hutch::rootfs
