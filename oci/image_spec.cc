#include "oci/image_spec.h"

#include <algorithm>

#include "oci/json.h"

namespace hutch::oci {
namespace {

constexpr JsonLimits kDocumentLimits = {.max_bytes = 8u << 20, .max_depth = 32};
constexpr size_t kMaxLayers = 256;
constexpr uint64_t kMaxBlobBytes = 1ull << 40;

struct AlgorithmRow {
  std::string_view prefix;
  size_t hex_digits;
};
constexpr AlgorithmRow kAlgorithms[] = {{"sha256:", 64}, {"sha512:", 128}};

Error Invalid(std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what)};
}

Result<Descriptor> ParseDescriptor(const Json& json, const std::string& path) {
  Descriptor d;
  ObjectReader reader(json, path);
  reader.String("mediaType", &d.media_type)
      .String("digest", &d.digest, 256)
      .Uint("size", &d.size, 0, kMaxBlobBytes);
  reader.StringMap("annotations", &d.annotations);
  const Json* platform = reader.Member("platform");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (Status valid = ValidateDigest(d.digest); !valid)
    return Invalid(path + ".digest: " + valid.error().what);
  if (platform == nullptr) return d;
  ObjectReader inner(*platform, path + ".platform");
  inner.String("os", &d.os).String("architecture", &d.architecture).String("variant", &d.variant);
  RETURN_IF_ERROR(inner.Done(ObjectReader::Unknown::kIgnore));
  return d;
}

Result<std::vector<Descriptor>> ParseDescriptors(const Json* list, const std::string& path) {
  if (list == nullptr || !list->is_array()) return Invalid(path + " must be an array");
  if (list->size() > kMaxLayers)
    return Invalid(path + " has more than " + std::to_string(kMaxLayers) + " entries");
  std::vector<Descriptor> descriptors;
  for (size_t i = 0; i < list->size(); ++i) {
    ASSIGN_OR_RETURN(Descriptor d,
                     ParseDescriptor((*list)[i], path + "[" + std::to_string(i) + "]"));
    descriptors.push_back(std::move(d));
  }
  return descriptors;
}

// The same bytes must not be an index to one reader and a manifest to another.
Result<Json> ParseDocument(std::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text, kDocumentLimits));
  if (!json.is_object()) return Invalid("not a JSON object");
  if (json.contains("manifests") && (json.contains("layers") || json.contains("config")))
    return Invalid("a document with both \"manifests\" and \"layers\" or \"config\"");
  uint64_t version = 2;
  ObjectReader reader(json, "");
  RETURN_IF_ERROR(
      reader.Uint("schemaVersion", &version, 2, 2).Done(ObjectReader::Unknown::kIgnore));
  return json;
}

// {"8080/tcp": {}}: the keys are the list.
std::vector<std::string> KeysOf(const Json* object) {
  std::vector<std::string> keys;
  if (object != nullptr && object->is_object())
    for (const auto& [key, value] : object->items()) keys.push_back(key);
  return keys;
}

}  // namespace

Status ValidateDigest(std::string_view digest) {
  for (const AlgorithmRow& row : kAlgorithms) {
    if (!digest.starts_with(row.prefix)) continue;
    const std::string_view hex = digest.substr(row.prefix.size());
    if (hex.size() == row.hex_digits &&
        hex.find_first_not_of("0123456789abcdef") == std::string_view::npos)
      return OkStatus();
  }
  return Invalid("not a digest: \"" + std::string(digest.substr(0, 80)) + "\"");
}

Result<Manifest> ParseManifest(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseDocument(text));
  Manifest manifest;
  ObjectReader reader(json, "");
  reader.String("mediaType", &manifest.media_type);
  const Json* config = reader.Member("config");
  const Json* layers = reader.Member("layers");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (config == nullptr) return Invalid("a manifest without config");
  ASSIGN_OR_RETURN(manifest.config, ParseDescriptor(*config, "config"));
  ASSIGN_OR_RETURN(manifest.layers, ParseDescriptors(layers, "layers"));
  return manifest;
}

Result<Index> ParseIndex(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseDocument(text));
  Index index;
  ObjectReader reader(json, "");
  const Json* manifests = reader.Member("manifests");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  ASSIGN_OR_RETURN(index.manifests, ParseDescriptors(manifests, "manifests"));
  return index;
}

Result<ImageConfig> ParseImageConfig(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kDocumentLimits));
  ImageConfig c;
  ObjectReader reader(json, "");
  reader.String("created", &c.created).String("architecture", &c.architecture).String("os", &c.os);
  const Json* config = reader.Member("config");
  const Json* rootfs = reader.Member("rootfs");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kIgnore));
  if (rootfs == nullptr) return Invalid("an image configuration without rootfs");
  ObjectReader layers(*rootfs, "rootfs");
  RETURN_IF_ERROR(
      layers.Strings("diff_ids", &c.diff_ids, kMaxLayers).Done(ObjectReader::Unknown::kIgnore));
  for (const std::string& id : c.diff_ids) RETURN_IF_ERROR(ValidateDigest(id));
  if (config == nullptr) return c;
  ObjectReader inner(*config, "config");
  inner.Strings("Env", &c.env).Strings("Entrypoint", &c.entrypoint).Strings("Cmd", &c.cmd);
  inner.String("User", &c.user)
      .String("WorkingDir", &c.working_dir)
      .String("StopSignal", &c.stop_signal);
  inner.StringMap("Labels", &c.labels);
  c.exposed_ports = KeysOf(inner.Member("ExposedPorts"));
  c.volumes = KeysOf(inner.Member("Volumes"));
  RETURN_IF_ERROR(inner.Done(ObjectReader::Unknown::kIgnore));
  return c;
}

}  // namespace hutch::oci
