// Image requests that take their time: on a worker, with progress.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/progress_events.h"
#include "daemon/pulls.h"
#include "daemon/sandboxes.h"
#include "daemon/worker.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class Images {
 public:
  // Borrows everything. Builds happen in <config.state_dir>/build/.
  Images(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes, Pulls& pulls,
         const Config& config);

  bool Has(const std::string& reference) const;
  // The name as a registry knows it. kInvalidArgument when it is none, or names no registry where
  // the operator has set no default; kForbidden when its registry is not among those allowed.
  Result<rootfs::Reference> Pullable(const std::string& text) const;
  Pulls& pulls() { return pulls_; }
  // What can be built, and which image came of it. `reader` reads the files; `done` runs on the
  // loop's thread. kUnavailable when too much waits.
  Status ListCatalog(Worker& reader, std::function<void(oci::Json)> done);

  // Both callbacks run on the loop's thread.
  using Done = std::function<void(Result<oci::Json>)>;
  Status Import(const std::string& path, const std::string& reference, Progress progress,
                Done done);
  Status Build(const std::string& name, Progress progress, Done done);
  Status Remove(const std::string& reference, Done done);

 private:
  void Finish(Done done, Result<rootfs::Image> image);

  Loop& loop_;
  Worker& worker_;
  rootfs::Store& store_;
  Sandboxes& sandboxes_;
  Pulls& pulls_;
  const Config& config_;
};

oci::Json ImageJson(const rootfs::Image& image);

}  // namespace hutch::daemon
