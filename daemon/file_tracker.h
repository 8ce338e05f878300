// Which files each command of one sandbox changed. On the loop's thread; large walks happen on a
// worker's. Commands that run at the same time are each told what changed while they ran, whoever
// changed it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/limits.h"
#include "daemon/loop.h"
#include "daemon/worker.h"
#include "rootfs/changes.h"

namespace hutch::daemon {

// What all trackers keep between commands, in bytes; one for the daemon.
struct SnapshotBudget {
  size_t kept_bytes = 0;
};

class FileTracker {
 public:
  struct Parts {
    Loop& loop;
    Worker& worker;
    SnapshotBudget& budget;
    UniqueFd scratch;  // the file system's root
    std::vector<rootfs::TrackedRoot> roots;
    std::vector<UniqueFd> layers;  // below the upper, lowest first; empty for a read-only root
  };
  using SnapshotPointer = std::shared_ptr<const rootfs::Snapshot>;
  // Nothing when the file system could not be read.
  using Taken = std::function<void(SnapshotPointer)>;
  using Told = std::function<void(std::optional<rootfs::ChangeSet>)>;

  explicit FileTracker(Parts parts);
  ~FileTracker();  // callbacks that are still due are not called any more

  // Something may have written since the last End(): a command without tracking, a file request, a
  // process that was left behind.
  void Touch() { ++generation_; }

  // Hands over how things are now. With kQuiet nothing has run since the last End() or Touch(), and
  // what was seen then still holds: no walk. Calls back at once where no worker is needed.
  enum class Others { kQuiet, kRunning };
  void Begin(Others others, Taken taken);
  // What changed since `before`; called at once or later, as Begin.
  void End(SnapshotPointer before, Others others, Told told);

 private:
  struct Shared {  // with a worker
    UniqueFd scratch;
    std::vector<rootfs::TrackedRoot> roots;
    std::vector<UniqueFd> layers;
  };
  void Walk(Taken taken);
  void Keep(SnapshotPointer snapshot);
  void Release();
  rootfs::ChangeSet Compare(const rootfs::Snapshot& before, const rootfs::Snapshot& after);

  Loop& loop_;
  Worker& worker_;
  SnapshotBudget& budget_;
  std::shared_ptr<Shared> shared_;
  std::optional<rootfs::LowerLayers> lower_;
  SnapshotPointer last_;
  size_t last_size_ = 0;
  uint64_t generation_ = 1, last_generation_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hutch::daemon
