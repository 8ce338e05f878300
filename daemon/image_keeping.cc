#include "daemon/image_keeping.h"

#include <algorithm>
#include <future>
#include <memory>

#include "daemon/images.h"
#include "oci/image_history.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using Pruned = rootfs::Store::Pruned;

constexpr Milliseconds kStopPoll{100};

uint64_t BytesOf(const std::map<std::string, uint64_t>& bytes, const std::string& diff_id) {
  const auto it = bytes.find(diff_id);
  return it == bytes.end() ? 0 : it->second;
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json ConfigJson(const oci::ImageConfig& config) {
  return {{"env", config.env},
          {"entrypoint", config.entrypoint},
          {"cmd", config.cmd},
          {"user", TextOrNull(config.user)},
          {"workdir", TextOrNull(config.working_dir)},
          {"stop_signal", TextOrNull(config.stop_signal)},
          {"labels", config.labels},
          {"exposed_ports", config.exposed_ports},
          {"volumes", config.volumes}};
}

Json Names(const std::vector<rootfs::Image>& images) {
  Json list = Json::array();
  for (const rootfs::Image& image : images)
    list.push_back({{"id", image.id}, {"references", image.references}});
  return list;
}

Json PrunedJson(const Pruned& pruned, bool dry_run) {
  return {{"dry_run", dry_run},
          {"images", Names(pruned.images)},
          {"kept", Names(pruned.kept)},
          {"layers", pruned.layers},
          {"downloads", pruned.files},
          {"failed", pruned.failed},
          {"freed_bytes", pruned.freed_bytes}};
}

}  // namespace

std::map<std::string, uint64_t> ImageKeeping::UsesOfLayers() const {
  std::map<std::string, uint64_t> uses;
  for (const rootfs::Image& image : store_.List())
    for (const std::string& diff_id : image.diff_ids) ++uses[diff_id];
  return uses;
}

std::vector<std::string> ImageKeeping::SandboxesOf(const std::string& image_id) const {
  std::vector<std::string> ids;
  for (const SandboxEntry* entry : sandboxes_.List())
    if (entry->facts.image_id == image_id && entry->sandbox != nullptr)
      ids.push_back(entry->facts.id);
  return ids;
}

Json ImageKeeping::List() const {
  const auto uses = UsesOfLayers();
  const auto bytes = store_.LayerBytes();
  Json images = Json::array();
  for (const rootfs::Image& image : store_.List()) {
    Json json = ImageJson(image);
    uint64_t shared = 0, unique = 0;
    for (const std::string& diff_id : image.diff_ids) {
      const auto it = uses.find(diff_id);
      (it != uses.end() && it->second > 1 ? shared : unique) += BytesOf(bytes, diff_id);
    }
    json["shared_bytes"] = shared;
    json["unique_bytes"] = unique;
    images.push_back(std::move(json));
  }
  uint64_t total = 0;
  for (const auto& [diff_id, size] : bytes) total += size;
  return {{"images", std::move(images)}, {"disk_bytes", total}};
}

Result<Json> ImageKeeping::Get(const std::string& reference) const {
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(reference));
  const auto uses = UsesOfLayers();
  const auto bytes = store_.LayerBytes();
  Json json = ImageJson(image);
  json["os"] = TextOrNull(image.config.os);
  json["architecture"] = TextOrNull(image.config.architecture);
  json["config"] = ConfigJson(image.config);
  Json layers = Json::array();
  for (const std::string& diff_id : image.diff_ids) {
    const auto it = uses.find(diff_id);
    layers.push_back({{"diff_id", diff_id},
                      {"size_bytes", BytesOf(bytes, diff_id)},
                      {"images", it == uses.end() ? 1 : it->second}});
  }
  json["layer_list"] = std::move(layers);
  json["used_by"] = SandboxesOf(image.id);
  return json;
}

Result<Json> ImageKeeping::History(const std::string& reference) const {
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(reference));
  ASSIGN_OR_RETURN(const std::string config, store_.ConfigText(image.id));
  ASSIGN_OR_RETURN(std::vector<oci::HistoryEntry> steps, oci::ParseImageHistory(config));
  const std::vector<std::string>& diff_ids = image.config.diff_ids;
  const auto told = static_cast<size_t>(std::count_if(
      steps.begin(), steps.end(), [](const oci::HistoryEntry& step) { return !step.empty_layer; }));
  // Layers that nobody says anything about are shown all the same.
  for (size_t i = told; i < diff_ids.size(); ++i) steps.emplace_back();
  const auto bytes = store_.LayerBytes();
  Json list = Json::array();
  size_t layer = 0;
  for (const oci::HistoryEntry& step : steps) {
    const bool has_layer = !step.empty_layer && layer < diff_ids.size();
    const std::string diff_id = has_layer ? diff_ids[layer++] : "";
    list.push_back({{"created", TextOrNull(step.created)},
                    {"created_by", step.created_by},
                    {"author", step.author},
                    {"comment", step.comment},
                    {"diff_id", TextOrNull(diff_id)},
                    {"size_bytes", BytesOf(bytes, diff_id)}});
  }
  return Json{{"id", image.id}, {"history", std::move(list)}};
}

Status ImageKeeping::Tag(const std::string& reference, const std::string& name, Done done) {
  return worker_.Submit([this, reference, name, done = std::move(done)] {
    auto image = std::make_shared<Result<rootfs::Image>>(store_.Tag(reference, name));
    loop_.Post([image, done] {
      done(image->has_value() ? Result<Json>(ImageJson(**image)) : image->error());
    });
  });
}

// On the loop's thread. Blocked before anything is chosen: the list of those in use is a snapshot,
// and nothing is removed that is not in `only`.
rootfs::Store::PruneRequest ImageKeeping::Choose(const PruneFields& fields) {
  using Asked = rootfs::Store::PruneRequest;
  Asked request{.which = fields.all ? Asked::Which::kUnused : Asked::Which::kUnnamed,
                .mode = fields.dry_run ? Asked::Mode::kDryRun : Asked::Mode::kRemove,
                .in_use = sandboxes_.ImagesInUse()};
  for (const rootfs::Image& image : store_.List()) {
    const bool used =
        std::find(request.in_use.begin(), request.in_use.end(), image.id) != request.in_use.end();
    if (used || (!fields.all && !image.references.empty())) continue;
    if (!fields.dry_run) sandboxes_.BlockImage(image.id);
    request.only.push_back(image.id);
  }
  return request;
}

Status ImageKeeping::Prune(const PruneFields& fields, Done on_done) {
  using Asked = rootfs::Store::PruneRequest;
  const auto done = std::make_shared<Done>(std::move(on_done));
  return worker_.Submit([this, fields, done] {
    // Only now, when it is its turn: until then sandboxes are made of them.
    const auto chosen = std::make_shared<std::promise<Asked>>();
    std::future<Asked> request = chosen->get_future();
    // `done` with it: nobody's answer may end on this thread.
    loop_.Post([this, fields, done, chosen] { chosen->set_value(Choose(fields)); });
    while (request.wait_for(kStopPoll) != std::future_status::ready)
      if (stopping_) return;
    const Asked asked = request.get();
    auto pruned = std::make_shared<Result<Pruned>>(store_.Prune(asked));
    loop_.Post([this, fields, done, pruned, asked] {
      if (!fields.dry_run)
        for (const std::string& id : asked.only) sandboxes_.UnblockImage(id);
      (*done)(pruned->has_value() ? Result<Json>(PrunedJson(**pruned, fields.dry_run))
                                  : pruned->error());
    });
  });
}

}  // namespace hutch::daemon
