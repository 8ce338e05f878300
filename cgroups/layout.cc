// Finds the cgroup hierarchies of this host: proc(5) /proc/self/mountinfo.
#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxMountinfoBytes = 4u << 20;
constexpr size_t kMountPointField = 4;  // before the " - " separator
constexpr size_t kSuperOptionsAfterDash = 3;

struct MountLine {
  std::string type, mount_point;
  std::vector<std::string> super_options;
};

std::optional<MountLine> ParseMountLine(const std::string& line) {
  const std::vector<std::string> fields = Split(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() <= kMountPointField ||
      fields.end() - dash <= static_cast<ptrdiff_t>(kSuperOptionsAfterDash))
    return std::nullopt;
  return MountLine{*(dash + 1), fields[kMountPointField],
                   Split(*(dash + kSuperOptionsAfterDash), ',')};
}

void AddV1(Layout& layout, const MountLine& mount) {
  for (const Controller* controller : Controllers()) {
    const bool here = std::find(mount.super_options.begin(), mount.super_options.end(),
                                controller->v1_name) != mount.super_options.end();
    if (here && controller->required)
      layout.v1_roots.emplace_back(controller->name, mount.mount_point);
  }
}

Error Missing(std::string what) {
  return Error{.code = Code::kUnsupported, .what = std::move(what), .hint = "run hutch doctor"};
}

// Every required controller must be in one place or the other; v2 wins when it has them all.
Status ChooseMode(Layout& layout) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(layout.v2_root + "/cgroup.controllers", 4096));
  const std::vector<std::string> v2 = Split(Trim(text), ' ');
  const auto in_v2 = [&](const std::string& name) {
    return std::find(v2.begin(), v2.end(), name) != v2.end();
  };
  bool all_v2 = true;
  for (const Controller* controller : Controllers()) {
    if (!controller->required || in_v2(controller->name)) continue;
    all_v2 = false;
    const bool in_v1 =
        std::any_of(layout.v1_roots.begin(), layout.v1_roots.end(),
                    [&](const auto& root) { return root.first == controller->name; });
    if (!in_v1)
      return Missing(std::string("no cgroup hierarchy has the ") + controller->name +
                     " controller (" + layout.v2_root + "/cgroup.controllers: \"" +
                     std::string(Trim(text)) + "\")");
  }
  layout.mode = all_v2 ? Mode::kV2 : Mode::kHybrid;
  if (all_v2) layout.v1_roots.clear();
  return OkStatus();
}

}  // namespace

const char* ModeName(Mode mode) { return mode == Mode::kV2 ? "v2" : "hybrid"; }

Result<Layout> DetectLayout() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/mountinfo", kMaxMountinfoBytes));
  Layout layout;
  for (const std::string& line : Split(text, '\n')) {
    const auto mount = ParseMountLine(line);
    if (!mount) continue;
    if (mount->type == "cgroup2" && layout.v2_root.empty()) layout.v2_root = mount->mount_point;
    if (mount->type == "cgroup") AddV1(layout, *mount);
  }
  if (layout.v2_root.empty()) return Missing("no cgroup v2 file system is mounted");
  RETURN_IF_ERROR(ChooseMode(layout));
  return layout;
}

}  // namespace hutch::cgroups
