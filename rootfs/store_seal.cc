// Seal: a tar that is being written, unpacked as it comes, and an image made of it.
#include <atomic>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "oci/json.h"
#include "rootfs/digest.h"
#include "rootfs/limits.h"
#include "rootfs/store_impl.h"

namespace hutch::rootfs {
namespace {

using oci::Json;

constexpr char kLayerType[] = "application/vnd.oci.image.layer.v1.tar";

// One layer, from the pipe that it is being written into.
class PipeInputs : public LayerInputs {
 public:
  explicit PipeInputs(UniqueFd fd) : fd_(std::move(fd)) {}
  void Want(const LayerSource&) override {}
  Result<LayerInput> Open(const LayerSource&) override {
    ASSIGN_OR_RETURN(UniqueFd fd, Duplicate(fd_.get()));
    return LayerInput{LayerInput::State::kReady, {std::move(fd), kMaxArchiveBytes}};
  }
  Status Wait(std::vector<struct pollfd>* waits, int timeout_ms) override {
    const int ready = ::poll(waits->data(), waits->size(), timeout_ms);
    return ready >= 0 || errno == EINTR ? OkStatus() : SysError(errno, "poll");
  }

 private:
  UniqueFd fd_;
};

// What the writer knows of the layer when it has ended.
struct Written {
  Status status = OkStatus();
  bool cut_off = false;  // the reader went away
  std::atomic<uint64_t> size = 0;
  std::string digest;
};

void WriteInto(UniqueFd pipe, const std::function<Status(const ByteSink&)>& write,
               Written* written) {
  Sha256 hash;
  written->status = write([&](std::string_view bytes) -> Status {
    hash.Add(bytes.data(), bytes.size());
    written->size += bytes.size();
    Status done = WriteAll(pipe.get(), bytes);
    if (!done.has_value() && done.error().sys == EPIPE) written->cut_off = true;
    return done;
  });
  written->digest = hash.Digest();
}

Result<Json> ReadDocument(const std::string& text) {
  return oci::ParseJson(text, {.max_bytes = kMaxDocumentBytes, .max_depth = 64});
}

Json& ObjectIn(Json& parent, const char* key) {
  Json& member = parent[key];
  if (!member.is_object()) member = Json::object();
  return member;
}

// One step for each layer: those nobody said anything about get one that says nothing.
void AddHistory(const Store::SealRequest& request, const std::string& created, size_t layers,
                Json* config) {
  Json& history = (*config)["history"];
  if (!history.is_array()) history = Json::array();
  size_t told = 0;
  for (const Json& step : history)
    if (step.is_object() && !(step.contains("empty_layer") && step["empty_layer"] == Json(true)))
      ++told;
  for (; told < layers; ++told) history.push_back(Json::object());
  history.push_back({{"created", created}, {"created_by", request.created_by}});
}

Result<std::string> SealedConfig(const Store::SealRequest& request, const std::string& text,
                                 const std::string& diff_id) {
  ASSIGN_OR_RETURN(const oci::ImageConfig parsed, oci::ParseImageConfig(text));
  ASSIGN_OR_RETURN(Json config, ReadDocument(text));  // an object, and rootfs.diff_ids is a list
  const std::string created = FormatRfc3339(std::chrono::system_clock::now());
  config["created"] = created;
  AddHistory(request, created, parsed.diff_ids.size(), &config);
  Json diff_ids = parsed.diff_ids;
  diff_ids.push_back(diff_id);
  ObjectIn(config, "rootfs")["diff_ids"] = std::move(diff_ids);
  Json& labels = ObjectIn(ObjectIn(config, "config"), "Labels");
  for (const auto& [key, value] : request.labels) labels[key] = value;
  std::string sealed = oci::PrintJson(config);
  RETURN_IF_ERROR(oci::ParseImageConfig(sealed));
  if (sealed.size() <= kMaxDocumentBytes) return sealed;
  return Error{.code = Code::kTooLarge, .what = "a configuration of so many layers"};
}

// The parent's layers as it lists them, and one more.
Result<std::string> SealedManifest(const std::string& parent, const ImageSource& source,
                                   const LayerSource& layer) {
  ASSIGN_OR_RETURN(const oci::Manifest parsed, oci::ParseManifest(parent));
  Json layers = Json::array();
  for (const oci::Descriptor& one : parsed.layers)
    layers.push_back({{"mediaType", one.media_type}, {"digest", one.digest}, {"size", one.size}});
  layers.push_back({{"mediaType", kLayerType}, {"digest", layer.digest}, {"size", layer.size}});
  return ManifestOf(source, std::move(layers));
}

// Both sides at once. What the writer says comes first, unless it only says that nobody reads.
Result<LayerJob> UnpackWhileWriting(const Store::SealRequest& request, LayerRun run) {
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  Written written;
  std::vector<LayerJob> jobs;
  jobs.push_back({{}, UnpackMode::kLayer, {}, {}});
  if (run.progress)  // how much it will be, nobody knows
    run.progress = [&written, tell = std::move(run.progress)](const Progress& report) {
      tell({report.stage, report.subject, written.size, 0});
    };
  std::thread writer([&written, &request, end = std::move(pipe.write)]() mutable {
    WriteInto(std::move(end), request.write, &written);
  });
  Status unpacked = OkStatus();
  {
    PipeInputs inputs(std::move(pipe.read));
    unpacked = RunLayerJobs(run, inputs, &jobs);
  }
  writer.join();
  if (!written.status.has_value() && !written.cut_off) return written.status.error();
  RETURN_IF_ERROR(std::move(unpacked));
  if (!written.status.has_value()) return written.status.error();
  LayerJob& job = jobs.front();
  if (job.layer.digest != written.digest)
    return Error{.code = Code::kCorrupt,
                 .what = "what was unpacked is " + job.layer.digest + ", not what was written"};
  job.layer.size = written.size;
  return std::move(job);
}

}  // namespace

Result<Image> Store::Seal(const SealRequest&, const ProgressFn&) {
  return Error{.code = Code::kUnsupported, .what = "this store seals nothing"};
}

Result<Image> StoreImpl::Seal(const SealRequest& request, const ProgressFn& progress) {
  Result<Image> image = SealLayer(request, progress);
  if (!image) Sweep();
  return image;
}

Result<Image> StoreImpl::SealLayer(const SealRequest& request, const ProgressFn& progress) {
  std::string name;
  if (!request.reference.empty()) {
    ASSIGN_OR_RETURN(name, NormalReference(request.reference));
  }
  ASSIGN_OR_RETURN(const Image parent, Resolve(request.parent));
  const Pins pins(*this, parent.diff_ids);
  ASSIGN_OR_RETURN(const std::string config, ConfigText(parent.id));
  ASSIGN_OR_RETURN(const std::string manifest, ReadFile(BlobPath(parent.id), kMaxDocumentBytes));
  ASSIGN_OR_RETURN(LayerJob job,
                   UnpackWhileWriting(request, {layers_dir_, "files", progress, kUnpackSeconds}));
  std::vector<LayerJob> jobs;
  jobs.push_back(std::move(job));
  const LayerSource& layer = jobs.front().layer;
  ImageSource source;
  ASSIGN_OR_RETURN(source.config, SealedConfig(request, config, layer.diff_id));
  source.config_digest = DigestOf(source.config);
  ASSIGN_OR_RETURN(source.manifest, SealedManifest(manifest, source, layer));
  source.manifest_digest = DigestOf(source.manifest);
  if (progress) progress({"sync", "files", 0, 0});
  RETURN_IF_ERROR(SyncLayers(jobs));
  const std::lock_guard lock(mutex_);
  return Place(source, name, &jobs);
}

}  // namespace hutch::rootfs
