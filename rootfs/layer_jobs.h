// The layers of one import: unpacked, or only verified where the store has them, several at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/image_source.h"
#include "rootfs/layer_inputs.h"
#include "rootfs/store.h"
#include "rootfs/temporary_directory.h"
#include "rootfs/unpack_process.h"

namespace hutch::rootfs {

struct LayerJob {
  LayerSource layer;
  UnpackMode mode;  // kLayer or kVerify
  // What RunLayerJobs fills in:
  // kLayer: fs/ holds the layer, opaque marks set; none when the input was not needed
  std::optional<TemporaryDirectory> directory;
  UnpackReport report;
};

struct LayerRun {
  std::string parent;    // directory of the temporary ones
  std::string subject;   // of the progress reports
  ProgressFn progress;   // may be empty
  unsigned seconds = 0;  // for all of it, then kTooLarge
};

// Runs every job in a confined unpacker as its bytes are there. Each digest the layer claims was
// verified when this succeeds, and layer.digest and .size are known; so is the diffID of one that
// claims none. kCorrupt names the digest; the
// first error stops the others. Reports bytes read of all of them as stage "unpack".
Status RunLayerJobs(const LayerRun& run, LayerInputs& inputs, std::vector<LayerJob>* jobs);

}  // namespace hutch::rootfs
