// One layer on its way into its part file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rootfs/image_source.h"
#include "rootfs/registry/exchange.h"
#include "rootfs/registry/part_file.h"
#include "rootfs/registry/session.h"

namespace hutch::rootfs::registry {

class LayerDownload : private BodySink {
 public:
  enum class State {
    kLocking,    // another pull has the part
    kHashing,    // what an earlier pull left
    kFetching,   // or waiting before the next attempt
    kReady,      // all there, digest verified; others may have the part
    kNotNeeded,  // another pull put the layer into the store meanwhile
  };
  // Borrows the session. `has_layer` tells whether the store has a diffID.
  LayerDownload(Session& session, LayerSource layer, std::string directory,
                std::function<bool(const std::string&)> has_layer);

  // Moves it on without waiting. The error of a layer that cannot be had names its digest:
  // kCorrupt, kNotFound, kForbidden, kUnavailable, kNoSpace.
  Status Step();
  State state() const { return state_; }
  // Step has something to do at once.
  bool IsBusy() const { return state_ == State::kHashing; }
  const LayerSource& layer() const { return layer_; }
  uint64_t done_bytes() const { return part_ ? part_->size() : 0; }
  Result<UniqueFd> OpenForReading() const;
  // The part is needed no more.
  Status RemovePart();

 private:
  Status Begin(const HttpReply& head) override;
  Status Take(std::string_view bytes) override;
  Status StepOnce();
  Status LockPart();
  Status Fetch();
  Status AfterFailure(Error error);
  Status Verify();
  Status StartOver();
  Error Corrupt(const std::string& why) const;
  std::vector<std::string> Headers() const;

  Session& session_;
  const LayerSource layer_;
  const std::string directory_;
  const std::function<bool(const std::string&)> has_layer_;
  State state_ = State::kLocking;
  std::optional<PartFile> part_;
  std::unique_ptr<Exchange> exchange_;
  size_t endpoint_ = 0;
  bool use_range_ = true;      // until a server answered a range wrongly
  bool range_failed_ = false;  // the sink ended the transfer for that
  uint64_t furthest_ = 0;      // bytes ever had
  int wrong_ = 0;              // times that the bytes were not the layer's, at this endpoint
};

}  // namespace hutch::rootfs::registry
