#include "daemon/images.h"

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/limits.h"
#include "daemon/message.h"
#include "rootfs/catalog.h"

namespace hutch::daemon {

oci::Json ImageJson(const rootfs::Image& image) {
  return {{"id", image.id},
          {"references", image.references},
          {"size_bytes", image.size_bytes},
          {"created", image.created.empty() ? oci::Json() : oci::Json(image.created)},
          {"layers", image.diff_ids.size()},
          {"user", image.config.user.empty() ? "1000:1000" : image.config.user}};
}

namespace {

oci::Json CatalogJson(const rootfs::Catalog& catalog, rootfs::Store& store) {
  oci::Json entries = oci::Json::array(), refused = oci::Json::array();
  for (const rootfs::CatalogEntry& entry : catalog.entries) {
    const auto image = store.Resolve(entry.name + ":latest");
    entries.push_back({{"name", entry.name},
                       {"description", entry.description},
                       {"suite", entry.suite},
                       {"components", entry.components},
                       {"packages", entry.packages},
                       {"path", entry.path.empty() ? oci::Json() : oci::Json(entry.path)},
                       {"image", image ? oci::Json(image->id) : oci::Json()}});
  }
  for (const rootfs::RefusedEntry& entry : catalog.refused)
    refused.push_back({{"path", entry.path}, {"error", ErrorJson(entry.error)["error"]}});
  return {{"entries", std::move(entries)}, {"refused", std::move(refused)}};
}

}  // namespace

Images::Images(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes, Pulls& pulls,
               const Config& config)
    : loop_(loop),
      worker_(worker),
      store_(store),
      sandboxes_(sandboxes),
      pulls_(pulls),
      config_(config) {}

bool Images::Has(const std::string& reference) const {
  return store_.Resolve(reference).has_value();
}

Result<rootfs::Reference> Images::Pullable(const std::string& text) const {
  const std::string& registry = config_.registries.default_registry;
  ASSIGN_OR_RETURN(rootfs::Reference reference, rootfs::ParseReference(text, registry));
  const std::vector<std::string>& allowed = config_.allowed_registries;
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), reference.host) != allowed.end())
    return reference;
  return Error{.code = Code::kForbidden,
               .what = "registry " + reference.host + " is not among registries.allowed",
               .field = "reference"};
}

Status Images::ListCatalog(Worker& reader, std::function<void(oci::Json)> done) {
  return reader.Submit([this, directory = config_.catalog_dir, done = std::move(done)] {
    auto catalog = std::make_shared<rootfs::Catalog>(rootfs::LoadCatalog(directory));
    loop_.Post([this, catalog, done] { done(CatalogJson(*catalog, store_)); });
  });
}

void Images::Finish(Done done, Result<rootfs::Image> image) {
  loop_.Post(
      [done = std::move(done), image = std::make_shared<Result<rootfs::Image>>(std::move(image))] {
        if (image->has_value()) return done(ImageJson(**image));
        Log(LogLevel::kWarning, "an image job failed", {{"error", image->error().ToString()}});
        done(image->error());
      });
}

Status Images::Import(const std::string& path, const std::string& reference, Progress progress,
                      Done done) {
  return worker_.Submit(
      [this, path, reference, report = ToLoop(loop_, std::move(progress)), done = std::move(done)] {
        Finish(done, store_.Import(path, reference, report));
      });
}

Status Images::Build(const std::string& name, Progress progress, Done done) {
  return worker_.Submit(
      [this, name, report = ToLoop(loop_, std::move(progress)), done = std::move(done)] {
        const std::string work_dir = config_.state_dir + "/build/" + RandomBase32(16);
        const Status made = MakeDirectories(config_.state_dir + "/build", 0700);
        Result<rootfs::Image> image =
            made.has_value()
                ? rootfs::BuildCatalogImage(store_, config_.catalog_dir, name, work_dir, report)
                : Result<rootfs::Image>(made.error());
        IgnoreError(RemoveTree(work_dir), "swept at the next start");
        Finish(done, std::move(image));
      });
}

Status Images::Remove(const std::string& reference, Done done) {
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(reference));
  // From here on no sandbox may begin with it: the list of those in use is a snapshot.
  sandboxes_.BlockImage(image.id);
  const Status submitted =
      worker_.Submit([this, reference, id = image.id, in_use = sandboxes_.ImagesInUse(), done] {
        auto removed =
            std::make_shared<Result<rootfs::Store::Removed>>(store_.Remove(reference, id, in_use));
        loop_.Post([this, id, removed, done] {
          sandboxes_.UnblockImage(id);
          if (!removed->has_value()) return done(removed->error());
          const rootfs::Store::Removed& what = **removed;
          done(oci::Json{{"removed",
                          {{"references", what.references},
                           {"layers", what.layers},
                           {"freed_bytes", what.freed_bytes}}}});
        });
      });
  if (!submitted.has_value()) sandboxes_.UnblockImage(image.id);
  return submitted;
}

}  // namespace hutch::daemon
