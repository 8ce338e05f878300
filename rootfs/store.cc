#include "rootfs/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/limits.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

constexpr char kTemporary[] = ".tmp-";
constexpr size_t kMinDigestPrefix = 6;

std::string HexOf(const std::string& digest) { return digest.substr(digest.find(':') + 1); }

}  // namespace

StoreImpl::StoreImpl(std::string state_dir)
    : images_dir_(state_dir + "/images"), layers_dir_(state_dir + "/layers") {}

std::string StoreImpl::LayerPath(const std::string& diff_id) const {
  return layers_dir_ + "/" + HexOf(diff_id);
}
std::string StoreImpl::BlobPath(const std::string& digest) const {
  return images_dir_ + "/blobs/sha256/" + HexOf(digest);
}

Result<std::unique_ptr<Store>> Store::Open(const std::string& state_dir) {
  auto store = std::make_unique<StoreImpl>(state_dir);
  RETURN_IF_ERROR(store->Load());
  return std::unique_ptr<Store>(std::move(store));
}

// What a crash left half-done.
void StoreImpl::Sweep() const {
  for (const std::string& directory : {images_dir_, layers_dir_}) {
    const auto names = ListDirectory(directory);
    if (!names) continue;
    for (const std::string& name : *names)
      if (name.starts_with(kTemporary))
        IgnoreError(RemoveTree(directory + "/" + name), "swept again at the next start");
  }
}

Status StoreImpl::Load() {
  RETURN_IF_ERROR(MakeDirectories(images_dir_ + "/blobs/sha256", 0700));
  RETURN_IF_ERROR(MakeDirectories(layers_dir_, 0700));
  Sweep();
  const std::string path = images_dir_ + "/index.json";
  if (!PathExists(path)) return OkStatus();
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
                        .Strings("references", &references)
                        .String("config", &config)
                        .Done(oci::ObjectReader::Unknown::kIgnore));
    RETURN_IF_ERROR(oci::ValidateDigest(digest));
    RETURN_IF_ERROR(oci::ValidateDigest(config));
    RETURN_IF_ERROR(LoadImage(digest, std::move(references), config));
  }
  return OkStatus();
}

Status StoreImpl::LoadImage(const std::string& manifest_digest, std::vector<std::string> references,
                            const std::string& config_digest) {
  ASSIGN_OR_RETURN(const std::string config, ReadFile(BlobPath(config_digest), kMaxDocumentBytes));
  if (Sha256(config) != config_digest)
    return Error{.code = Code::kCorrupt, .what = BlobPath(config_digest) + " was changed"};
  Entry entry;
  entry.config_digest = config_digest;
  entry.image.id = manifest_digest;
  entry.image.references = std::move(references);
  ASSIGN_OR_RETURN(entry.image.config, oci::ParseImageConfig(config));
  entry.image.diff_ids = entry.image.config.diff_ids;
  entry.image.created = entry.image.config.created;
  for (const std::string& diff_id : entry.image.diff_ids) {
    const auto size = ReadFile(LayerPath(diff_id) + "/size", 32);
    const auto bytes = size ? ParseUint(Trim(*size)) : Result<uint64_t>(size.error());
    if (bytes) entry.image.size_bytes += *bytes;
  }
  images_[manifest_digest] = std::move(entry);
  return OkStatus();
}

Status StoreImpl::SaveIndex() const {
  oci::Json images = oci::Json::object();
  for (const auto& [digest, entry] : images_)
    images[digest] = {{"references", entry.image.references}, {"config", entry.config_digest}};
  return WriteFileAtomic(images_dir_ + "/index.json", oci::PrintJson({{"images", images}}),
                         Durability::kDisk);
}

Status StoreImpl::WriteBlob(const std::string& digest, const std::string& bytes) const {
  return WriteFileAtomic(BlobPath(digest), bytes, Durability::kDisk);
}

Result<Image> StoreImpl::Resolve(const std::string& reference) {
  const std::lock_guard lock(mutex_);
  const bool is_digest = reference.starts_with("sha256:");
  const std::string hex = is_digest ? reference.substr(7) : reference;
  const auto named = NormalReference(reference);
  const Entry* found = nullptr;
  for (const auto& [digest, entry] : images_) {
    const auto& names = entry.image.references;
    if (named && std::find(names.begin(), names.end(), *named) != names.end()) return entry.image;
    if (hex.size() < kMinDigestPrefix || !HexOf(digest).starts_with(hex)) continue;
    if (found != nullptr)
      return Error{.code = Code::kInvalidArgument,
                   .what = "more than one image begins with " + reference,
                   .field = "image"};
    found = &entry;
  }
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
  RETURN_IF_ERROR(oci::ValidateDigest(diff_id));
  return hutch::Open(LayerPath(diff_id) + "/fs", O_PATH | O_DIRECTORY | O_NOFOLLOW);
}

Result<Store::Removed> StoreImpl::Remove(const std::string& reference,
                                         const std::vector<std::string>& in_use) {
  ASSIGN_OR_RETURN(const Image image, Resolve(reference));
  if (std::find(in_use.begin(), in_use.end(), image.id) != in_use.end())
    return Error{.code = Code::kBadState,
                 .what = "image " + reference + " is used by a running sandbox",
                 .hint = "remove its sandboxes first: hutch ls"};
  std::vector<std::string> doomed;  // renamed away under the lock, removed outside it
  Result<Removed> removed = Unregister(image, reference, &doomed);
  for (const std::string& path : doomed) IgnoreError(RemoveTree(path), "swept at the next start");
  return removed;
}

Result<Store::Removed> StoreImpl::Unregister(const Image& image, const std::string& reference,
                                             std::vector<std::string>* doomed) {
  const std::lock_guard lock(mutex_);
  Removed removed;
  Entry& entry = images_[image.id];
  const auto named = NormalReference(reference);
  auto& names = entry.image.references;
  const bool one_name = named && std::find(names.begin(), names.end(), *named) != names.end();
  removed.references = one_name ? std::vector<std::string>{*named} : names;
  std::erase_if(names, [&](const std::string& name) { return !one_name || name == *named; });
  if (!names.empty()) {
    RETURN_IF_ERROR(SaveIndex());
    return removed;
  }
  const std::string config = entry.config_digest;
  images_.erase(image.id);
  RETURN_IF_ERROR(SaveIndex());  // first: a crash leaves unused layers, never an image without them
  for (const std::string& diff_id : image.diff_ids) {
    const bool shared = unpacking_.contains(diff_id) ||
                        std::any_of(images_.begin(), images_.end(), [&](const auto& other) {
                          const auto& ids = other.second.image.diff_ids;
                          return std::find(ids.begin(), ids.end(), diff_id) != ids.end();
                        });
    if (shared) continue;
    const auto size = ReadFile(LayerPath(diff_id) + "/size", 32);
    const auto bytes = size ? ParseUint(Trim(*size)) : Result<uint64_t>(size.error());
    const std::string away = layers_dir_ + "/" + kTemporary + RandomBase32(12);
    if (::rename(LayerPath(diff_id).c_str(), away.c_str()) != 0)
      return SysError(errno, "rename " + LayerPath(diff_id));
    doomed->push_back(away);
    removed.layers.push_back(diff_id);
    removed.freed_bytes += bytes ? *bytes : 0;
  }
  for (const std::string& digest : {image.id, config})
    RETURN_IF_ERROR(RemoveTree(BlobPath(digest)));
  return removed;
}

}  // namespace hutch::rootfs
