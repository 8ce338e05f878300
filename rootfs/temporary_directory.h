// A directory of the store's that goes at the end of the scope; a crash leaves it to the sweep.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace hutch::rootfs {

inline constexpr char kTemporaryPrefix[] = ".tmp-";

class TemporaryDirectory {
 public:
  // Makes <parent>/.tmp-<random>/fs, both 0700.
  static Result<TemporaryDirectory> Make(const std::string& parent);
  TemporaryDirectory(TemporaryDirectory&& o) noexcept : path_(std::exchange(o.path_, "")) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }
  std::string fs() const { return path_ + "/fs"; }
  // Gives it its name for good. A directory of that name that is there already stays, and this one
  // goes. The caller syncs.
  Status RenameTo(const std::string& path);

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace hutch::rootfs
