// Opening what is to be read, and making what is to be written: by path, with the rights of
// whoever runs this, so that the kernel itself answers what may be reached.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::files {

// A regular file, for reading; symlinks are followed. Never blocks on a FIFO and never opens a
// device or a socket: kNotAFile, kIsDirectory.
struct OpenedFile {
  UniqueFd fd;
  struct stat st;
};
Result<OpenedFile> OpenRegular(const std::string& path);

// mkdir -p with `mode`, as the calling user. "Already there" is success; something else than a
// directory on the way is kNotDirectory.
Status MakeDirectoriesFor(const std::string& directory, mode_t mode);

// The place that a write to `path` goes to: symlinks as the last component are followed, a
// dangling one included. The directory is held by descriptor; the name has one component.
struct Place {
  UniqueFd directory;
  std::string name;
  std::string shown;
};
enum class Parents { kMustExist, kMake };
Result<Place> FindPlace(const std::string& path, Parents parents);
// The same, but a symlink as the last component is the place itself.
Result<Place> FindLinkPlace(const std::string& path, Parents parents);

// A name that is in nobody's way: ".hutch-" and random letters.
std::string TemporaryName();

}  // namespace hutch::files
