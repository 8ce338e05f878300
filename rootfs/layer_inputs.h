// Where the packed layers of an import come from: files that are there, or a registry that is still
// sending them.
#pragma once

#include <poll.h>

#include <vector>

#include "base/result.h"
#include "rootfs/image_source.h"
#include "rootfs/source_files.h"

namespace hutch::rootfs {

struct LayerInput {
  enum class State {
    kPending,    // not all there yet
    kReady,      // `file` holds it; the reader owns the descriptor
    kNotNeeded,  // somebody else put the layer into the store meanwhile
  };
  State state = State::kPending;
  SourceFiles::File file{UniqueFd(), 0};
};

class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  // Announces a layer that will be opened; in the order in which they are wanted.
  virtual void Want(const LayerSource& layer) = 0;
  // Never blocks. kNotFound when the source has no such layer.
  virtual Result<LayerInput> Open(const LayerSource& layer) = 0;
  // poll(2) of `waits`, during which layers go on coming; returns early when one has come. An error
  // ends the import: that of a layer that cannot be had, or kUnavailable when it was cancelled.
  virtual Status Wait(std::vector<struct pollfd>* waits, int timeout_ms) = 0;
};

// The layers of an image in files: all of them are there.
class FileInputs : public LayerInputs {
 public:
  explicit FileInputs(const SourceFiles& files) : files_(files) {}  // borrowed
  void Want(const LayerSource&) override {}
  Result<LayerInput> Open(const LayerSource& layer) override;
  Status Wait(std::vector<struct pollfd>* waits, int timeout_ms) override;

 private:
  const SourceFiles& files_;
};

}  // namespace hutch::rootfs
