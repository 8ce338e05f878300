// Which files each command of one sandbox changed. On the loop's thread; large walks happen on a
// worker's. Commands that run at the same time are each told what changed while they ran, whoever
// changed it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/limits.h"
#include "daemon/loop.h"
#include "daemon/worker.h"
#include "rootfs/changes.h"

namespace hutch::daemon {

// What all trackers together keep between commands; one for the daemon.
struct SnapshotBudget {
  size_t kept_bytes = 0;
};

// Whether anything else may write while a command begins or after it ended.
enum class Others { kQuiet, kRunning };

class FileTracker {
 public:
  struct Parts {
    Loop& loop;
    Worker& worker;
    SnapshotBudget& budget;
    UniqueFd scratch;  // the file system's root
    std::vector<rootfs::TrackedRoot> roots;
    std::vector<UniqueFd> layers;  // below the upper, lowest first; empty without one
  };
  using SnapshotPointer = std::shared_ptr<const rootfs::Snapshot>;
  // Nothing when the file system could not be read, or the tracker went away meanwhile.
  using Taken = std::function<void(SnapshotPointer)>;
  using Told = std::function<void(std::optional<rootfs::ChangeSet>)>;

  explicit FileTracker(Parts parts);
  ~FileTracker();  // callbacks that are due get nothing, now

  // Something not tracked may have written, or will: what was seen last holds no longer.
  void Touch() { Release(); }

  // Hands over how things are, before a command starts. When the last End() was kQuiet and so is
  // this, and nobody touched since, what was seen then still holds: no walk. Calls back at once
  // where neither a worker nor the clock is needed.
  void Begin(Others others, Taken taken);
  // What changed since `before`; calls back at once or later, as Begin().
  void End(SnapshotPointer before, Others others, Told told);

 private:
  struct Files;  // shared with the workers
  struct Walked {
    SnapshotPointer now;
    std::optional<rootfs::ChangeSet> changes;
  };
  using Finished = std::function<void(Walked)>;

  void Walk(SnapshotPointer before, Finished finished);
  void WalkOnWorker(SnapshotPointer before, Finished finished);
  void Settle(SnapshotPointer snapshot, Taken taken);
  void Keep(SnapshotPointer snapshot);
  void Release();
  void Resolve(uint64_t number, Walked walked);

  Loop& loop_;
  Worker& worker_;
  SnapshotBudget& budget_;
  std::shared_ptr<Files> files_;
  SnapshotPointer last_;  // nothing ran since
  size_t last_size_ = 0;  // entries of the last walk
  std::map<uint64_t, Finished> due_;
  uint64_t next_number_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Whether this kernel's tmpfs tells two changes apart that are closer together than a clock tick,
// once a change time has been read (multigrain timestamps, Linux 6.13). Found by trying.
bool HasFineChangeTimes();

}  // namespace hutch::daemon
