// What a sandbox needs of its root and its image lacks: a passwd and a group entry for its user,
// and mount points. A small layer over the image's: the image's own text with the missing lines,
// and empty directories. Where nothing is missing none is made. One directory for each distinct
// content, on disk beside the images.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/image_users.h"
#include "daemon/writable_directories.h"

namespace hutch::daemon {

// What the layer holds; `name` is empty when the image knows the user.
struct UserFiles {
  std::string passwd, group;
  std::string name;                              // of the user
  std::vector<LayerDirectory> directories = {};  // parents first

  bool empty() const { return name.empty() && directories.empty(); }
};
// Pure. The user is called "sandbox", or by its number where that name is taken.
UserFiles PlanUserFiles(const ImageUsers& image, uint32_t uid, uint32_t gid);

class UserLayers {
 public:
  explicit UserLayers(std::string directory) : directory_(std::move(directory)) {}

  // The layer with these files, made when it is not there; returns its name. Past kMaxUserLayers
  // those that are not `in_use` are removed first; kLimit when that does not help.
  Result<std::string> Make(const UserFiles& files, const std::set<std::string>& in_use);
  Result<UniqueFd> Open(const std::string& name) const;  // O_PATH
  // At start: removes all that no living sandbox uses, half-made ones too.
  Status Sweep(const std::set<std::string>& in_use);

 private:
  std::string directory_;
};

}  // namespace hutch::daemon
