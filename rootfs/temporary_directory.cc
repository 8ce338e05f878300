#include "rootfs/temporary_directory.h"

#include <cstdio>

#include "base/file.h"
#include "base/text.h"

namespace hutch::rootfs {

Result<TemporaryDirectory> TemporaryDirectory::Make(const std::string& parent) {
  constexpr size_t kCharacters = 16;
  TemporaryDirectory directory(parent + "/" + kTemporaryPrefix + RandomBase32(kCharacters));
  RETURN_IF_ERROR(MakeDirectories(directory.fs(), 0700));
  return directory;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (!path_.empty()) IgnoreError(RemoveTree(path_), "swept at the next start");
}

Status TemporaryDirectory::RenameTo(const std::string& path) {
  if (PathExists(path)) return OkStatus();
  if (::rename(path_.c_str(), path.c_str()) != 0) return SysError(errno, "rename to " + path);
  path_.clear();
  return OkStatus();
}

}  // namespace hutch::rootfs
