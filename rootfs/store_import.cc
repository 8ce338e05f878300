// Import: source -> verified documents -> layers unpacked by the confined helper -> index.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/limits.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

constexpr char kTemporary[] = ".tmp-";
constexpr size_t kTemporaryCharacters = 12;

// A directory of ours that goes at the end of the scope unless it was renamed.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> Make(const std::string& parent) {
    TemporaryDirectory d;
    d.path_ = parent + "/" + kTemporary + RandomBase32(kTemporaryCharacters);
    RETURN_IF_ERROR(MakeDirectories(d.path_ + "/fs", 0700));
    return d;
  }
  TemporaryDirectory() = default;
  TemporaryDirectory(TemporaryDirectory&& o) noexcept : path_(std::exchange(o.path_, "")) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory() {
    if (!path_.empty())
      IgnoreError(RemoveTree(path_), "swept at the next start; already renamed is fine");
  }
  const std::string& path() const { return path_; }
  std::string fs() const { return path_ + "/fs"; }

 private:
  std::string path_;
};

// trusted.overlay.* needs privilege in the initial user namespace, which the unpacker has not.
Status MarkOpaque(int root_fd, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root_fd, path, Links::kNone));
    auto fd = place.Open(O_RDONLY | O_DIRECTORY);
    if (!fd) return std::move(fd).error();
    if (::fsetxattr(fd->get(), "trusted.overlay.opaque", "y", 1, 0) != 0)
      return SysError(errno, "mark opaque /" + path);
  }
  return OkStatus();
}

// A manifest for an image that came without one, so that it has an id; the same image gives the
// same bytes.
std::string SyntheticManifest(const ImageSource& source) {
  oci::Json layers = oci::Json::array();
  for (const LayerSource& layer : source.layers)
    layers.push_back({{"mediaType", "application/vnd.oci.image.layer.v1.tar"},
                      {"digest", layer.digest},
                      {"size", layer.size}});
  return oci::PrintJson({{"schemaVersion", 2},
                         {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                         {"config",
                          {{"mediaType", "application/vnd.oci.image.config.v1+json"},
                           {"digest", source.config_digest},
                           {"size", source.config.size()}}},
                         {"layers", layers}});
}

}  // namespace

Result<Image> StoreImpl::Import(const std::string& path, const std::string& reference,
                                const ProgressFn& progress) {
  std::string name;
  if (!reference.empty()) {
    ASSIGN_OR_RETURN(name, NormalReference(reference));
  }
  ASSIGN_OR_RETURN(const UniqueFd source, hutch::Open(path, O_RDONLY | O_NONBLOCK));
  struct stat st {};
  if (::fstat(source.get(), &st) != 0) return SysError(errno, "stat " + path);
  if (S_ISDIR(st.st_mode)) return ImportSource(source.get(), name, progress);
  if (S_ISREG(st.st_mode)) return ImportArchive(source.get(), name, progress);
  return Error{.code = Code::kInvalidArgument,
               .what = path + " is neither a directory nor a file",
               .field = "path"};
}

Result<Image> StoreImpl::ImportArchive(int file_fd, const std::string& reference,
                                       const ProgressFn& progress) {
  ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Make(images_dir_));
  if (progress) progress({"extract", "archive", 0, 0});
  ASSIGN_OR_RETURN(const UnpackReport report,
                   RunUnpack(UnpackMode::kArchive, file_fd, directory.fs()));
  ASSIGN_OR_RETURN(const UniqueFd root, hutch::Open(directory.fs(), O_RDONLY | O_DIRECTORY));
  return ImportSource(root.get(), reference, progress);
}

Result<Image> StoreImpl::ImportSource(int root_fd, const std::string& reference,
                                      const ProgressFn& progress) {
  if (progress) progress({"verify", "manifest", 0, 0});
  ASSIGN_OR_RETURN(ImageSource source, ReadImageSource(root_fd));
  for (size_t i = 0; i < source.layers.size(); ++i) {
    LayerSource& layer = source.layers[i];
    if (progress) progress({"unpack", layer.diff_id, i, source.layers.size()});
    ASSIGN_OR_RETURN(const LayerOutcome outcome, EnsureLayer(root_fd, layer));
    if (layer.digest.empty()) {
      layer.digest = layer.diff_id;  // docker-archive: what matters was verified as the diffID
      layer.size = outcome.packed_bytes;
    }
  }
  if (progress) progress({"unpack", "done", source.layers.size(), source.layers.size()});
  if (source.manifest.empty()) {
    for (LayerSource& layer : source.layers)
      layer.size = 0;  // unknown where the layer was there before
    source.manifest = SyntheticManifest(source);
    source.manifest_digest = Sha256(source.manifest);
  }
  std::string name = reference;
  if (name.empty()) {
    const auto inside = NormalReference(source.reference);
    name = inside ? *inside : "imported:latest";
  }
  return Register(source, name);
}

// One unpacks, whoever else wants the same layer waits for the outcome.
Result<StoreImpl::LayerOutcome> StoreImpl::EnsureLayer(int root_fd, const LayerSource& layer) {
  {
    std::unique_lock lock(mutex_);
    unpacked_.wait(lock, [&] { return !unpacking_.contains(layer.diff_id); });
    if (PathExists(LayerPath(layer.diff_id))) return LayerOutcome{};
    unpacking_.insert(layer.diff_id);
  }
  auto outcome = UnpackLayer(root_fd, layer);
  const std::lock_guard lock(mutex_);
  unpacking_.erase(layer.diff_id);
  unpacked_.notify_all();
  return outcome;
}

Result<StoreImpl::LayerOutcome> StoreImpl::UnpackLayer(int root_fd, const LayerSource& layer) {
  auto input = OpenSourceFile(root_fd, layer.file);
  const std::string shown = layer.digest.empty() ? layer.diff_id : layer.digest;
  if (!input)
    return Error{.code = Code::kCorrupt, .what = "layer " + shown + ": " + input.error().what};
  ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Make(layers_dir_));
  auto report = RunUnpack(UnpackMode::kLayer, input->get(), directory.fs());
  if (!report) {
    Error error = std::move(report).error();
    error.what = "layer " + shown + ": " + error.what;
    return error;
  }
  if (!layer.digest.empty() &&
      (report->digest != layer.digest || report->packed_bytes != layer.size))
    return Error{.code = Code::kCorrupt,
                 .what = "layer " + layer.digest + ": its bytes have digest " + report->digest};
  if (report->diff_id != layer.diff_id)
    return Error{
        .code = Code::kCorrupt,
        .what = "layer " + shown + ": unpacks to " + report->diff_id + ", not " + layer.diff_id};
  RETURN_IF_ERROR(FinishLayer(directory.path(), layer, *report));
  return LayerOutcome{report->digest, report->packed_bytes};
}

// On disk whole, then visible by its name.
Status StoreImpl::FinishLayer(const std::string& temporary, const LayerSource& layer,
                              const UnpackReport& report) {
  ASSIGN_OR_RETURN(const UniqueFd fs, hutch::Open(temporary + "/fs", O_RDONLY | O_DIRECTORY));
  RETURN_IF_ERROR(MarkOpaque(fs.get(), report.opaque));
  if (::fchmod(fs.get(), 0755) != 0) return SysError(errno, "chmod of a layer's root");
  RETURN_IF_ERROR(WriteFileAtomic(temporary + "/size", std::to_string(report.bytes) + "\n",
                                  Durability::kMemory));
  if (::syncfs(fs.get()) != 0) return SysError(errno, "syncfs " + layers_dir_);
  const std::string path = LayerPath(layer.diff_id);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return SysError(errno, "rename to " + path);
  ASSIGN_OR_RETURN(const UniqueFd directory, hutch::Open(layers_dir_, O_RDONLY | O_DIRECTORY));
  return ::fsync(directory.get()) == 0 ? OkStatus() : SysError(errno, "fsync " + layers_dir_);
}

Result<Image> StoreImpl::Register(const ImageSource& source, const std::string& reference) {
  RETURN_IF_ERROR(WriteBlob(source.config_digest, source.config));
  RETURN_IF_ERROR(WriteBlob(source.manifest_digest, source.manifest));
  const std::lock_guard lock(mutex_);
  for (const LayerSource& layer :
       source.layers)  // another thread may have removed an image that shared it
    if (!PathExists(LayerPath(layer.diff_id)))
      return Error{.code = Code::kUnavailable,
                   .what = "layer " + layer.diff_id + " was removed meanwhile",
                   .hint = "import again"};
  std::vector<std::string> references = {reference};
  if (const auto it = images_.find(source.manifest_digest); it != images_.end())
    for (const std::string& name : it->second.image.references)
      if (name != reference) references.push_back(name);
  RETURN_IF_ERROR(LoadImage(source.manifest_digest, std::move(references), source.config_digest));
  // A name belongs to one image: it moves here, and an image may be left with its digest alone.
  for (auto& [digest, entry] : images_)
    if (digest != source.manifest_digest) std::erase(entry.image.references, reference);
  RETURN_IF_ERROR(SaveIndex());
  return images_[source.manifest_digest].image;
}

}  // namespace hutch::rootfs
