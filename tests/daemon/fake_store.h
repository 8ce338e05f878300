// An image store of one image, for tests of the daemon's own logic.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "rootfs/store.h"

namespace hutch::daemon {

class FakeStore final : public rootfs::Store {
 public:
  FakeStore() {
    image.id = "sha256:" + std::string(64, '1');
    image.references = {"busybox:latest"};
    image.diff_ids = {"sha256:" + std::string(64, '2')};
    image.config.env = {"FROM_IMAGE=1"};
  }
  rootfs::Image image;
  std::vector<std::string> in_use_seen;
  std::function<Result<rootfs::Image>(const rootfs::ProgressFn&)> import;
  std::function<Result<Pruned>(const PruneRequest&)> prune;

  Result<rootfs::Image> Import(const std::string&, const std::string&,
                               const rootfs::ProgressFn& progress) override {
    return import(progress);
  }
  Result<rootfs::Image> Resolve(const std::string& reference) override {
    if (reference == "busybox" || reference == image.id) return image;
    for (const std::string& name : image.references)
      if (reference == name) return image;
    return Error{.code = Code::kNotFound, .what = "no image " + reference};
  }
  std::vector<rootfs::Image> List() override { return {image}; }
  Result<Removed> Remove(const std::string&, const std::string& image_id,
                         const std::vector<std::string>& in_use) override {
    EXPECT_EQ(image_id, image.id);  // the one that was blocked
    in_use_seen = in_use;
    return Removed{.references = image.references, .layers = image.diff_ids, .freed_bytes = 1};
  }
  Result<Pruned> Prune(const PruneRequest& request) override { return prune(request); }
  Result<UniqueFd> OpenLayer(const std::string&) override {
    return hutch::Open("/", O_PATH | O_DIRECTORY);
  }
};

}  // namespace hutch::daemon
