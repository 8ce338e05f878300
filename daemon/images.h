// Image requests: quick ones from the store's index on the loop's thread, slow ones on a worker
// with progress.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/sandboxes.h"
#include "daemon/worker.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class Images {
 public:
  // Borrows everything. Builds happen in <state_dir>/build/.
  Images(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes,
         std::string state_dir);

  oci::Json List() const;
  Result<oci::Json> Get(const std::string& reference) const;

  // Both callbacks run on the loop's thread.
  using Progress = std::function<void(const rootfs::Progress&)>;
  using Done = std::function<void(Result<oci::Json>)>;
  Status Import(const std::string& path, const std::string& reference, Progress progress,
                Done done);
  Status Build(const std::string& name, Progress progress, Done done);
  Status Remove(const std::string& reference, Done done);

 private:
  rootfs::ProgressFn Throttled(Progress progress);
  void Finish(Done done, Result<rootfs::Image> image);

  Loop& loop_;
  Worker& worker_;
  rootfs::Store& store_;
  Sandboxes& sandboxes_;
  std::string state_dir_;
};

oci::Json ImageJson(const rootfs::Image& image);
// What an image says of itself, as it says it.
oci::Json ImageConfigJson(const oci::ImageConfig& config);

}  // namespace hutch::daemon
