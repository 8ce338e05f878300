// Pull: reference -> documents -> layers, downloaded while others are unpacked -> the store's
// index.
#include <algorithm>

#include "base/file.h"
#include "rootfs/registry/documents.h"
#include "rootfs/registry/layer_downloads.h"
#include "rootfs/registry/limits.h"
#include "rootfs/registry/part_file.h"
#include "rootfs/registry/registry.h"
#include "rootfs/registry/session.h"

namespace hutch::rootfs {
namespace {

using registry::Document;
using registry::Session;

Status CheckSizes(const ImageSource& source) {
  uint64_t total = 0;
  for (const LayerSource& layer : source.layers) {
    total += std::min(layer.size, registry::kMaxDownloadBytes + 1);
    if (layer.size == 0)
      return Error{.code = Code::kInvalidArgument, .what = "layer " + layer.digest + " is empty"};
    if (total > registry::kMaxDownloadBytes)
      return Error{.code = Code::kTooLarge,
                   .what = "its layers have more than " +
                           std::to_string(registry::kMaxDownloadBytes) + " bytes"};
  }
  return OkStatus();
}

Result<Image> PullInto(Store& store, Session& session, const ProgressFn& progress) {
  const std::string name = session.reference().ToString();
  if (progress) progress({"resolve", name, 0, 0});
  const DocumentReader read = [&](const oci::Descriptor& descriptor, DocumentKind kind) {
    return registry::FetchDocument(session, descriptor, kind);
  };
  ASSIGN_OR_RETURN(Document document, registry::FetchNamed(session));
  const bool is_index = IsIndexType(document.descriptor.media_type);
  if (is_index) {
    ASSIGN_OR_RETURN(document.descriptor, ChooseManifest(std::move(document.text), "", read));
  }
  auto here = store.Tag(document.descriptor.digest, name);
  if (here || here.error().code != Code::kNotFound) return here;
  if (is_index) {
    ASSIGN_OR_RETURN(document.text, read(document.descriptor, DocumentKind::kManifest));
  }
  ASSIGN_OR_RETURN(ImageSource source,
                   ReadManifest(document.descriptor, std::move(document.text), read));
  RETURN_IF_ERROR(CheckSizes(source));
  registry::LayerDownloads downloads(session, store, progress);
  Result<Image> image = store.ImportFetched(std::move(source), name, downloads, progress);
  // On a full disk as well: it must not stay full until somebody comes back for them.
  if (image || image.error().code == Code::kNoSpace) downloads.RemoveParts();
  return image;
}

}  // namespace

Result<Image> Pull(Store& store, const RegistryOptions& options, const PullRequest& request,
                   const ProgressFn& progress, const std::atomic<bool>& cancelled) {
  const std::string directory = store.DownloadsDirectory();
  if (directory.empty())
    return Error{.code = Code::kUnsupported, .what = "this store takes no images from registries"};
  RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  IgnoreError(registry::SweepParts(directory, registry::kPartDays), "swept at the next pull");
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   Session::Make(options, request, cancelled));
  Result<Image> image = PullInto(store, *session, progress);
  if (image) return image;
  return session->WithoutSecrets(std::move(image).error());
}

}  // namespace hutch::rootfs
