#include "daemon/images.h"

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

Images::Images(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes,
               std::string state_dir, std::string catalog_dir)
    : loop_(loop),
      worker_(worker),
      store_(store),
      sandboxes_(sandboxes),
      state_dir_(std::move(state_dir)),
      catalog_dir_(std::move(catalog_dir)) {}

oci::Json Images::List() const {
  oci::Json images = oci::Json::array();
  for (const rootfs::Image& image : store_.List()) images.push_back(ImageJson(image));
  return {{"images", std::move(images)}};
}

Result<oci::Json> Images::Get(const std::string& reference) const {
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(reference));
  return ImageJson(image);
}

Status Images::ListCatalog(Worker& reader, std::function<void(oci::Json)> done) {
  return reader.Submit([this, directory = catalog_dir_, done = std::move(done)] {
    auto catalog = std::make_shared<rootfs::Catalog>(rootfs::LoadCatalog(directory));
    loop_.Post([this, catalog, done] { done(CatalogJson(*catalog, store_)); });
  });
}

// From a worker to the loop: at most one report of a stage each kProgressInterval, and the first of
// each.
rootfs::ProgressFn Images::Throttled(Progress progress) {
  struct Last {
    std::string stage, subject;
    SteadyTime time;
  };
  return [this, progress = std::move(progress),
          last = std::make_shared<Last>()](const rootfs::Progress& report) {
    const SteadyTime now = Loop::Now();
    const bool same = report.stage == last->stage && report.subject == last->subject;
    if (same && now - last->time < kProgressInterval && report.done != report.total) return;
    *last = Last{report.stage, report.subject, now};
    loop_.Post([progress, report] { progress(report); });
  };
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
      [this, path, reference, report = Throttled(std::move(progress)), done = std::move(done)] {
        Finish(done, store_.Import(path, reference, report));
      });
}

Status Images::Build(const std::string& name, Progress progress, Done done) {
  return worker_.Submit([this, name, report = Throttled(std::move(progress)),
                         done = std::move(done)] {
    const std::string work_dir = state_dir_ + "/build/" + RandomBase32(16);
    const Status made = MakeDirectories(state_dir_ + "/build", 0700);
    Result<rootfs::Image> image =
        made.has_value() ? rootfs::BuildCatalogImage(store_, catalog_dir_, name, work_dir, report)
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
            std::make_shared<Result<rootfs::Store::Removed>>(store_.Remove(reference, in_use));
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
