// Names, uses and removal of what is in the store.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

constexpr std::string_view kPartSuffix = ".part";

Error Missing(const char* what) {
  return Error{.code = Code::kUnsupported, .what = std::string("this store cannot ") + what};
}

bool Contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// A part that is neither held by a download (flock) nor was written to for long.
bool IsAbandoned(int fd, const struct stat& st) {
  const bool old = ::time(nullptr) - st.st_mtim.tv_sec >= static_cast<time_t>(kOldDownloadSeconds);
  if (!S_ISREG(st.st_mode) || !old || ::flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
  // Else another file has its name by now.
  struct stat now {};
  return ::fstat(fd, &now) == 0 && now.st_nlink != 0;
}

}  // namespace

// What a store need not have.
Result<Image> Store::Load(int, const std::string&, const ProgressFn&) { return Missing("load"); }
Result<Image> Store::Tag(const std::string&, const std::string&) { return Missing("tag"); }
Result<std::string> Store::ConfigText(const std::string&) { return Missing("show configurations"); }
std::map<std::string, uint64_t> Store::LayerBytes() { return {}; }
std::shared_ptr<const void> Store::Hold(const Image&) { return nullptr; }
Result<Store::Pruned> Store::Prune(const PruneRequest&) { return Missing("prune"); }

Result<Image> StoreImpl::Load(int fd, const std::string& reference, const ProgressFn& progress) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return SysError(errno, "stat the archive");
  if (static_cast<uint64_t>(st.st_size) > kMaxArchiveBytes)
    return Error{.code = Code::kTooLarge,
                 .what = "an archive of more than " + FormatSize(kMaxArchiveBytes)};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  auto image = Import(path, reference, progress);
  if (image) return image;
  Error error = std::move(image).error();
  if (error.what.starts_with(path)) error.what.replace(0, path.size(), "the archive");
  if (error.field == "path") error.field.clear();
  return error;
}

Error TooManyNames(const Image& image) {
  return Error{.code = Code::kLimit,
               .what = "image " + image.id + " has " + std::to_string(kMaxImageNames) +
                       " names, no more are kept",
               .field = "reference"};
}

Result<Image> StoreImpl::Tag(const std::string& reference, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string normal, NormalReference(name));
  ASSIGN_OR_RETURN(const Image image, Resolve(reference));
  const std::lock_guard lock(mutex_);
  const auto it = images_.find(image.id);
  if (it == images_.end())
    return Error{.code = Code::kNotFound, .what = "image " + reference + " was just removed"};
  std::map<std::string, std::vector<std::string>> before;
  for (auto& [digest, entry] : images_) {
    if (!Contains(entry.image.references, normal)) continue;
    if (digest == image.id) return entry.image;  // it has the name already
    before[digest] = entry.image.references;
  }
  if (it->second.image.references.size() >= kMaxImageNames) return TooManyNames(image);
  for (auto& [digest, references] : before) std::erase(images_[digest].image.references, normal);
  before[image.id] = it->second.image.references;
  it->second.image.references.push_back(normal);
  if (Status saved = SaveIndex(); !saved) {
    for (auto& [digest, references] : before) images_[digest].image.references = references;
    return std::move(saved).error();
  }
  return it->second.image;
}

Result<std::string> StoreImpl::ConfigText(const std::string& image_id) {
  std::string digest;
  {
    const std::lock_guard lock(mutex_);
    const auto it = images_.find(image_id);
    if (it == images_.end()) return Error{.code = Code::kNotFound, .what = "no image " + image_id};
    digest = it->second.config_digest;
  }
  ASSIGN_OR_RETURN(std::string text, ReadFile(BlobPath(digest), kMaxDocumentBytes));
  if (DigestOf(text) == digest) return text;
  return Error{.code = Code::kCorrupt, .what = BlobPath(digest) + " was changed"};
}

std::map<std::string, uint64_t> StoreImpl::LayerBytes() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> bytes;
  for (const auto& [digest, entry] : images_)
    for (const std::string& diff_id : entry.image.diff_ids) {
      const auto known = layer_bytes_.find(diff_id);
      bytes[diff_id] = known != layer_bytes_.end() ? known->second : LayerSize(LayerPath(diff_id));
    }
  layer_bytes_ = bytes;  // they never change: each is read once
  return bytes;
}

std::shared_ptr<const void> StoreImpl::Hold(const Image& image) {
  return {new Pins(*this, image.diff_ids), [this](const Pins* pins) {
            delete pins;
            Sweep();  // the image may have been removed meanwhile
          }};
}

void StoreImpl::ChooseForPrune(const PruneRequest& request, Pruned* pruned) const {
  for (const auto& [digest, entry] : images_) {
    if (request.which == PruneRequest::Which::kUnnamed && !entry.image.references.empty()) continue;
    if (Contains(request.in_use, digest))
      pruned->kept.push_back(entry.image);
    else if (Contains(request.only, digest))
      pruned->images.push_back(entry.image);
  }
}

// What CollectGarbage would take if the chosen images were gone.
void StoreImpl::PlanGarbage(Pruned* pruned) const {
  std::set<std::string> needed(pinned_.begin(), pinned_.end());
  std::set<std::string> going;
  for (const Image& image : pruned->images) going.insert(image.id);
  for (const auto& [digest, entry] : images_)
    if (!going.contains(digest))
      needed.insert(entry.image.diff_ids.begin(), entry.image.diff_ids.end());
  const auto names = ListDirectory(layers_dir_);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (name.starts_with(kTemporaryPrefix) || needed.contains("sha256:" + name)) continue;
    pruned->layers.push_back("sha256:" + name);
    pruned->freed_bytes += LayerSize(layers_dir_ + "/" + name);
  }
}

void StoreImpl::PruneDownloads(const PruneRequest& request, Pruned* pruned) const {
  const std::string& directory = downloads_dir_;
  if (!PathExists(directory)) return;
  const auto names = ListDirectory(directory);
  if (!names) return pruned->failed.push_back(names.error().what);
  for (const std::string& name : *names) {
    if (!name.ends_with(kPartSuffix)) continue;
    const std::string path = directory + "/" + name;
    const auto fd = hutch::Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    struct stat st {};
    if (!fd || ::fstat(fd->get(), &st) != 0 || !IsAbandoned(fd->get(), st)) continue;
    if (request.mode == PruneRequest::Mode::kRemove && ::unlink(path.c_str()) != 0) {
      pruned->failed.push_back(path + ": " + ErrnoName(errno));
      continue;
    }
    pruned->files.push_back(name);
    pruned->freed_bytes += static_cast<uint64_t>(st.st_blocks) * 512;
  }
}

Result<Store::Pruned> StoreImpl::Prune(const PruneRequest& request) {
  Pruned pruned;
  std::vector<std::string> doomed;
  {
    const std::lock_guard lock(mutex_);
    ChooseForPrune(request, &pruned);
    PruneDownloads(request, &pruned);
    if (request.mode == PruneRequest::Mode::kDryRun) {
      PlanGarbage(&pruned);
      return pruned;
    }
    const std::map<std::string, Entry> before = images_;
    for (const Image& image : pruned.images) images_.erase(image.id);
    // First, as in Remove: a crash leaves layers of no image, never an image without them.
    if (Status saved = SaveIndex(); !saved) {
      images_ = before;
      return std::move(saved).error();
    }
    Removed removed = CollectGarbage(&doomed);
    pruned.layers = std::move(removed.layers);
    pruned.freed_bytes += removed.freed_bytes;
  }
  for (const std::string& path : doomed)
    if (const Status gone = RemoveTree(path); !gone) pruned.failed.push_back(gone.error().what);
  return pruned;
}

}  // namespace hutch::rootfs
