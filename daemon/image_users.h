// Users by name, as an image's own /etc/passwd and /etc/group have them. The host's are never asked
// (no NSS). Files of images are untrusted: bounded, read through RootedPath, and what is malformed
// is skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/create_request.h"

namespace hutch::daemon {

struct PasswdEntry {
  std::string name;
  uint32_t uid, gid;
};
struct GroupEntry {
  std::string name;
  uint32_t gid;
};

std::vector<PasswdEntry> ParsePasswd(std::string_view text);
std::vector<GroupEntry> ParseGroup(std::string_view text);

struct ImageUsers {
  std::vector<PasswdEntry> users;
  std::vector<GroupEntry> groups;
  std::string passwd_text = {}, group_text = {};  // as the image has them
};

// From the topmost layer that has each file (O_PATH directories, lowest first). An image without
// them has no names.
ImageUsers ReadImageUsers(const std::vector<int>& layers);

// "uid", "uid:gid", "name", "name:group" and mixtures; numbers first. Without a group: that of the
// image's passwd entry, else the uid's number. kInvalidArgument for an unknown name or a malformed
// number, field "user".
Result<ResolvedUser> ResolveUser(const ImageUsers& users, const std::string& user);

}  // namespace hutch::daemon
