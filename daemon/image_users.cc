#include "daemon/image_users.h"

#include <fcntl.h>

#include <algorithm>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

Error Unknown(const std::string& what) {
  return Error{.code = Code::kInvalidArgument,
               .what = what,
               .field = "user",
               .hint = "give numbers: uid:gid"};
}

// Lines of exactly `count` fields between colons; others are skipped.
std::vector<std::vector<std::string>> ParseTable(std::string_view text, size_t count) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : Split(text, '\n')) {
    std::vector<std::string> fields = Split(line, ':');
    if (fields.size() == count && !fields[0].empty()) rows.push_back(std::move(fields));
  }
  return rows;
}

// Empty when no layer has it as a regular file of a sane size.
std::string ReadTopmost(const std::vector<int>& layers, const std::string& path) {
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const Result<RootedPath> rooted = RootedPath::Make(*layer, path);
    if (!rooted.has_value()) continue;
    const Result<UniqueFd> file = rooted->OpenRegularFile();
    if (!file.has_value()) continue;
    Result<std::string> text = ReadAll(file->get(), kMaxPasswdBytes);
    return text.has_value() ? std::move(*text) : std::string();
  }
  return {};
}

bool IsNumber(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<PasswdEntry> ParsePasswd(std::string_view text) {
  std::vector<PasswdEntry> entries;
  for (std::vector<std::string>& row : ParseTable(text, 7)) {
    const Result<uint32_t> uid = ParseId(row[2]), gid = ParseId(row[3]);
    if (!uid.has_value() || !gid.has_value()) continue;
    entries.push_back({.name = std::move(row[0]), .uid = *uid, .gid = *gid});
  }
  return entries;
}

std::vector<GroupEntry> ParseGroup(std::string_view text) {
  std::vector<GroupEntry> entries;
  for (std::vector<std::string>& row : ParseTable(text, 4)) {
    const Result<uint32_t> gid = ParseId(row[2]);
    if (gid.has_value()) entries.push_back({.name = std::move(row[0]), .gid = *gid});
  }
  return entries;
}

ImageUsers ReadImageUsers(const std::vector<int>& layers) {
  ImageUsers users;
  users.passwd_text = ReadTopmost(layers, "etc/passwd");
  users.group_text = ReadTopmost(layers, "etc/group");
  users.users = ParsePasswd(users.passwd_text);
  users.groups = ParseGroup(users.group_text);
  return users;
}

Result<ResolvedUser> ResolveUser(const ImageUsers& users, const std::string& user) {
  const size_t colon = user.find(':');
  const std::string name = user.substr(0, colon);
  ResolvedUser resolved;
  const auto find = [&](const auto& fits) {
    return std::find_if(users.users.begin(), users.users.end(), fits);
  };
  auto entry = users.users.end();
  if (IsNumber(name)) {
    const Result<uint32_t> uid = ParseId(name);
    if (!uid.has_value()) return Unknown("no such user id: " + name);
    resolved.uid = resolved.gid = *uid;
    entry = find([&](const PasswdEntry& e) { return e.uid == *uid; });
  } else {
    entry = find([&](const PasswdEntry& e) { return e.name == name; });
    if (entry == users.users.end()) {
      if (name != "root") return Unknown("the image has no user \"" + name + "\"");
      resolved.name = "root";
    }
  }
  if (entry != users.users.end()) {
    resolved.uid = entry->uid;
    resolved.gid = entry->gid;
    resolved.name = entry->name;
  }
  if (colon == std::string::npos) return resolved;
  const std::string group = user.substr(colon + 1);
  if (IsNumber(group)) {
    const Result<uint32_t> gid = ParseId(group);
    if (!gid.has_value()) return Unknown("no such group id: " + group);
    resolved.gid = *gid;
    return resolved;
  }
  const auto row = std::find_if(users.groups.begin(), users.groups.end(),
                                [&](const GroupEntry& e) { return e.name == group; });
  if (row != users.groups.end())
    resolved.gid = row->gid;
  else if (group == "root")
    resolved.gid = 0;
  else
    return Unknown("the image has no group \"" + group + "\"");
  return resolved;
}

}  // namespace hutch::daemon
