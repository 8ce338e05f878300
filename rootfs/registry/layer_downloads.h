// The layers of one image on their way, some at a time, as the store's import wants them.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "rootfs/layer_inputs.h"
#include "rootfs/registry/layer_download.h"
#include "rootfs/registry/session.h"
#include "rootfs/store.h"

namespace hutch::rootfs::registry {

class LayerDownloads : public LayerInputs {
 public:
  // Borrows session and store. `progress` may be empty.
  LayerDownloads(Session& session, Store& store, ProgressFn progress)
      : session_(session), store_(store), progress_(std::move(progress)) {}

  void Want(const LayerSource& layer) override;
  Result<LayerInput> Open(const LayerSource& layer) override;
  Status Wait(std::vector<struct pollfd>* waits, int timeout_ms) override;
  // After the image is in the store.
  void RemoveParts();

 private:
  struct Row {
    LayerDownload download;
    bool begun = false, over = false;
    SteadyTime reported = {};
  };
  Result<bool> StepAll(bool* busy);
  void Report(Row& row);

  Session& session_;
  Store& store_;
  const ProgressFn progress_;
  std::list<Row> rows_;  // in the order in which they are wanted
};

}  // namespace hutch::rootfs::registry
