// GET /v1/info: the daemon about itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cgroups/tree.h"
#include "daemon/config.h"
#include "daemon/loop.h"
#include "daemon/sandboxes.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

// What this kernel can do, found by trying.
std::vector<std::string> ProbeFeatures();

class Info {
 public:
  // Borrows everything but the features.
  Info(const Config& config, const cgroups::Tree& tree, const runtime::Runtime& runtime,
       const Sandboxes& sandboxes, std::vector<std::string> features);
  runtime::Runtime::PoolState pool_state() const { return runtime_.pool_state(); }
  WallTime started_at() const { return started_at_; }
  // Says where the configuration is from and when it was read.
  void SetConfigurationView(std::function<oci::Json()> view) { configuration_ = std::move(view); }
  oci::Json ToJson() const;  // without "catalog": the operator's directory is read for that

 private:
  const Config& config_;
  const cgroups::Tree& tree_;
  const runtime::Runtime& runtime_;
  const Sandboxes& sandboxes_;
  std::vector<std::string> features_;
  WallTime started_at_;
  std::function<oci::Json()> configuration_ = [] { return oci::Json(); };
};

}  // namespace hutch::daemon
