// What is in the image store: what each image takes and is made of, its names, and what can go.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "daemon/loop.h"
#include "daemon/sandboxes.h"
#include "daemon/worker.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class ImageKeeping {
 public:
  // Borrows everything; on the loop's thread.
  ImageKeeping(Loop& loop, Worker& worker, rootfs::Store& store, Sandboxes& sandboxes)
      : loop_(loop), worker_(worker), store_(store), sandboxes_(sandboxes) {}
  ~ImageKeeping() { stopping_ = true; }  // before the worker: its jobs wait for the loop

  // Every image with what it takes of the disk, alone and with others.
  oci::Json List() const;
  // kNotFound; kInvalidArgument for an ambiguous prefix.
  Result<oci::Json> Get(const std::string& reference) const;
  // The same; and kInvalidArgument for a history out of bounds.
  Result<oci::Json> History(const std::string& reference) const;

  // Called on the loop's thread.
  using Done = std::function<void(Result<oci::Json>)>;
  // The image by its new name. Errors as Store::Tag; kUnavailable when too many jobs wait.
  Status Tag(const std::string& reference, const std::string& name, Done done);
  struct PruneFields {
    bool all = false, dry_run = false;
  };
  // From when its turn comes until it is done no sandbox can be made of an image that may go; a dry
  // run hinders nobody.
  Status Prune(const PruneFields& fields, Done on_done);

 private:
  rootfs::Store::PruneRequest Choose(const PruneFields& fields);
  std::map<std::string, uint64_t> UsesOfLayers() const;  // images that have each
  std::vector<std::string> SandboxesOf(const std::string& image_id) const;

  Loop& loop_;
  Worker& worker_;
  rootfs::Store& store_;
  Sandboxes& sandboxes_;
  std::atomic<bool> stopping_ = false;
};

}  // namespace hutch::daemon
