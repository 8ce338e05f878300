#include "rootfs/mount_planner.h"

#include <linux/mount.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "rootfs/proc_files.h"

namespace hutch::rootfs {
namespace {

struct FlagRow {
  const char* option;
  uint64_t attribute;
};
constexpr FlagRow kFlags[] = {{"nosuid", MOUNT_ATTR_NOSUID},
                              {"nodev", MOUNT_ATTR_NODEV},
                              {"noexec", MOUNT_ATTR_NOEXEC},
                              {"ro", MOUNT_ATTR_RDONLY}};

struct Options {
  uint64_t attributes = 0;
  std::vector<std::pair<std::string, std::string>> pairs;  // what is not a flag
};

struct ScratchPlace {
  std::string target;     // in the root
  std::string directory;  // on the scratch file system
};

class Planner {
 public:
  explicit Planner(const AttachSlots& s) : slots(s) {}
  const AttachSlots slots;
  MountPlan plan;
  std::vector<ScratchPlace> places;  // of the tmpfs mounts so far
  bool readonly = true;              // the root

  uint32_t Text(const std::string& text) {
    const auto at = static_cast<uint32_t>(plan.strings.size());
    plan.strings.append(text).push_back('\0');
    return at;
  }
  MountOp& Add(MountOpKind kind, const std::string& target) {
    MountOp op{};
    op.kind = kind;
    op.target = Text(target);
    return plan.ops.emplace_back(op);
  }
  void SetPairs(MountOp& op, const std::vector<std::pair<std::string, std::string>>& pairs) {
    op.options = static_cast<uint16_t>(pairs.size());
    op.options_at = static_cast<uint32_t>(plan.strings.size());
    for (const auto& [key, value] : pairs) Text(key), Text(value);
  }
};

Error MountError(const oci::Mount& mount, const std::string& what) {
  return Error{.code = Code::kInvalidArgument,
               .what = "mount " + mount.destination + ": " + what,
               .field = "mounts"};
}

Options ReadOptions(const oci::Mount& mount) {
  Options options;
  for (const std::string& option : mount.options) {
    bool flag = false;
    for (const FlagRow& row : kFlags)
      if (option == row.option) options.attributes |= row.attribute, flag = true;
    if (flag || option == "rw") continue;
    const size_t equals = option.find('=');
    options.pairs.emplace_back(option.substr(0, equals),
                               equals == std::string::npos ? "" : option.substr(equals + 1));
  }
  return options;
}

// "/a/b" -> "a/b"; the one shape a destination may have.
Result<std::string> Target(const oci::Mount& mount) {
  if (mount.destination.size() < 2 || mount.destination[0] != '/')
    return MountError(mount, "the destination must be an absolute path");
  for (const std::string& part : Split(mount.destination.substr(1), '/'))
    if (part.empty() || part == "." || part == "..")
      return MountError(mount, "the destination must be a normal path");
  if (mount.destination == "/dev" || mount.destination == "/dev/pts" ||
      mount.destination == "/dev/mqueue")
    return MountError(mount, "hutch makes it itself");
  return mount.destination.substr(1);
}

using PlanFn = Status (*)(Planner&, const oci::Mount&, const std::string& target);

// A tmpfs below another one is a directory of it: both are on the one scratch file system. False
// when it is below none.
bool PlanInside(Planner& planner, const ScratchDirectory& wanted, const std::string& target) {
  const ScratchPlace* place = nullptr;
  for (const ScratchPlace& one : planner.places)
    if (target.starts_with(one.target + "/") &&
        (place == nullptr || one.target.size() > place->target.size()))
      place = &one;
  if (place == nullptr) return false;
  std::string path = place->directory;
  std::vector<ScratchDirectory>& directories = planner.plan.scratch_directories;
  for (const std::string& part : Split(target.substr(place->target.size() + 1), '/')) {
    path += "/" + part;
    const bool last = path.size() == place->directory.size() + target.size() - place->target.size();
    const auto known = std::find_if(directories.begin(), directories.end(),
                                    [&](const ScratchDirectory& d) { return d.name == path; });
    if (known == directories.end())
      directories.push_back({path, last ? wanted.mode : 0755, wanted.uid, wanted.gid});
  }
  return true;
}

// A size of its own makes a file system of its own; without one the directory is on the shared,
// bounded scratch file system.
Status PlanTmpfs(Planner& planner, const oci::Mount& mount, const std::string& target) {
  Options options = ReadOptions(mount);
  ScratchDirectory directory{"m" + std::to_string(planner.plan.scratch_directories.size()), 0755, 0,
                             0};
  bool own_size = false;
  for (const auto& [key, value] : options.pairs) {
    if (key == "mode") {
      if (value.empty() || value.find_first_not_of("01234567") != std::string::npos ||
          value.size() > 5)
        return MountError(mount, "mode must be octal");
      directory.mode = static_cast<uint32_t>(std::stoul(value, nullptr, 8));
    } else if (key == "uid" || key == "gid") {
      ASSIGN_OR_RETURN((key == "uid" ? directory.uid : directory.gid), ParseId(value));
    } else if (key == "size" || key == "nr_inodes") {
      own_size = true;
    } else {
      return MountError(mount, "unknown tmpfs option \"" + key + "\"");
    }
  }
  if (own_size) {
    MountOp& op = planner.Add(MountOpKind::kFilesystem, target);
    op.source = planner.Text("tmpfs");
    op.attributes = options.attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    planner.SetPairs(op, options.pairs);
    return OkStatus();
  }
  if (PlanInside(planner, directory, target)) return OkStatus();
  MountOp& op = planner.Add(MountOpKind::kScratchBind, target);
  op.source = planner.Text(directory.name);
  op.attributes = options.attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  planner.places.push_back({target, directory.name});
  planner.plan.scratch_directories.push_back(directory);
  return OkStatus();
}

// A part of the root that can be written where the rest cannot. In a writable root it is nothing
// of its own, save that tmpfs mounts below it are directories of it, too.
Status PlanRootView(Planner& planner, const oci::Mount& mount, const std::string& target) {
  const Options options = ReadOptions(mount);
  if (!options.pairs.empty())
    return MountError(mount, "unknown root option \"" + options.pairs.front().first + "\"");
  planner.places.push_back({target, std::string(kUpperName) + "/" + target});
  if (!planner.readonly) return OkStatus();
  planner.plan.root_upper = true;
  planner.Add(MountOpKind::kRootView, target).attributes = options.attributes;
  return OkStatus();
}

// What is put in before the rest is taken away.
void PlanHonestProc(Planner& planner, const std::string& target) {
  planner.plan.live_proc = true;
  for (const char* name : kLiveProcFiles) {
    MountOp& op = planner.Add(MountOpKind::kScratchBind, target + "/" + name);
    op.source = planner.Text(std::string(kProcFilesDirectory) + "/" + name);
    op.attributes = kProcFileAttributes;
  }
  for (const ProcTextRow& row : kProcTexts) {
    MountOp& op = planner.Add(MountOpKind::kTemplateBind, target + "/" + row.name);
    op.source = planner.Text(std::string(kProcTemplate) + "/" + row.name);
  }
  MountOp& op = planner.Add(MountOpKind::kProcSys, target + "/sys");
  op.source = planner.Text(std::string(kProcTemplate) + "/sys");
  for (const char* name : kProcLinks) planner.Add(MountOpKind::kPinLink, target + "/" + name);
}

Status PlanProc(Planner& planner, const oci::Mount& mount, const std::string& target) {
  Options options = ReadOptions(mount);
  std::string subset;
  std::erase_if(options.pairs, [&](const auto& pair) {
    return pair.first == "subset" && (subset = pair.second, true);
  });
  if (!subset.empty() && subset != "pid" && subset != "honest")
    return MountError(mount, "subset must be \"pid\" or \"honest\"");
  if (!subset.empty() && target != "proc") return MountError(mount, "a subset is for /proc alone");
  if (subset == "honest" && !CanSealProc())
    return MountError(mount, "this kernel cannot change what a mounted procfs shows");
  using Pair = std::pair<std::string, std::string>;
  const bool usual = options.pairs == std::vector<Pair>{{"hidepid", "invisible"}};
  if (!subset.empty() && !CanSealProc()) options.pairs.emplace_back("subset", "pid");
  MountOp& op = planner.Add(MountOpKind::kProc, target);
  op.attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | options.attributes;
  planner.SetPairs(op, options.pairs);
  if (subset.empty()) return OkStatus();
  planner.plan.default_proc = usual;
  if (subset == "honest") PlanHonestProc(planner, target);
  MountOp& seal = planner.Add(MountOpKind::kSealProc, target);
  seal.source = subset == "honest" ? planner.Text("meminfo") : 0;
  return OkStatus();
}

// Which one is told by its source, a number. Its place is made where that is on the scratch file
// system; elsewhere it must be there.
Status PlanVolume(Planner& planner, const oci::Mount& mount, const std::string& target) {
  ASSIGN_OR_RETURN(const uint64_t index, ParseUint(mount.source));
  if (index >= planner.slots.volumes) return MountError(mount, "no such volume");
  ScratchDirectory place{"", 0755, 0, 0};
  for (const auto& [key, value] : ReadOptions(mount).pairs) {
    if (key != "uid" && key != "gid")
      return MountError(mount, "unknown volume option \"" + key + "\"");
    ASSIGN_OR_RETURN((key == "uid" ? place.uid : place.gid), ParseId(value));
  }
  PlanInside(planner, place, target);
  planner.Add(MountOpKind::kAttach, target).fd_index =
      static_cast<uint8_t>(planner.slots.first_volume + index);
  return OkStatus();
}

struct MountKind {
  const char* type;
  const char* options;  // accepted besides nosuid nodev noexec ro rw, for people
  PlanFn plan;
};
constexpr MountKind kMountKinds[] = {
    {"tmpfs", "mode= uid= gid= size= nr_inodes=", PlanTmpfs},
    {"proc", "hidepid= subset=pid subset=honest", PlanProc},
    {"root", "", PlanRootView},
    {"volume", "uid= gid=", PlanVolume},
};

Status PlanOne(Planner& planner, const oci::Mount& mount) {
  ASSIGN_OR_RETURN(const std::string target, Target(mount));
  for (const MountKind& kind : kMountKinds)
    if (mount.type == kind.type) return kind.plan(planner, mount, target);
  return Error{.code = Code::kUnsupported,
               .what = "mount " + mount.destination + ": unknown type \"" + mount.type + "\""};
}

void PlanDev(Planner& planner, const AttachSlots& slots) {
  planner.Add(MountOpKind::kAttach, "dev").fd_index = slots.dev;
  MountOp& pts = planner.Add(MountOpKind::kFilesystem, "dev/pts");
  pts.source = planner.Text("devpts");
  MountOp& mqueue = planner.Add(MountOpKind::kFilesystem, "dev/mqueue");
  mqueue.source = planner.Text("mqueue");
}

// Which of the usual masked paths are files; all others are masked as directories.
constexpr std::array<const char*, 8> kMaskedFiles = {
    "/proc/kcore",       "/proc/keys",        "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/interrupts",    "/proc/sysrq-trigger"};

bool IsMaskedFile(const std::string& path) {
  for (const char* file : kMaskedFiles)
    if (path == file) return true;
  return false;
}

}  // namespace

std::vector<std::string> MountTypes() {
  std::vector<std::string> types;
  for (const MountKind& kind : kMountKinds) types.emplace_back(kind.type);
  return types;
}

Result<MountPlan> PlanMounts(const oci::Spec& spec, const AttachSlots& slots) {
  Planner planner(slots);
  planner.Text("");  // offset 0 is the empty string
  planner.readonly = spec.root.readonly;
  planner.plan.root_upper = !spec.root.readonly;
  PlanDev(planner, slots);
  for (const oci::Mount& mount : spec.mounts) RETURN_IF_ERROR(PlanOne(planner, mount));
  for (const std::string& path : spec.linux_.readonly_paths)
    planner.Add(MountOpKind::kReadonly, path.substr(path.find_first_not_of('/')));
  for (const std::string& path : spec.linux_.masked_paths)
    planner.Add(IsMaskedFile(path) ? MountOpKind::kMaskFile : MountOpKind::kMaskDirectory,
                path.substr(path.find_first_not_of('/')));
  // Last: a clone of a read-only mount is read-only.
  if (spec.root.readonly && planner.plan.root_upper) planner.Add(MountOpKind::kRootReadonly, "");
  if (planner.plan.ops.size() > kMaxMountOps)
    return Error{.code = Code::kLimit,
                 .what = "more than " + std::to_string(kMaxMountOps) + " mounts"};
  return std::move(planner.plan);
}

}  // namespace hutch::rootfs
