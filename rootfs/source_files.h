// The files an image is imported from: a directory, or a tar that is read where it lies. Nothing is
// copied but what a compressed tar holds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rootfs/unpack_process.h"

namespace hutch::rootfs {

class SourceFiles {
 public:
  // `path` is trusted, what lies below or inside is not. A tar is looked through by the confined
  // unpacker; `scratch_parent` is where its empty root and an unnamed inflated copy may be made.
  // kNotFound, kInvalidArgument, kCorrupt, kTooLarge, kNoSpace.
  static Result<SourceFiles> Open(const std::string& path, const std::string& scratch_parent);

  struct File {
    UniqueFd fd;  // an open file description of its own, standing at the first byte
    uint64_t size = 0;
  };
  // A regular file by its path. Links are followed inside the source only. kNotFound.
  Result<File> OpenFile(const std::string& file) const;
  // The bytes of a small one: kTooLarge above kMaxDocumentBytes.
  Result<std::string> ReadDocument(const std::string& file) const;

 private:
  explicit SourceFiles(UniqueFd fd) : fd_(std::move(fd)) {}
  Status IndexTar(const std::string& scratch_parent);
  Result<const IndexedFile*> FindInTar(const std::string& file) const;

  UniqueFd fd_;  // the directory, or the plain tar
  bool is_tar_ = false;
  std::map<std::string, IndexedFile> tar_;  // by path
};

}  // namespace hutch::rootfs
