#include "rootfs/image_source.h"

#include <fcntl.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

#if defined(__x86_64__)
constexpr char kArchitecture[] = "amd64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "arm64";
#endif
constexpr char kRefName[] = "org.opencontainers.image.ref.name";
constexpr char kContainerdName[] = "io.containerd.image.name";
constexpr int kMaxIndexDepth = 4;

Error Corrupt(const std::string& digest, const std::string& why) {
  return Error{.code = Code::kCorrupt, .what = digest + ": " + why};
}

Result<std::string> ReadSourceFile(int root_fd, const std::string& file) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenSourceFile(root_fd, file));
  auto bytes = ReadAll(fd.get(), kMaxDocumentBytes);
  if (bytes) return bytes;
  Error error = std::move(bytes).error();
  error.what = file + ": " + error.what;
  return error;
}

std::string BlobPath(const std::string& digest) {
  const size_t colon = digest.find(':');
  return "blobs/" + digest.substr(0, colon) + "/" + digest.substr(colon + 1);
}

// A document by its descriptor: size and digest over exactly these bytes.
Result<std::string> ReadBlob(int root_fd, const oci::Descriptor& d) {
  if (!d.digest.starts_with("sha256:"))
    return Error{.code = Code::kUnsupported,
                 .what = d.digest + ": only sha256 digests are supported"};
  auto bytes = ReadSourceFile(root_fd, BlobPath(d.digest));
  if (!bytes) {
    if (bytes.error().code == Code::kNotFound)
      return Corrupt(d.digest, "the image does not contain it");
    return bytes;
  }
  if (d.size != bytes->size())
    return Corrupt(
        d.digest, "has " + std::to_string(bytes->size()) + " bytes, not " + std::to_string(d.size));
  if (Sha256(*bytes) != d.digest) return Corrupt(d.digest, "its bytes do not match");
  return bytes;
}

bool IsIndexType(const std::string& type) {
  return type.ends_with(".image.index.v1+json") || type.ends_with(".manifest.list.v2+json");
}

std::string NameOf(const oci::Descriptor& d) {
  for (const char* key : {kContainerdName, kRefName})
    if (const auto it = d.annotations.find(key); it != d.annotations.end()) return it->second;
  return "";
}

// One manifest of an index: the only one, or the first for this machine.
Result<oci::Descriptor> Choose(const oci::Index& index) {
  if (index.manifests.size() == 1) return index.manifests[0];
  std::string platforms;
  for (const oci::Descriptor& d : index.manifests) {
    if (d.architecture == kArchitecture && (d.os.empty() || d.os == "linux")) return d;
    platforms += (platforms.empty() ? "" : ", ") +
                 (d.architecture.empty() ? "unnamed" : d.os + "/" + d.architecture);
  }
  return Error{.code = Code::kNotFound,
               .what = std::string("the image has no manifest for linux/") + kArchitecture +
                       " (it has: " + platforms + ")"};
}

Status CheckLayers(const ImageSource& source) {
  if (source.layers.empty())
    return Error{.code = Code::kInvalidArgument, .what = "an image without layers"};
  if (source.layers.size() != source.parsed_config.diff_ids.size())
    return Corrupt(source.config_digest, "lists another number of layers than the manifest");
  return OkStatus();
}

Result<ImageSource> ReadLayout(int root_fd) {
  ImageSource source;
  ASSIGN_OR_RETURN(std::string text, ReadSourceFile(root_fd, "index.json"));
  oci::Descriptor chosen;
  for (int depth = 0;; ++depth) {
    if (depth == kMaxIndexDepth)
      return Error{.code = Code::kInvalidArgument, .what = "indexes nested too deep"};
    ASSIGN_OR_RETURN(const oci::Index index, oci::ParseIndex(text));
    if (index.manifests.empty())
      return Error{.code = Code::kNotFound, .what = "index.json lists no image"};
    ASSIGN_OR_RETURN(chosen, Choose(index));
    if (source.reference.empty()) source.reference = NameOf(chosen);
    ASSIGN_OR_RETURN(text, ReadBlob(root_fd, chosen));
    if (!IsIndexType(chosen.media_type)) break;
  }
  ASSIGN_OR_RETURN(const oci::Manifest manifest, oci::ParseManifest(text));
  source.manifest = std::move(text);
  source.manifest_digest = chosen.digest;
  source.config_digest = manifest.config.digest;
  ASSIGN_OR_RETURN(source.config, ReadBlob(root_fd, manifest.config));
  ASSIGN_OR_RETURN(source.parsed_config, oci::ParseImageConfig(source.config));
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const oci::Descriptor& layer = manifest.layers[i];
    if (layer.media_type.find("nondistributable") != std::string::npos ||
        layer.media_type.find("foreign") != std::string::npos)
      return Error{.code = Code::kUnsupported,
                   .what = layer.digest + ": a layer that may not be distributed with its image"};
    const bool known = i < source.parsed_config.diff_ids.size();
    source.layers.push_back({known ? source.parsed_config.diff_ids[i] : "", layer.digest,
                             layer.size, BlobPath(layer.digest)});
  }
  RETURN_IF_ERROR(CheckLayers(source));
  return source;
}

// manifest.json: [{"Config": file, "RepoTags": [..], "Layers": [files]}]
Result<ImageSource> ReadDockerArchive(int root_fd) {
  ASSIGN_OR_RETURN(const std::string text, ReadSourceFile(root_fd, "manifest.json"));
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes, .max_depth = 16}));
  if (!json.is_array() || json.empty())
    return Error{.code = Code::kInvalidArgument, .what = "manifest.json lists no image"};
  std::string config_file;
  std::vector<std::string> tags, files;
  RETURN_IF_ERROR(oci::ObjectReader(json[0], "")
                      .String("Config", &config_file, 4096)
                      .Strings("RepoTags", &tags)
                      .Strings("Layers", &files, 256)
                      .Done(oci::ObjectReader::Unknown::kIgnore));
  ImageSource source;
  if (!tags.empty()) source.reference = tags[0];
  ASSIGN_OR_RETURN(source.config, ReadSourceFile(root_fd, config_file));
  source.config_digest = Sha256(source.config);
  ASSIGN_OR_RETURN(source.parsed_config, oci::ParseImageConfig(source.config));
  for (size_t i = 0; i < files.size(); ++i) {
    const bool known = i < source.parsed_config.diff_ids.size();
    source.layers.push_back({known ? source.parsed_config.diff_ids[i] : "", "", 0, files[i]});
  }
  RETURN_IF_ERROR(CheckLayers(source));
  return source;
}

}  // namespace

std::string Sha256(std::string_view bytes) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), out, &size, EVP_sha256(), nullptr) == 1);
  return "sha256:" + HexEncode({reinterpret_cast<const char*>(out), size});
}

Result<UniqueFd> OpenSourceFile(int root_fd, const std::string& file) {
  ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(root_fd, file, Links::kBeneath));
  return path.OpenRegularFile();
}

Result<ImageSource> ReadImageSource(int root_fd) {
  // An archive of docker's may hold both: the OCI layout says more.
  auto layout = ReadLayout(root_fd);
  if (layout || layout.error().code != Code::kNotFound || layout.error().sys == 0) return layout;
  auto docker = ReadDockerArchive(root_fd);
  if (docker || docker.error().sys == 0) return docker;
  return Error{
      .code = Code::kNotFound,
      .what = "neither index.json (OCI layout) nor manifest.json (docker-archive) is there"};
}

Result<std::string> NormalReference(const std::string& text) {
  constexpr size_t kMaxReferenceBytes = 255;
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/:").find(c) != std::string_view::npos;
  };
  const bool edges = !text.empty() && text.front() != '/' && text.front() != '.' &&
                     text.front() != '-' && text.front() != ':' && text.back() != '/' &&
                     text.back() != ':';
  if (!edges || text.size() > kMaxReferenceBytes || !std::all_of(text.begin(), text.end(), good) ||
      text.find("..") != std::string::npos || text.find("//") != std::string::npos ||
      text.starts_with("sha256:"))
    return Error{.code = Code::kInvalidArgument,
                 .what = "not an image name: \"" + text.substr(0, 80) + "\"",
                 .field = "reference"};
  const size_t colon = text.rfind(':'), slash = text.rfind('/');
  const bool tagged = colon != std::string::npos && (slash == std::string::npos || colon > slash);
  return tagged ? text : text + ":latest";
}

}  // namespace hutch::rootfs
