// Volumes as the API has them: what there is and who uses it, made, grown, copied and removed on
// threads that may wait for the disk. On the loop's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/label_selector.h"
#include "daemon/loop.h"
#include "daemon/progress_events.h"
#include "daemon/sandbox_volumes.h"
#include "daemon/sandboxes.h"
#include "daemon/worker.h"
#include "rootfs/volumes.h"

namespace hutch::daemon {

class VolumeKeeping {
 public:
  // Borrows everything. `images`: one thread for what needs an image at rest, so that sandboxes do
  // not wait for it.
  VolumeKeeping(Loop& loop, Worker& worker, Worker& images, const Config& config,
                rootfs::Volumes& volumes, Sandboxes& sandboxes)
      : loop_(loop),
        worker_(worker),
        images_(images),
        config_(config),
        volumes_(volumes),
        sandboxes_(sandboxes) {}
  ~VolumeKeeping() { *stopping_ = true; }  // copies under way end

  oci::Json List(const std::vector<LabelSelector>& labels) const;
  Result<oci::Json> Get(const std::string& name) const;

  // Called on the loop's thread. kUnavailable at once when too many jobs wait.
  using Done = std::function<void(const Result<oci::Json>&)>;
  // Errors as rootfs::Volumes has them; kLimit past limits.volumes_total_bytes.
  Status Create(rootfs::VolumeFacts wanted, Done done);
  Status Grow(const std::string& name, uint64_t size_bytes, Done done);
  // `cancelled` ends it: nobody waits any more.
  using Cancelled = std::shared_ptr<std::atomic<bool>>;
  Status Copy(const std::string& from, const std::string& to, Progress progress,
              Cancelled cancelled, Done done);
  // kBadState naming the sandboxes that use it.
  Status Remove(const std::string& name, Done done);
  // Those that no sandbox uses and that fit the labels; a dry run removes none.
  enum class PruneMode { kRemove, kDryRun };
  Status Prune(const std::vector<LabelSelector>& labels, PruneMode mode, Done done);

  // Makes those that are wanted with a size and are not there, and mounts all of them; what `then`
  // gets keeps them mounted. kNotFound with the field and a hint.
  void Prepare(const std::vector<VolumeFields>& wanted,
               std::function<void(const Result<HeldVolumes>&)> then);

 private:
  Status CheckTotal(uint64_t more_bytes) const;
  std::vector<const SandboxEntry*> UsersOf(const std::string& name) const;
  oci::Json ToJson(const rootfs::VolumeFacts& facts) const;
  using Job = std::function<Result<rootfs::VolumeFacts>()>;
  Status Submit(Worker& worker, Job job, Done done);

  Loop& loop_;
  Worker& worker_;
  Worker& images_;
  const Config& config_;
  rootfs::Volumes& volumes_;
  Sandboxes& sandboxes_;
  Cancelled stopping_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace hutch::daemon
