#include "daemon/file_tracker.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <mutex>

#include "base/log.h"

namespace hutch::daemon {
namespace {

constexpr Milliseconds kClockTick{10};  // CONFIG_HZ=100, the coarsest

int64_t Nanoseconds(const struct timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// What the kernel would stamp a file with now.
int64_t CoarseNow() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return Nanoseconds(now);
}

int64_t ChangeTime(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? Nanoseconds(st.st_ctim) : 0;
}

bool TryChangeTimes() {
  const UniqueFd file(::memfd_create("hutch-change-times", MFD_CLOEXEC));
  int64_t last = ChangeTime(file.get());
  for (int i = 0; i < 4; ++i) {  // a tick or two may fall between, not four
    if (::write(file.get(), "x", 1) != 1) return false;
    const int64_t now = ChangeTime(file.get());
    if (now == last) return false;
    last = now;
  }
  return true;
}

}  // namespace

bool HasFineChangeTimes() {
  static const bool has = TryChangeTimes();
  return has;
}

struct FileTracker::Files {
  UniqueFd scratch;
  std::vector<rootfs::TrackedRoot> roots;
  std::mutex mutex;  // over lower, which remembers where it looked
  std::optional<rootfs::LowerLayers> lower;

  Walked Walk(const SnapshotPointer& before) {
    Walked walked;
    Result<rootfs::Snapshot> now = rootfs::Snapshot::Take(scratch.get(), roots);
    if (!now.has_value()) {
      Log(LogLevel::kWarning, "cannot look at a sandbox's files",
          {{"error", now.error().ToString()}});
      return walked;
    }
    walked.now = std::make_shared<const rootfs::Snapshot>(std::move(*now));
    if (before == nullptr) return walked;
    const std::lock_guard lock(mutex);
    walked.changes =
        rootfs::Diff(*before, *walked.now, roots, lower ? &*lower : nullptr, kMaxFilesChanged);
    return walked;
  }
};

FileTracker::FileTracker(Parts parts)
    : loop_(parts.loop),
      worker_(parts.worker),
      budget_(parts.budget),
      files_(std::make_shared<Files>()) {
  files_->scratch = std::move(parts.scratch);
  files_->roots = std::move(parts.roots);
  if (!parts.layers.empty()) files_->lower.emplace(std::move(parts.layers));
}

FileTracker::~FileTracker() {
  *alive_ = false;
  Release();
  const auto due = std::exchange(due_, {});
  for (const auto& [number, finished] : due) finished({});
}

void FileTracker::Begin(Others others, Taken taken) {
  if (others == Others::kQuiet && last_ != nullptr) return Settle(last_, std::move(taken));
  Release();
  Walk(nullptr, [this, alive = alive_, taken = std::move(taken)](const Walked& walked) {
    if (!*alive || walked.now == nullptr) return taken(nullptr);
    Settle(walked.now, taken);
  });
}

void FileTracker::End(SnapshotPointer before, Others others, Told told) {
  Release();
  Walk(std::move(before), [this, alive = alive_, others, told = std::move(told)](Walked walked) {
    if (*alive && others == Others::kQuiet) Keep(std::move(walked.now));
    told(std::move(walked.changes));
  });
}

// A few files are walked here and now: handing them over would cost more.
void FileTracker::Walk(SnapshotPointer before, Finished finished) {
  if (last_size_ >= kMaxInlineWalkFiles)
    return WalkOnWorker(std::move(before), std::move(finished));
  Walked walked = files_->Walk(before);
  if (walked.now != nullptr) last_size_ = walked.now->size();
  finished(std::move(walked));
}

void FileTracker::WalkOnWorker(SnapshotPointer before, Finished finished) {
  const uint64_t number = next_number_++;
  due_[number] = std::move(finished);
  const Status given = worker_.Submit(
      [this, &loop = loop_, alive = alive_, files = files_, before = std::move(before), number] {
        auto walked = std::make_shared<Walked>(files->Walk(before));
        loop.Post([this, alive, number, walked] {
          if (*alive) Resolve(number, std::move(*walked));
        });
      });
  if (!given.has_value()) Resolve(number, {});  // more is asked for than can be done
}

void FileTracker::Resolve(uint64_t number, Walked walked) {
  auto node = due_.extract(number);
  if (node.empty()) return;
  if (walked.now != nullptr) last_size_ = walked.now->size();
  node.mapped()(std::move(walked));
}

// Where change times are as coarse as the clock, a write could follow in the tick that the newest
// of them stands for and leave no trace: that tick has to be over.
void FileTracker::Settle(SnapshotPointer snapshot, Taken taken) {
  if (HasFineChangeTimes() || snapshot->newest_ctime_ns() < CoarseNow())
    return taken(std::move(snapshot));
  const uint64_t number = next_number_++;
  due_[number] = [taken = std::move(taken)](const Walked& walked) { taken(walked.now); };
  auto timer = std::make_shared<Timer>();
  timer->Start(loop_, kClockTick, [this, alive = alive_, timer, number, snapshot] {
    if (*alive) Resolve(number, {snapshot, std::nullopt});
  });
}

void FileTracker::Keep(SnapshotPointer snapshot) {
  Release();
  if (snapshot == nullptr) return;
  const size_t bytes = snapshot->memory_bytes();
  if (budget_.kept_bytes + bytes > kMaxKeptSnapshotBytes) return;
  budget_.kept_bytes += bytes;
  last_ = std::move(snapshot);
}

void FileTracker::Release() {
  if (last_ != nullptr) budget_.kept_bytes -= last_->memory_bytes();
  last_ = nullptr;
}

}  // namespace hutch::daemon
