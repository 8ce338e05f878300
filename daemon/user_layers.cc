#include "daemon/user_layers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "daemon/limits.h"
#include "rootfs/digest.h"

namespace hutch::daemon {
namespace {

constexpr char kUserName[] = "sandbox";
constexpr char kHalfMade[] = ".making";

template <class Entries>
std::string FreeName(const Entries& entries, const std::string& otherwise) {
  const auto taken = [&](const std::string& name) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return e.name == name; });
  };
  if (!taken(kUserName)) return kUserName;
  return otherwise;
}

std::string WholeLines(const std::string& text) {
  return text.empty() || text.back() == '\n' ? text : text + "\n";
}

Status WriteWorldReadable(const std::string& path, const std::string& text) {
  RETURN_IF_ERROR(WriteFileAtomic(path, text, Durability::kMemory));
  if (::chmod(path.c_str(), 0644) != 0) return SysError(errno, "chmod " + path);
  return OkStatus();
}

Status MakeReadableDirectory(const std::string& path) {
  RETURN_IF_ERROR(MakeDirectories(path, 0755));
  if (::chmod(path.c_str(), 0755) != 0) return SysError(errno, "chmod " + path);
  return OkStatus();
}

// As one text, so that its digest names the layer.
std::string ContentOf(const UserFiles& files) {
  std::string text = std::to_string(files.passwd.size()) + ":" + files.passwd + files.group;
  if (files.directories.empty()) return text;
  // No image's own text can read like this one.
  text = "directories:" + std::to_string(files.group.size()) + ":" + text;
  for (const LayerDirectory& d : files.directories)
    text += "\n" + d.path + std::string(1, '\0') + std::to_string(d.mode) + " " +
            std::to_string(d.uid) + " " + std::to_string(d.gid);
  return text;
}

Status FillLayer(const std::string& layer, const UserFiles& files) {
  for (const LayerDirectory& d : files.directories) {
    const std::string path = layer + d.path;
    RETURN_IF_ERROR(MakeDirectories(path, 0700));
    if (::lchown(path.c_str(), d.uid, d.gid) != 0) return SysError(errno, "chown " + path);
    if (::chmod(path.c_str(), d.mode) != 0) return SysError(errno, "chmod " + path);
  }
  if (files.name.empty()) return OkStatus();
  RETURN_IF_ERROR(MakeReadableDirectory(layer + "/etc"));
  RETURN_IF_ERROR(WriteWorldReadable(layer + "/etc/passwd", files.passwd));
  return WriteWorldReadable(layer + "/etc/group", files.group);
}

}  // namespace

UserFiles PlanUserFiles(const ImageUsers& image, uint32_t uid, uint32_t gid) {
  const auto has = [](const auto& entries, auto member, uint32_t id) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return e.*member == id; });
  };
  const bool has_user = has(image.users, &PasswdEntry::uid, uid);
  const bool has_group = has(image.groups, &GroupEntry::gid, gid);
  UserFiles files;
  if (has_user && has_group) return files;
  const std::string number = std::to_string(uid);
  files.passwd = WholeLines(image.passwd_text);
  files.group = WholeLines(image.group_text);
  if (image.users.empty()) files.passwd += "root:x:0:0:root:/root:/bin/sh\n";
  if (image.groups.empty()) files.group += "root:x:0:\n";
  files.name = uid == 0 ? "root" : FreeName(image.users, "user" + number);
  if (!has_user && uid != 0)
    files.passwd +=
        files.name + ":x:" + number + ":" + std::to_string(gid) + "::/home/sandbox:/bin/sh\n";
  if (!has_user && uid == 0 && !image.users.empty())
    files.passwd += "root:x:0:0:root:/root:/bin/sh\n";
  if (!has_group && (gid != 0 || !image.groups.empty()))
    files.group += (gid == 0 ? "root" : FreeName(image.groups, "group" + std::to_string(gid))) +
                   ":x:" + std::to_string(gid) + ":\n";
  if (has_user) {
    const auto entry = std::find_if(image.users.begin(), image.users.end(),
                                    [&](const PasswdEntry& e) { return e.uid == uid; });
    files.name = entry->name;
  }
  return files;
}

Status UserLayers::Sweep(const std::set<std::string>& in_use) {
  if (!PathExists(directory_)) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  for (const std::string& name : names)
    if (!in_use.contains(name)) RETURN_IF_ERROR(RemoveTree(directory_ + "/" + name));
  return OkStatus();
}

Result<std::string> UserLayers::Make(const UserFiles& files, const std::set<std::string>& in_use) {
  ASSIGN_OR_RETURN(std::string name, rootfs::HexOf(rootfs::DigestOf(ContentOf(files))));
  const std::string path = directory_ + "/" + name;
  if (PathExists(path)) return name;
  RETURN_IF_ERROR(MakeDirectories(directory_, 0700));
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(directory_));
  if (names.size() >= kMaxUserLayers) {
    RETURN_IF_ERROR(Sweep(in_use));
    ASSIGN_OR_RETURN(names, ListDirectory(directory_));
  }
  if (names.size() >= kMaxUserLayers)
    return Error{.code = Code::kLimit,
                 .what = "living sandboxes have " + std::to_string(names.size()) +
                         " users and mount points that their images do not know",
                 .field = "user"};
  const std::string half = directory_ + "/" + kHalfMade;
  RETURN_IF_ERROR(RemoveTree(half));
  RETURN_IF_ERROR(MakeReadableDirectory(half));
  RETURN_IF_ERROR(FillLayer(half, files));
  if (::rename(half.c_str(), path.c_str()) != 0) return SysError(errno, "rename " + half);
  return name;
}

Result<UniqueFd> UserLayers::Open(const std::string& name) const {
  return hutch::Open(directory_ + "/" + name, O_PATH | O_DIRECTORY);
}

}  // namespace hutch::daemon
