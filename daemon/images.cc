#include "daemon/images.h"

#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {

oci::Json ImageJson(const rootfs::Image& image) {
  return {{"id", image.id},
          {"references", image.references},
          {"size_bytes", image.size_bytes},
          {"created", image.created.empty() ? oci::Json() : oci::Json(image.created)},
          {"layers", image.diff_ids.size()},
          {"user", image.config.user.empty() ? "1000:1000" : image.config.user}};
}

oci::Json ImageConfigJson(const oci::ImageConfig& config) {
  return {{"env", config.env},
          {"entrypoint", config.entrypoint},
          {"cmd", config.cmd},
          {"working_dir", config.working_dir},
          {"exposed_ports", config.exposed_ports},
          {"volumes", config.volumes},
          {"stop_signal", config.stop_signal.empty() ? oci::Json() : oci::Json(config.stop_signal)},
          {"labels", config.labels}};
}

Images::Images(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes,
               std::string state_dir)
    : loop_(loop),
      worker_(worker),
      store_(store),
      sandboxes_(sandboxes),
      state_dir_(std::move(state_dir)) {}

oci::Json Images::List() const {
  oci::Json images = oci::Json::array();
  for (const rootfs::Image& image : store_.List()) images.push_back(ImageJson(image));
  return {{"images", std::move(images)}};
}

Result<oci::Json> Images::Get(const std::string& reference) const {
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(reference));
  oci::Json json = ImageJson(image);
  json["config"] = ImageConfigJson(image.config);
  return json;
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
    Result<rootfs::Image> image = made.has_value()
                                      ? rootfs::BuildCatalogImage(store_, name, work_dir, report)
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
