#include "rootfs/image_archive.h"

#include <algorithm>

#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/layer_tar.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

using oci::Json;

constexpr char kManifestType[] = "application/vnd.oci.image.manifest.v1+json";
constexpr char kConfigType[] = "application/vnd.oci.image.config.v1+json";
constexpr char kLayerType[] = "application/vnd.oci.image.layer.v1.tar";
constexpr uint64_t kEndBytes = 1024;

std::string HexPart(const std::string& digest) { return digest.substr(digest.find(':') + 1); }
std::string BlobName(const std::string& digest) { return "blobs/sha256/" + HexPart(digest); }

Json DescriptorOf(const char* type, const std::string& digest, uint64_t size) {
  return {{"mediaType", type}, {"digest", digest}, {"size", size}};
}

}  // namespace

Result<ImageArchive> ImageArchive::Plan(Store& store, const Image& image, ArchiveFormat format,
                                        const std::string& name,
                                        const std::atomic<bool>& cancelled) {
  ImageArchive archive(store, store.Hold(image));
  ASSIGN_OR_RETURN(const std::string text, store.ConfigText(image.id));
  RETURN_IF_ERROR(archive.ReadLayers(image, cancelled));
  ASSIGN_OR_RETURN(const std::string config, archive.NewConfig(text));
  if (format == ArchiveFormat::kOci)
    archive.AddOciMembers(config, name);
  else
    archive.AddDockerMembers(config, name);
  archive.size_bytes_ = kEndBytes;
  for (const Member& member : archive.members_)
    archive.size_bytes_ +=
        PlainEntryBytes(member.layer != nullptr ? member.layer->size : member.bytes.size());
  return archive;
}

Status ImageArchive::ReadLayers(const Image& image, const std::atomic<bool>& cancelled) {
  order_ = image.config.diff_ids;
  for (const std::string& diff_id : image.diff_ids) {
    ASSIGN_OR_RETURN(const UniqueFd fd, store_->OpenLayer(diff_id));
    Layer layer{.diff_id = diff_id, .digest = {}};
    Sha256 hash;
    RETURN_IF_ERROR(WriteLayerTar(fd.get(), [&](std::string_view bytes) -> Status {
      if (cancelled.load()) return Error{.code = Code::kUnavailable, .what = "nobody waits for it"};
      hash.Add(bytes.data(), bytes.size());
      layer.size += bytes.size();
      return OkStatus();
    }));
    layer.digest = hash.Digest();
    layers_.push_back(std::move(layer));
  }
  return OkStatus();
}

// As it was but for the layers' digests.
Result<std::string> ImageArchive::NewConfig(const std::string& text) const {
  ASSIGN_OR_RETURN(Json config, oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes}));
  Json diff_ids = Json::array();
  for (const std::string& diff_id : order_)
    for (const Layer& layer : layers_)
      if (layer.diff_id == diff_id) diff_ids.push_back(layer.digest);
  config["rootfs"] = {{"type", "layers"}, {"diff_ids", std::move(diff_ids)}};
  return oci::PrintJson(config);
}

void ImageArchive::AddOciMembers(const std::string& config, const std::string& name) {
  Json layers = Json::array();
  for (const std::string& diff_id : order_)
    for (const Layer& layer : layers_)
      if (layer.diff_id == diff_id)
        layers.push_back(DescriptorOf(kLayerType, layer.digest, layer.size));
  const std::string config_digest = DigestOf(config);
  const std::string manifest =
      oci::PrintJson({{"schemaVersion", 2},
                      {"mediaType", kManifestType},
                      {"config", DescriptorOf(kConfigType, config_digest, config.size())},
                      {"layers", std::move(layers)}});
  const std::string manifest_digest = DigestOf(manifest);
  Json descriptor = DescriptorOf(kManifestType, manifest_digest, manifest.size());
  if (!name.empty()) descriptor["annotations"] = {{"org.opencontainers.image.ref.name", name}};
  const std::string index =
      oci::PrintJson({{"schemaVersion", 2}, {"manifests", Json::array({std::move(descriptor)})}});
  members_.push_back({"oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}"});
  members_.push_back({"index.json", index});
  members_.push_back({BlobName(manifest_digest), manifest});
  members_.push_back({BlobName(config_digest), config});
  std::vector<std::string> written;  // two layers of the same files are one blob
  for (const Layer& layer : layers_) {
    if (std::find(written.begin(), written.end(), layer.digest) != written.end()) continue;
    written.push_back(layer.digest);
    members_.push_back({BlobName(layer.digest), {}, &layer});
  }
}

void ImageArchive::AddDockerMembers(const std::string& config, const std::string& name) {
  const std::string config_name = HexPart(DigestOf(config)) + ".json";
  Json names = Json::array(), files = Json::array();
  if (!name.empty()) names.push_back(name);
  for (const std::string& diff_id : order_)
    for (const Layer& layer : layers_)
      if (layer.diff_id == diff_id) files.push_back(HexPart(layer.digest) + ".tar");
  const std::string manifest = oci::PrintJson(Json::array(
      {{{"Config", config_name}, {"RepoTags", std::move(names)}, {"Layers", std::move(files)}}}));
  members_.push_back({"manifest.json", manifest});
  members_.push_back({config_name, config});
  std::vector<std::string> written;
  for (const Layer& layer : layers_) {
    if (std::find(written.begin(), written.end(), layer.digest) != written.end()) continue;
    written.push_back(layer.digest);
    members_.push_back({HexPart(layer.digest) + ".tar", {}, &layer});
  }
}

Status ImageArchive::WriteLayer(TarStream& tar, const Layer& layer) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, store_->OpenLayer(layer.diff_id));
  const Error changed{.code = Code::kCorrupt,
                      .what = "layer " + layer.diff_id + " changed while it was written"};
  Sha256 hash;
  uint64_t size = 0;
  RETURN_IF_ERROR(WriteLayerTar(fd.get(), [&](std::string_view bytes) -> Status {
    size += bytes.size();
    if (size > layer.size) return changed;
    hash.Add(bytes.data(), bytes.size());
    return tar.Data(bytes);
  }));
  return size == layer.size && hash.Digest() == layer.digest ? OkStatus() : changed;
}

Status ImageArchive::Write(const ByteSink& sink) const {
  TarStream tar(sink);
  for (const Member& member : members_) {
    const uint64_t size = member.layer != nullptr ? member.layer->size : member.bytes.size();
    RETURN_IF_ERROR(tar.Begin(TarHeader{.path = member.path, .size = size}));
    if (member.layer == nullptr)
      RETURN_IF_ERROR(tar.Data(member.bytes));
    else
      RETURN_IF_ERROR(WriteLayer(tar, *member.layer));
    RETURN_IF_ERROR(tar.Pad());
  }
  return tar.End();
}

}  // namespace hutch::rootfs
