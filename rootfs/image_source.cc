#include "rootfs/image_source.h"

#include <algorithm>

#include "base/text.h"
#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/media_types.h"

namespace hutch::rootfs {
namespace {

#if defined(__x86_64__)
constexpr char kArchitecture[] = "amd64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "arm64";
#endif
constexpr char kOs[] = "linux";
constexpr char kRefName[] = "org.opencontainers.image.ref.name";
constexpr char kContainerdName[] = "io.containerd.image.name";
constexpr int kMaxIndexDepth = 4;
constexpr size_t kShownBytes = 100;  // of one word of an image's own in an error
constexpr size_t kShownEntries = 20;

Error Corrupt(const std::string& digest, const std::string& why) {
  return Error{.code = Code::kCorrupt, .what = digest + ": " + why};
}

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

Result<std::string> BlobPath(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::string hex, HexOf(digest));
  return "blobs/sha256/" + hex;
}

// A document by its descriptor: size and digest over exactly these bytes.
Result<std::string> ReadBlob(const SourceFiles& files, const oci::Descriptor& d) {
  ASSIGN_OR_RETURN(const std::string path, BlobPath(d.digest));
  auto bytes = files.ReadDocument(path);
  if (!bytes) {
    if (bytes.error().code != Code::kNotFound) return bytes;
    return Corrupt(d.digest, "the image does not contain it");
  }
  if (d.size != bytes->size())
    return Corrupt(
        d.digest, "has " + std::to_string(bytes->size()) + " bytes, not " + std::to_string(d.size));
  if (DigestOf(*bytes) != d.digest) return Corrupt(d.digest, "its bytes do not match");
  return bytes;
}

std::string Shown(const std::string& word) { return word.substr(0, kShownBytes); }

// Some of what there is to choose from, for an error.
std::string Listed(std::vector<std::string> words) {
  if (words.empty()) return "none";
  const size_t more = words.size() - std::min(words.size(), kShownEntries);
  words.resize(words.size() - more);
  return Join(words, ", ") + (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

// As annotated, normal; empty for none. A tag alone ("latest") says nothing.
std::string NameOf(const oci::Descriptor& d) {
  for (const char* key : {kContainerdName, kRefName}) {
    const auto it = d.annotations.find(key);
    if (it == d.annotations.end()) continue;
    const auto name = NormalReference(it->second);
    const bool tag_alone = it->second.find_first_of(":/") == std::string::npos && key == kRefName;
    if (name && !tag_alone) return *name;
  }
  return "";
}

std::string TagOf(const oci::Descriptor& d) {
  const auto it = d.annotations.find(kRefName);
  return it == d.annotations.end() ? "" : it->second;
}

bool IsForThisMachine(const std::string& os, const std::string& architecture) {
  return (architecture.empty() || architecture == kArchitecture) && (os.empty() || os == kOs);
}

// Those of the wanted name where there are any, else all.
std::vector<oci::Descriptor> Named(const oci::Index& index, const std::string& wanted) {
  if (wanted.empty()) return index.manifests;
  std::vector<oci::Descriptor> named;
  for (const oci::Descriptor& d : index.manifests)
    if (NameOf(d) == wanted || (!TagOf(d).empty() && wanted.ends_with(":" + TagOf(d))))
      named.push_back(d);
  return named.empty() ? index.manifests : named;
}

// One manifest of an index: the one for this machine.
Result<oci::Descriptor> Choose(const oci::Index& index, const std::string& wanted) {
  const std::vector<oci::Descriptor> candidates = Named(index, wanted);
  std::vector<oci::Descriptor> fit;
  std::vector<std::string> all;
  for (const oci::Descriptor& d : candidates) {
    const std::string platform =
        d.architecture.empty() ? "unnamed" : Shown(d.os) + "/" + Shown(d.architecture);
    const std::string name = Shown(NameOf(d).empty() ? TagOf(d) : NameOf(d));
    all.push_back(name.empty() ? platform : name + " " + platform);
    if (IsForThisMachine(d.os, d.architecture)) fit.push_back(d);
  }
  if (fit.empty())
    return Error{.code = Code::kNotFound,
                 .what = std::string("no manifest for ") + kOs + "/" + kArchitecture +
                         " (there are: " + Listed(std::move(all)) + ")"};
  const bool one = std::all_of(fit.begin(), fit.end(), [&](const oci::Descriptor& d) {
    return d.digest == fit[0].digest || !d.architecture.empty();
  });
  if (!one)
    return Error{.code = Code::kInvalidArgument,
                 .what = "several images: " + Listed(std::move(all)),
                 .field = "reference",
                 .hint = "give the name of one of them"};
  return fit[0];
}

Status CheckImage(const ImageSource& source) {
  const oci::ImageConfig& config = source.parsed_config;
  if (source.layers.empty()) return Invalid("an image without layers");
  if (source.layers.size() != config.diff_ids.size())
    return Corrupt(source.config_digest, "lists " + std::to_string(config.diff_ids.size()) +
                                             " layers, the manifest " +
                                             std::to_string(source.layers.size()));
  for (const std::string& diff_id : config.diff_ids) RETURN_IF_ERROR(HexOf(diff_id));
  if (IsForThisMachine(config.os, config.architecture)) return OkStatus();
  return Error{.code = Code::kUnsupported,
               .what = "the image is for " + Shown(config.os) + "/" + Shown(config.architecture) +
                       ", this machine is " + kOs + "/" + kArchitecture};
}

Status ReadLayers(const oci::Manifest& manifest, ImageSource* source) {
  const std::vector<std::string>& diff_ids = source->parsed_config.diff_ids;
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const oci::Descriptor& layer = manifest.layers[i];
    ASSIGN_OR_RETURN(std::string path, BlobPath(layer.digest));
    source->layers.push_back(
        {i < diff_ids.size() ? diff_ids[i] : "", layer.digest, layer.size, std::move(path)});
  }
  return CheckImage(*source);
}

struct ChosenManifest {
  oci::Descriptor descriptor;
  std::string name;  // as the outermost index calls it, normal; may be empty
};

Result<ChosenManifest> ChooseByName(std::string text, const std::string& reference,
                                    const DocumentReader& read) {
  ChosenManifest chosen;
  for (int depth = 0;; ++depth) {
    if (depth == kMaxIndexDepth) return Invalid("indexes nested too deep");
    ASSIGN_OR_RETURN(const oci::Index index, oci::ParseIndex(text));
    ASSIGN_OR_RETURN(chosen.descriptor, Choose(index, depth == 0 ? reference : ""));
    if (chosen.name.empty()) chosen.name = NameOf(chosen.descriptor);
    if (!IsIndexType(chosen.descriptor.media_type)) return chosen;
    ASSIGN_OR_RETURN(text, read(chosen.descriptor, DocumentKind::kManifest));
  }
}

Result<ImageSource> ReadLayout(const SourceFiles& files, std::string text,
                               const std::string& reference) {
  const DocumentReader read = [&files](const oci::Descriptor& d, DocumentKind) {
    return ReadBlob(files, d);
  };
  ASSIGN_OR_RETURN(const ChosenManifest chosen, ChooseByName(std::move(text), reference, read));
  ASSIGN_OR_RETURN(std::string manifest, read(chosen.descriptor, DocumentKind::kManifest));
  ASSIGN_OR_RETURN(ImageSource source, ReadManifest(chosen.descriptor, std::move(manifest), read));
  source.reference = chosen.name;
  return source;
}

struct DockerImage {
  std::string config_file;
  std::vector<std::string> tags, layer_files;
};

// manifest.json: [{"Config": file, "RepoTags": [..], "Layers": [files]}]
Result<DockerImage> ParseDockerManifest(const std::string& text, const std::string& reference) {
  ASSIGN_OR_RETURN(const oci::Json json,
                   oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes, .max_depth = 16}));
  if (!json.is_array() || json.empty()) return Invalid("manifest.json lists no image");
  std::vector<std::string> all;
  for (size_t i = 0; i < json.size(); ++i) {
    DockerImage image;
    RETURN_IF_ERROR(oci::ObjectReader(json[i], "[" + std::to_string(i) + "]")
                        .String("Config", &image.config_file, 4096)
                        .Strings("RepoTags", &image.tags)
                        .Strings("Layers", &image.layer_files, 256)
                        .Done(oci::ObjectReader::Unknown::kIgnore));
    const bool named =
        std::find(image.tags.begin(), image.tags.end(), reference) != image.tags.end();
    if (json.size() == 1 || named) return image;
    for (const std::string& tag : image.tags) all.push_back(Shown(tag));
  }
  return Error{.code = Code::kInvalidArgument,
               .what = "several images: " + Listed(std::move(all)),
               .field = "reference",
               .hint = "give the name of one of them"};
}

// Its own name is the only digest a docker-archive gives for a configuration.
Status CheckConfigName(const std::string& file, const std::string& digest) {
  constexpr size_t kHexDigits = 64;
  std::string name = file.substr(file.rfind('/') + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  const bool says = name.size() == kHexDigits && oci::ValidateDigest("sha256:" + name).has_value();
  return !says || "sha256:" + name == digest ? OkStatus()
                                             : Corrupt("sha256:" + name, "its bytes do not match");
}

Result<ImageSource> ReadDockerArchive(const SourceFiles& files, const std::string& text,
                                      const std::string& reference) {
  ASSIGN_OR_RETURN(const DockerImage image, ParseDockerManifest(text, reference));
  ImageSource source;
  if (!image.tags.empty()) {
    const auto name = NormalReference(image.tags[0]);
    if (name) source.reference = *name;
  }
  ASSIGN_OR_RETURN(source.config, files.ReadDocument(image.config_file));
  source.config_digest = DigestOf(source.config);
  RETURN_IF_ERROR(CheckConfigName(image.config_file, source.config_digest));
  ASSIGN_OR_RETURN(source.parsed_config, oci::ParseImageConfig(source.config));
  const std::vector<std::string>& diff_ids = source.parsed_config.diff_ids;
  for (size_t i = 0; i < image.layer_files.size(); ++i)
    source.layers.push_back({i < diff_ids.size() ? diff_ids[i] : "", "", 0, image.layer_files[i]});
  RETURN_IF_ERROR(CheckImage(source));
  return source;
}

}  // namespace

bool IsIndexType(const std::string& media_type) {
  return media_type.ends_with(".image.index.v1+json") ||
         media_type.ends_with(".manifest.list.v2+json");
}

Result<oci::Descriptor> ChooseManifest(std::string index, const std::string& reference,
                                       const DocumentReader& read) {
  ASSIGN_OR_RETURN(ChosenManifest chosen, ChooseByName(std::move(index), reference, read));
  return std::move(chosen.descriptor);
}

Result<ImageSource> ReadManifest(const oci::Descriptor& descriptor, std::string manifest,
                                 const DocumentReader& read) {
  ImageSource source;
  ASSIGN_OR_RETURN(const oci::Manifest parsed, oci::ParseManifest(manifest));
  RETURN_IF_ERROR(CheckMediaTypes(parsed));
  if (!parsed.media_type.empty() && !descriptor.media_type.empty() &&
      parsed.media_type != descriptor.media_type)
    return Invalid(descriptor.digest + ": calls itself " + Shown(parsed.media_type) +
                   ", its descriptor says " + Shown(descriptor.media_type));
  source.manifest = std::move(manifest);
  source.manifest_digest = descriptor.digest;
  source.config_digest = parsed.config.digest;
  ASSIGN_OR_RETURN(source.config, read(parsed.config, DocumentKind::kConfig));
  ASSIGN_OR_RETURN(source.parsed_config, oci::ParseImageConfig(source.config));
  RETURN_IF_ERROR(ReadLayers(parsed, &source));
  return source;
}

Result<ImageSource> ReadImageSource(const SourceFiles& files, const std::string& reference) {
  // An archive of docker's may hold both: the OCI layout says more.
  auto index = files.ReadDocument("index.json");
  if (index) return ReadLayout(files, *std::move(index), reference);
  if (index.error().code != Code::kNotFound) return std::move(index).error();
  const auto docker = files.ReadDocument("manifest.json");
  if (docker) return ReadDockerArchive(files, *docker, reference);
  if (docker.error().code != Code::kNotFound) return docker.error();
  return Error{
      .code = Code::kNotFound,
      .what = "neither index.json (OCI layout) nor manifest.json (docker-archive) is there",
      .field = "path"};
}

std::string ManifestOf(const ImageSource& source, oci::Json layers) {
  return oci::PrintJson({{"schemaVersion", 2},
                         {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                         {"config",
                          {{"mediaType", "application/vnd.oci.image.config.v1+json"},
                           {"digest", source.config_digest},
                           {"size", source.config.size()}}},
                         {"layers", std::move(layers)}});
}

std::string SyntheticManifest(const ImageSource& source) {
  oci::Json layers = oci::Json::array();
  for (const LayerSource& layer : source.layers)
    layers.push_back({{"mediaType", "application/vnd.oci.image.layer.v1.tar"},
                      {"digest", layer.digest},
                      {"size", layer.size}});
  return ManifestOf(source, std::move(layers));
}

Result<std::string> NormalReference(const std::string& text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto good = [&](char c) {
    return alphanumeric(c) || std::string_view("._-/:").find(c) != std::string_view::npos;
  };
  const size_t at = text.find('@');
  const std::string plain = text.substr(0, at);
  const std::string digest = at == std::string::npos ? "" : text.substr(at + 1);
  const size_t colon = plain.rfind(':'), slash = plain.rfind('/');
  const bool tagged = colon != std::string::npos && (slash == std::string::npos || colon > slash);
  // Judged with its tag: a name that is given out must be one that is taken again.
  const std::string name = tagged || at != std::string::npos ? plain : plain + ":latest";
  if (plain.empty() || name.size() > kMaxReferenceBytes || !alphanumeric(plain.front()) ||
      plain.back() == '/' || plain.back() == ':' || !std::all_of(name.begin(), name.end(), good) ||
      name.find("..") != std::string::npos || name.find("//") != std::string::npos ||
      name.starts_with("sha256:") || (at != std::string::npos && !HexOf(digest).has_value()))
    return Error{.code = Code::kInvalidArgument,
                 .what = "not an image name: \"" + text.substr(0, 80) + "\"",
                 .field = "reference"};
  return at == std::string::npos ? name : name + "@" + digest;
}

}  // namespace hutch::rootfs
