#include "daemon/sandbox_snapshots.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/sealed_directories.h"
#include "rootfs/limits.h"

namespace hutch::daemon {
namespace {

constexpr char kKeptLabel[] = "hutch.snapshot.kept";
constexpr char kWhileUsed[] = "while-used";

Error Gone(const std::string& id) {
  return Error{.code = Code::kBadState, .what = "sandbox " + id + " ended meanwhile"};
}

bool IsKeptWhileUsed(const rootfs::Image& image) {
  const auto label = image.config.labels.find(kKeptLabel);
  return image.references.empty() && label != image.config.labels.end() &&
         label->second == kWhileUsed;
}

double MillisecondsSince(SteadyTime start) {
  return std::chrono::duration<double, std::milli>(Loop::Now() - start).count();
}

}  // namespace

// One sealing. The part before `request` is the loop's.
struct SandboxSnapshots::Job {
  std::string id;
  Progress progress;
  SealedDone done;
  uint64_t watcher = 0;
  std::unique_ptr<FreezeWait> freeze;
  bool sealing = false;  // the entry is marked
  std::optional<SteadyTime> frozen_at;
  double frozen_ms = 0;

  rootfs::Store::SealRequest request;
  UniqueFd scratch;
  std::vector<rootfs::TrackedRoot> roots;
  std::unique_ptr<rootfs::LowerLayers> lower;
  uint32_t host_id_start = 0;
  rootfs::SkippedFiles skipped;
  uint64_t written_bytes = 0;
};

SandboxSnapshots::SandboxSnapshots(Loop& loop, Sandboxes& sandboxes, rootfs::Store& store)
    : loop_(loop), sandboxes_(sandboxes), store_(store), worker_(kSealsAtOnce + 1) {}

SandboxSnapshots::~SandboxSnapshots() { *alive_ = false; }

// Below the upper, lowest first.
Result<std::vector<UniqueFd>> SandboxSnapshots::LayersOf(const SandboxEntry& entry) const {
  std::vector<UniqueFd> layers;
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(entry.facts.image_id));
  for (const std::string& diff_id : image.diff_ids) {
    ASSIGN_OR_RETURN(UniqueFd layer, store_.OpenLayer(diff_id));
    layers.push_back(std::move(layer));
  }
  if (!entry.facts.user_layer.empty()) {
    ASSIGN_OR_RETURN(UniqueFd layer, sandboxes_.user_layers_.Open(entry.facts.user_layer));
    layers.push_back(std::move(layer));
  }
  if (entry.sandbox->skeleton_fd() >= 0) {
    ASSIGN_OR_RETURN(UniqueFd skeleton, Duplicate(entry.sandbox->skeleton_fd()));
    layers.push_back(std::move(skeleton));
  }
  return layers;
}

// --- sealing

Status SandboxSnapshots::Prepare(SandboxEntry& entry, Job* job) {
  const auto is_its = [&](const JobPointer& other) { return other->id == entry.facts.id; };
  if (std::any_of(running_.begin(), running_.end(), is_its) ||
      std::any_of(waiting_.begin(), waiting_.end(), is_its))
    return Error{.code = Code::kUnavailable,
                 .what = "a snapshot of sandbox " + entry.facts.id + " is being taken already"};
  if (waiting_.size() >= kSealsWaiting)
    return Error{.code = Code::kUnavailable, .what = "too many snapshots wait to be taken"};
  const runtime::ScratchView& scratch = entry.sandbox->scratch();
  if (!scratch.fd.valid())
    return Error{.code = Code::kUnsupported,
                 .what = "the files of sandbox " + entry.facts.id + " are not known",
                 .hint = "an earlier version of hutchd made it"};
  ASSIGN_OR_RETURN(const rootfs::Image image, store_.Resolve(entry.facts.image_id));
  ASSIGN_OR_RETURN(std::set<std::string> directories, SealedDirectories(image.config));
  ASSIGN_OR_RETURN(std::vector<UniqueFd> layers, LayersOf(entry));
  ASSIGN_OR_RETURN(job->scratch, Duplicate(scratch.fd.get()));
  job->roots = scratch.roots;
  for (const rootfs::TrackedRoot& root : rootfs::SealedRoots(scratch.roots))
    if (!root.is_upper) directories.insert(root.target);
  job->lower = std::make_unique<rootfs::LowerLayers>(std::move(layers));
  job->host_id_start = entry.moments.host_id_start;
  job->id = entry.facts.id;
  const bool named = !job->request.reference.empty();
  job->request.parent = image.id;
  job->request.created_by = "hutch " + std::string(named ? "snapshot " : "fork ") + job->id;
  job->request.labels = {{kSealedLabel, SealedLabelText(directories)},
                         {kKeptLabel, named ? "" : kWhileUsed}};
  return OkStatus();
}

void SandboxSnapshots::Seal(SandboxEntry& entry, const std::string& reference, Progress progress,
                            SealedDone done) {
  const auto job = std::make_shared<Job>();
  job->progress = std::move(progress);
  job->done = std::move(done);
  job->request.reference = reference;
  const Status prepared = Prepare(entry, job.get());
  if (!prepared.has_value())
    return loop_.Post([job, error = prepared.error()] { job->done(error); });
  // Its end ends the waiting; once its files are being read, that goes on.
  job->watcher = sandboxes_.OnMove(entry, [this, job, &entry] {
    if (!entry.ending || (job->freeze == nullptr && running_.contains(job))) return;
    job->freeze.reset();
    std::erase(waiting_, job);
    loop_.Post([this, alive = alive_, job] {
      if (*alive) End(job, Gone(job->id));
    });
  });
  waiting_.push_back(job);
  StartNext();
}

void SandboxSnapshots::StartNext() {
  while (running_.size() < kSealsAtOnce && !waiting_.empty()) {
    const JobPointer job = waiting_.front();
    waiting_.pop_front();
    running_.insert(job);
    Freeze(job);
  }
}

void SandboxSnapshots::Freeze(const JobPointer& job) {
  SandboxEntry* const entry = sandboxes_.Living(job->id);
  if (entry == nullptr || entry->ending)
    return loop_.Post([this, alive = alive_, job] {
      if (*alive) End(job, Gone(job->id));
    });
  entry->sealing = job->sealing = true;
  if (entry->moments.state == SandboxState::kPaused) return Run(job);
  job->frozen_at = Loop::Now();
  job->freeze = std::make_unique<FreezeWait>(
      loop_, entry->sandbox->group(), [this, job](const Status& frozen) {
        const auto waited = std::move(job->freeze);  // lives until its callback is over
        if (!frozen.has_value()) return End(job, frozen.error());
        Run(job);
      });
  job->freeze->Start();
}

void SandboxSnapshots::Run(const JobPointer& job) {
  const auto thaw = [this, alive = alive_, job] {
    loop_.Post([this, alive, job] {
      if (*alive) Thaw(*job);
    });
  };
  job->request.write = [job, thaw](const rootfs::ByteSink& sink) {
    const Status written = rootfs::WriteScratchTar(
        {.scratch_fd = job->scratch.get(),
         .roots = job->roots,
         .lower = *job->lower,
         .host_id_start = job->host_id_start},
        [&](std::string_view bytes) {
          job->written_bytes += bytes.size();
          return sink(bytes);
        },
        &job->skipped);
    thaw();
    return written;
  };
  const rootfs::ProgressFn progress =
      job->progress ? ToLoop(loop_, job->progress) : rootfs::ProgressFn();
  const Status submitted = worker_.Submit([this, alive = alive_, job, progress] {
    auto image = std::make_shared<Result<rootfs::Image>>(store_.Seal(job->request, progress));
    loop_.Post([this, alive, job, image] {
      if (!*alive) return;
      if (!image->has_value()) return End(job, image->error());
      Thaw(*job);
      End(job, Sealed{.image = **image,
                      .skipped = job->skipped,
                      .written_bytes = job->written_bytes,
                      .frozen_ms = job->frozen_ms});
    });
  });
  if (!submitted.has_value()) End(job, submitted.error());
}

// As its state says by now: it may have been paused or resumed meanwhile.
void SandboxSnapshots::Thaw(Job& job) {
  if (!std::exchange(job.sealing, false)) return;
  if (job.frozen_at) job.frozen_ms = MillisecondsSince(*job.frozen_at);
  SandboxEntry* const entry = sandboxes_.Living(job.id);
  if (entry == nullptr || entry->sandbox == nullptr) return;
  entry->sealing = false;
  if (entry->ending || entry->moments.state == SandboxState::kPaused || entry->pausing != nullptr)
    return;
  const Status thawed = entry->sandbox->group().Thaw();
  if (!thawed.has_value())
    Log(LogLevel::kError, "a sandbox does not go on after a snapshot",
        {{"sandbox", job.id}, {"error", thawed.error().ToString()}});
}

void SandboxSnapshots::End(const JobPointer& job, Result<Sealed> sealed) {
  Thaw(*job);
  running_.erase(job);
  sandboxes_.ForgetMove(job->id, job->watcher);
  if (sealed.has_value() && job->request.reference.empty()) Keep(sealed->image.id);
  StartNext();
  const SealedDone done = std::exchange(job->done, nullptr);
  if (done) done(std::move(sealed));
}

// --- images of forks

void SandboxSnapshots::Start() {
  for (const rootfs::Image& image : store_.List())
    if (IsKeptWhileUsed(image)) kept_.insert(image.id);
  Sweep();
}

void SandboxSnapshots::Keep(const std::string& image_id) {
  kept_.insert(image_id);
  ScheduleSweep();
}

void SandboxSnapshots::ScheduleSweep() {
  if (kept_.empty() || sweep_timer_.running()) return;
  sweep_timer_.Start(loop_, kKeptImageSweep, [this] { Sweep(); });
}

// Nothing is made of an image from its being chosen until it is gone.
void SandboxSnapshots::Sweep() {
  const std::vector<std::string> used = sandboxes_.ImagesInUse();
  std::vector<std::string> doomed;
  for (const std::string& id : kept_)
    if (!in_making_.contains(id) && !std::binary_search(used.begin(), used.end(), id))
      doomed.push_back(id);
  ScheduleSweep();
  if (doomed.empty()) return;
  const Status submitted = worker_.Submit([this, alive = alive_, used, doomed] {
    const auto pruned = std::make_shared<Result<rootfs::Store::Pruned>>(
        store_.Prune({.which = rootfs::Store::PruneRequest::Which::kUnnamed,
                      .mode = rootfs::Store::PruneRequest::Mode::kRemove,
                      .in_use = used,
                      .only = doomed}));
    loop_.Post([this, alive, doomed, pruned] {
      if (!*alive) return;
      for (const std::string& id : doomed) sandboxes_.UnblockImage(id);
      if (pruned->has_value()) return;
      Log(LogLevel::kError, "cannot remove the images of forks that are gone",
          {{"error", pruned->error().ToString()}});
      for (const std::string& id : doomed) Keep(id);
    });
  });
  if (!submitted.has_value()) return;  // the next time
  for (const std::string& id : doomed) {
    sandboxes_.BlockImage(id);
    kept_.erase(id);
  }
}

// --- diff

void SandboxSnapshots::Diff(SandboxEntry& entry, const DiffFields& fields, Worker& worker,
                            std::function<void(Result<rootfs::ChangeSet>)> done) {
  struct Look {
    UniqueFd scratch;
    std::vector<rootfs::TrackedRoot> roots;
    std::optional<rootfs::LowerLayers> lower;
    DiffFields fields;
  };
  const runtime::ScratchView& scratch = entry.sandbox->scratch();
  if (!scratch.fd.valid())
    return done(Error{.code = Code::kUnsupported,
                      .what = "the files of sandbox " + entry.facts.id + " are not known"});
  auto fd = Duplicate(scratch.fd.get());
  auto layers = LayersOf(entry);
  if (!fd.has_value()) return done(fd.error());
  if (!layers.has_value()) return done(layers.error());
  const auto look = std::make_shared<Look>();
  look->scratch = std::move(*fd);
  look->roots = rootfs::SealedRoots(scratch.roots);
  look->lower.emplace(std::move(*layers));
  look->fields = fields;
  const Status submitted = worker.Submit([&loop = loop_, look, done] {
    const auto told =
        std::make_shared<Result<rootfs::ChangeSet>>([&]() -> Result<rootfs::ChangeSet> {
          ASSIGN_OR_RETURN(const rootfs::Snapshot now,
                           rootfs::Snapshot::Take(look->scratch.get(), look->roots));
          const auto nothing = rootfs::Snapshot::OfNothing(look->roots.size());
          rootfs::ChangeSet all =
              rootfs::Diff(nothing, now, look->roots, &*look->lower, rootfs::kMaxTrackedFiles);
          const std::string& path = look->fields.path;
          std::erase_if(all.changes, [&](const rootfs::FileChange& change) {
            return path != "/" && change.path != path && !change.path.starts_with(path + "/");
          });
          if (all.changes.size() > look->fields.limit) {
            all.changes.resize(look->fields.limit);
            all.complete = false;
          }
          return all;
        }());
    loop.Post([told, done] { done(std::move(*told)); });
  });
  if (!submitted.has_value()) done(submitted.error());
}

}  // namespace hutch::daemon
