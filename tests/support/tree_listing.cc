#include "tests/support/tree_listing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "rootfs/digest.h"

namespace hutch {
namespace {

std::string Xattrs(const std::string& path) {
  char names[65536];
  const ssize_t size = ::llistxattr(path.c_str(), names, sizeof names);
  std::vector<std::string> all;
  for (const std::string& name :
       Split({names, static_cast<size_t>(std::max<ssize_t>(size, 0))}, '\0')) {
    if (name.empty()) continue;
    char value[65536];
    const ssize_t n = ::lgetxattr(path.c_str(), name.c_str(), value, sizeof value);
    all.push_back(name + "=" + HexEncode({value, static_cast<size_t>(std::max<ssize_t>(n, 0))}));
  }
  std::sort(all.begin(), all.end());
  return Join(all, ",");
}

std::string Content(const std::string& path, const struct stat& st) {
  if (S_ISLNK(st.st_mode)) {
    char target[4096];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    return " -> " + std::string(target, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
    return " device " + std::to_string(major(st.st_rdev)) + ":" + std::to_string(minor(st.st_rdev));
  if (!S_ISREG(st.st_mode)) return "";
  const auto fd = Open(path, O_RDONLY);
  uint64_t size = 0;
  const auto digest = fd ? rootfs::DigestOfFile(fd->get(), &size) : Result<std::string>(fd.error());
  return " size " + std::to_string(st.st_size) + " links " + std::to_string(st.st_nlink) + " " +
         (digest ? digest->substr(0, 23) : "unreadable");
}

void List(const std::string& root, const std::string& path, std::vector<std::string>* lines) {
  const std::string full = path == "." ? root : root + "/" + path;
  struct stat st {};
  if (::lstat(full.c_str(), &st) != 0) return;
  char line[256];
  std::snprintf(line, sizeof line, " %06o %u:%u %lld.%09ld", st.st_mode, st.st_uid, st.st_gid,
                static_cast<long long>(st.st_mtim.tv_sec), st.st_mtim.tv_nsec);
  lines->push_back(path + line + Content(full, st) + " " + Xattrs(full));
  if (!S_ISDIR(st.st_mode)) return;
  const auto names = ListDirectory(full);
  for (const std::string& name : names ? *names : std::vector<std::string>())
    List(root, path == "." ? name : path + "/" + name, lines);
}

}  // namespace

std::vector<std::string> ListTree(const std::string& root) {
  std::vector<std::string> lines;
  List(root, ".", &lines);
  return lines;
}

}  // namespace hutch
