#include "files/open.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/request.h"

namespace hutch::files {
namespace {

constexpr mode_t kParentMode = 0755;

}  // namespace

Result<OpenedFile> OpenRegular(const std::string& path) {
  // O_PATH first: opening a FIFO or a device has effects, looking at it has none. What is opened
  // then is looked at again, since the name may have become another's.
  const UniqueFd handle(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!handle.valid()) return FileError(errno, "open", path);
  OpenedFile file;
  if (::fstat(handle.get(), &file.st) != 0) return FileError(errno, "stat", path);
  RETURN_IF_ERROR(RequireRegular(file.st.st_mode, path));
  file.fd.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.fd.valid()) return FileError(errno, "open", path);
  if (::fstat(file.fd.get(), &file.st) != 0) return FileError(errno, "stat", path);
  RETURN_IF_ERROR(RequireRegular(file.st.st_mode, path));
  return file;
}

Status MakeDirectoriesFor(const std::string& directory, mode_t mode) {
  // Most often it is there.
  if (::mkdir(directory.c_str(), mode) == 0) return OkStatus();
  if (errno != ENOENT && errno != EEXIST) return FileError(errno, "mkdir", directory);
  for (size_t at = 1; at != std::string::npos && at <= directory.size();) {
    const size_t end = std::min(directory.find('/', at), directory.size());
    const std::string prefix = directory.substr(0, end);
    at = end + 1;
    if (::mkdir(prefix.c_str(), mode) != 0 && errno != EEXIST)
      return FileError(errno, "mkdir", prefix);
  }
  struct stat st {};
  if (::stat(directory.c_str(), &st) != 0) return FileError(errno, "mkdir", directory);
  return S_ISDIR(st.st_mode) ? OkStatus() : Status(FileError(ENOTDIR, "mkdir", directory));
}

Result<Place> FindLinkPlace(const std::string& path, Parents parents) {
  Place place{.directory = UniqueFd(), .name = NameOf(path), .shown = path};
  if (place.name.empty() || place.name == "." || place.name == "..")
    return Invalid("\"" + path + "\" has no name at its end", "path");
  const std::string directory = DirectoryOf(path);
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  place.directory.reset(::open(directory.c_str(), kFlags));
  if (!place.directory.valid() && errno == ENOENT && parents == Parents::kMake) {
    RETURN_IF_ERROR(MakeDirectoriesFor(directory, kParentMode));
    place.directory.reset(::open(directory.c_str(), kFlags));
  }
  if (!place.directory.valid()) return FileError(errno, "open", directory);
  return place;
}

Result<Place> FindPlace(const std::string& path, Parents parents) {
  // A name that ends with a slash is a directory's.
  if (path.ends_with('/')) return FileError(EISDIR, "open", path);
  std::string followed = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    ASSIGN_OR_RETURN(Place place, FindLinkPlace(followed, parents));
    struct stat st {};
    if (::fstatat(place.directory.get(), place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISLNK(st.st_mode))
      return place;
    auto target = ReadLinkAt(place.directory.get(), place.name, followed);
    if (!target) return std::move(target).error();
    if (!target->starts_with('/')) *target = JoinPath(DirectoryOf(followed), *target);
    followed = std::move(*target);
    if (followed.size() > kMaxPathBytes) return FileError(ENAMETOOLONG, "open", path);
  }
  return FileError(ELOOP, "open", path);
}

std::string TemporaryName() { return ".hutch-" + RandomBase32(16); }

}  // namespace hutch::files
