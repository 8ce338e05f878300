// Finds the cgroup hierarchies of this host: proc(5) /proc/self/mountinfo.
#include "cgroups/layout.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxMountinfoBytes = 4u << 20;
constexpr size_t kRootField = 3,
                 kMountPointField = 4;  // before the "-" that ends the optional fields
constexpr ptrdiff_t kSuperOptionsAfterDash = 3;

// mountinfo writes blanks, newlines and backslashes as three octal digits.
std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return text[i + at] >= '0' && text[i + at] <= '7'; };
    if (text[i] != '\\' || i + 3 >= text.size() || !digit(1) || !digit(2) || !digit(3)) {
      out += text[i];
      continue;
    }
    out +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
    i += 3;
  }
  return out;
}

bool Holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Error Missing(std::string what) {
  return Error{.code = Code::kUnsupported, .what = std::move(what), .hint = "run hutch doctor"};
}

const CgroupMount* FindV2(const std::vector<CgroupMount>& mounts) {
  const auto it = std::find_if(mounts.begin(), mounts.end(), [](const auto& m) { return m.is_v2; });
  return it == mounts.end() ? nullptr : &*it;
}

const CgroupMount* FindV1(const std::vector<CgroupMount>& mounts, const char* v1_name) {
  for (const CgroupMount& mount : mounts)
    if (!mount.is_v2 && Holds(mount.super_options, v1_name)) return &mount;
  return nullptr;
}

}  // namespace

const char* ModeName(Mode mode) { return mode == Mode::kV2 ? "v2" : "hybrid"; }

std::vector<CgroupMount> ParseCgroupMounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  for (const std::string& line : Split(mountinfo, '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() <= static_cast<ptrdiff_t>(kMountPointField) ||
        fields.end() - dash <= kSuperOptionsAfterDash)
      continue;
    const std::string& type = *(dash + 1);
    if (type != "cgroup" && type != "cgroup2") continue;
    const Result<uint64_t> id = ParseUint(fields[0]);
    mounts.push_back({type == "cgroup2", Unescape(fields[kMountPointField]),
                      Split(*(dash + kSuperOptionsAfterDash), ','), Unescape(fields[kRootField]),
                      id ? *id : 0});
  }
  return mounts;
}

// v2 wins when it has every required controller; else each of them must be in a v1 hierarchy.
Result<Layout> PlanLayout(const std::vector<CgroupMount>& mounts, std::string_view v2_controllers) {
  const CgroupMount* v2 = FindV2(mounts);
  if (v2 == nullptr) return Missing("no cgroup v2 file system is mounted");
  Layout layout;
  layout.v2_root = v2->mount_point;
  const std::vector<std::string> in_v2 = Split(Trim(v2_controllers), ' ');
  std::string missing;
  bool all_v2 = true;
  for (const Controller* controller : Controllers()) {
    const CgroupMount* v1 = FindV1(mounts, controller->v1_name);
    if (v1 != nullptr) layout.v1_roots.emplace_back(controller->name, v1->mount_point);
    if (!controller->required) continue;
    all_v2 = all_v2 && Holds(in_v2, controller->name);
    if (v1 == nullptr && missing.empty()) missing = controller->name;
  }
  if (all_v2) {
    layout.v1_roots.clear();
    return layout;
  }
  layout.mode = Mode::kHybrid;
  if (missing.empty()) return layout;
  return Missing("the v2 tree lacks a required controller (" + layout.v2_root +
                 "/cgroup.controllers: \"" + std::string(Trim(v2_controllers)) +
                 "\") and no v1 hierarchy has " + missing);
}

Result<std::vector<CgroupMount>> VisibleCgroupMounts() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/mountinfo", kMaxMountinfoBytes));
  std::vector<CgroupMount> mounts = ParseCgroupMounts(text);
  std::erase_if(mounts, [](const CgroupMount& mount) {
    struct statx st;
    const char* path = mount.mount_point.c_str();
    return ::statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) != 0 ||
           st.stx_mnt_id != mount.id;
  });
  return mounts;
}

Result<Layout> DetectLayout() {
  ASSIGN_OR_RETURN(const std::vector<CgroupMount> mounts, VisibleCgroupMounts());
  const CgroupMount* v2 = FindV2(mounts);
  if (v2 == nullptr) return PlanLayout(mounts, "");
  ASSIGN_OR_RETURN(const std::string controllers,
                   ReadFile(v2->mount_point + "/cgroup.controllers", 4096));
  return PlanLayout(mounts, controllers);
}

}  // namespace hutch::cgroups
