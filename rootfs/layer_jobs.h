// The layers of one import: unpacked, or only verified where the store has them, several at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "rootfs/image_source.h"
#include "rootfs/store.h"
#include "rootfs/temporary_directory.h"
#include "rootfs/unpack_process.h"

namespace hutch::rootfs {

struct LayerJob {
  LayerSource layer;
  UnpackMode mode;  // kLayer or kVerify
  // What RunLayerJobs fills in:
  std::optional<TemporaryDirectory> directory;  // kLayer: fs/ holds the layer, opaque marks set
  UnpackReport report;
};

// Runs every job in a confined unpacker below `parent`. Each digest the layer claims was verified
// when this succeeds, and layer.digest and .size are known. kCorrupt names the digest; the first
// error stops the others. Reports bytes read of all of them as stage "unpack".
Status RunLayerJobs(const SourceFiles& files, const std::string& parent, const std::string& subject,
                    const ProgressFn& progress, std::vector<LayerJob>* jobs);

}  // namespace hutch::rootfs
