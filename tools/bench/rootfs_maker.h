// The one root file system that all contestants run on, and the same as an image for hutch.
#pragma once

#include <string>

#include "base/result.h"

namespace hutch::tools {

// A directory that is removed with everything in it.
class WorkDirectory {
 public:
  // mkdtemp below `parent`, mode 0755: sandboxes' users must reach the root file system.
  static Result<WorkDirectory> Make(const std::string& parent);
  WorkDirectory(WorkDirectory&& o) noexcept : path_(std::exchange(o.path_, {})) {}
  WorkDirectory& operator=(WorkDirectory&&) = delete;
  ~WorkDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit WorkDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Unpacks an image of an OCI layout with umoci; returns the root file system's directory.
Result<std::string> UnpackLayout(const std::string& layout, const std::string& work);
// A root file system of the host's static busybox.
Result<std::string> MakeBusyboxRootfs(const std::string& work);
// An OCI layout whose one image has the contents of `rootfs`, made with umoci.
Result<std::string> MakeLayout(const std::string& rootfs, const std::string& work);

}  // namespace hutch::tools
