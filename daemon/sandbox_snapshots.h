// What a sandbox wrote, as an image and as more sandboxes: files, never memory. On the loop's
// thread; files are read and written on threads of its own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/progress_events.h"
#include "daemon/sandboxes.h"
#include "daemon/worker.h"
#include "rootfs/layer_tar.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class SandboxSnapshots {
 public:
  // Borrows everything.
  SandboxSnapshots(Loop& loop, Sandboxes& sandboxes, rootfs::Store& store);
  ~SandboxSnapshots();
  SandboxSnapshots(const SandboxSnapshots&) = delete;
  SandboxSnapshots& operator=(const SandboxSnapshots&) = delete;

  // Images of forks that no sandbox uses any more go, from now on.
  void Start();

  struct Sealed {
    rootfs::Image image;
    rootfs::SkippedFiles skipped;
    uint64_t written_bytes = 0;  // of the layer, as a tar
    double frozen_ms = 0;        // 0 when it was paused already
  };
  using SealedDone = std::function<void(Result<Sealed>)>;
  // An image of its image's layers and of what it wrote since, named `reference`; empty: without a
  // name, kept while a sandbox uses it. All of it is frozen while its files are read: one that runs
  // goes on as soon as that is over, one that is paused stays so. `done` later, exactly once:
  // kUnavailable when it is sealed already, too many wait, or it does not freeze; kBadState when it
  // ends meanwhile; kUnsupported when its files are not known; and errors as Store::Seal.
  void Seal(SandboxEntry& entry, const std::string& reference, Progress progress, SealedDone done);

  struct ForkFields {
    size_t count = 1;
    std::string name;  // "box" gives box-1, box-2, ...; empty: none has a name
  };
  struct Forked {
    Sealed sealed;
    std::vector<std::string> ids;
  };
  using ForkedDone = std::function<void(Result<Forked>)>;
  class Fork;
  // Seals it and makes sandboxes of that with its settings, all or none. What they are promised is
  // counted before anything is done. `done` as of Seal; kExists for a name that is taken, kLimit
  // and kUnavailable as for creations, and the error of the one that could not be made.
  std::shared_ptr<Fork> Begin(SandboxEntry& entry, const ForkFields& fields, const Peer& peer,
                              Progress progress, ForkedDone done);
  // Nobody waits for them any more: they go. `done` is not called.
  void Abandon(const std::shared_ptr<Fork>& fork);

  struct DiffFields {
    std::string path = "/";  // it and what is below it
    size_t limit = 0;
  };
  // After the owners were counted anew: what forks under way have reserved counts, too.
  void CountReserved();

  // What differs from its image, now, read on `worker` while it runs on.
  void Diff(SandboxEntry& entry, const DiffFields& fields, Worker& worker,
            std::function<void(Result<rootfs::ChangeSet>)> done);

  // Whether none is being taken.
  bool idle() const { return running_.empty(); }

 private:
  struct Job;
  using JobPointer = std::shared_ptr<Job>;

  Status Prepare(SandboxEntry& entry, Job* job);
  Result<std::vector<UniqueFd>> LayersOf(const SandboxEntry& entry) const;
  void StartNext();
  void Freeze(const JobPointer& job);
  void Run(const JobPointer& job);
  void Thaw(Job& job);
  void End(const JobPointer& job, Result<Sealed> sealed);

  // Forks: sandbox_forks.cc.
  Status Reserve(const SandboxFields& fields, const ForkFields& wanted, const Peer& peer);
  void Release(const SandboxFields& fields, uint32_t uid);
  void MakeMore(const std::shared_ptr<Fork>& fork);
  void Made(const std::shared_ptr<Fork>& fork, size_t index, Result<SandboxEntry*> made);
  void Finish(const std::shared_ptr<Fork>& fork);
  void GiveUp(const std::shared_ptr<Fork>& fork);

  void Keep(const std::string& image_id);
  void ScheduleSweep();
  void Sweep();

  Loop& loop_;
  Sandboxes& sandboxes_;
  rootfs::Store& store_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<JobPointer> waiting_;
  std::set<JobPointer> running_;
  std::set<std::shared_ptr<Fork>> forks_;  // that have reserved something
  std::set<std::string> kept_;             // ids of images that go when nobody uses them
  std::multiset<std::string> in_making_;   // of them, those that forks are being made of
  Timer sweep_timer_;
  Worker worker_;  // last: its jobs end before what they use
};

}  // namespace hutch::daemon
