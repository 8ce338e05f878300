#include "files/entry.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>

#include "base/text.h"
#include "files/errors.h"
#include "files/request.h"

namespace hutch::files {
namespace {

// Times that chrono cannot hold are a tenant's to set; the nearest that it can is shown.
std::string TimeText(const struct timespec& time) {
  constexpr int64_t kLastSecond = 9'000'000'000;  // in the year 2255
  const int64_t seconds = std::clamp<int64_t>(time.tv_sec, -kLastSecond, kLastSecond);
  return FormatRfc3339(
      WallTime(std::chrono::milliseconds(seconds * 1000 + time.tv_nsec / 1000000)));
}

}  // namespace

std::string EntityTag(const struct stat& st) {
  char text[160];
  std::snprintf(
      text, sizeof text, "%lx-%lx-%lx-%lx.%lx-%lx.%lx", st.st_dev, st.st_ino,
      static_cast<unsigned long>(st.st_size), static_cast<unsigned long>(st.st_mtim.tv_sec),
      static_cast<unsigned long>(st.st_mtim.tv_nsec), static_cast<unsigned long>(st.st_ctim.tv_sec),
      static_cast<unsigned long>(st.st_ctim.tv_nsec));
  return text;
}

oci::Json EntryJson(const struct stat& st) {
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", st.st_mode & 07777);
  return {{"type", TypeName(st.st_mode)},
          {"size", st.st_size},
          {"mode", mode},
          {"uid", st.st_uid},
          {"gid", st.st_gid},
          {"mtime", TimeText(st.st_mtim)},
          {"etag", EntityTag(st)}};
}

Result<std::string> ReadLinkAt(int dir_fd, const std::string& name, const std::string& shown) {
  std::string target(PATH_MAX, '\0');
  const ssize_t n = ::readlinkat(dir_fd, name.c_str(), target.data(), target.size());
  if (n < 0) return FileError(errno, "readlink", shown);
  target.resize(static_cast<size_t>(n));
  return target;
}

Result<oci::Json> EntryAt(int dir_fd, const std::string& name, const std::string& shown) {
  struct stat st {};
  const int flags = AT_SYMLINK_NOFOLLOW | (name.empty() ? AT_EMPTY_PATH : 0);
  if (::fstatat(dir_fd, name.c_str(), &st, flags) != 0) return FileError(errno, "stat", shown);
  oci::Json entry = EntryJson(st);
  PutPath(entry, "path", shown);
  if (!S_ISLNK(st.st_mode)) return entry;
  auto target = ReadLinkAt(dir_fd, name, shown);
  if (target) PutPath(entry, "target", *target);  // one that was replaced meanwhile has none
  return entry;
}

}  // namespace hutch::files
