#include "daemon/create_request.h"

#include <limits.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cgroups/limits.h"
#include "daemon/create_keys.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "oci/seccomp_json.h"
#include "rootfs/mount_plan.h"
#include "runtime/default_spec.h"

namespace hutch::daemon {
namespace {

using oci::ObjectReader;
constexpr auto kRefuse = ObjectReader::Unknown::kRefuse;
constexpr uint64_t kMaxBytes = uint64_t{1} << 60;
constexpr uint64_t kMaxPids = 4194304;        // PID_MAX_LIMIT
constexpr uint64_t kMaxOpenFiles = 1u << 20;  // fs.nr_open
constexpr uint64_t kHardOpenFiles = 65536;
constexpr double kMinCpus = 0.01;

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

Status CheckName(const std::string& name) {
  const auto fits = [](char c) { return IsAlnum(c) || c == '_' || c == '.' || c == '-'; };
  if (name.empty()) return OkStatus();
  if (name.size() > kMaxNameBytes || !IsAlnum(name[0]) ||
      !std::all_of(name.begin(), name.end(), fits))
    return Invalid("must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}", "name");
  if (name.starts_with("sb-")) return Invalid("\"sb-\" is for ids", "name");
  return OkStatus();
}

}  // namespace

Status CheckLabels(const StringMap& labels) {
  if (labels.size() > kMaxLabels)
    return Invalid("more than " + std::to_string(kMaxLabels) + " labels", "labels");
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.find('=') != std::string::npos)
      return Invalid("a key is empty or holds \"=\"", "labels");
    if (key.size() > kMaxLabelBytes || value.size() > kMaxLabelBytes)
      return Invalid("a label of more than " + std::to_string(kMaxLabelBytes) + " bytes",
                     "labels." + key.substr(0, 64));
  }
  return OkStatus();
}

namespace {

Status ParseLimits(const oci::Json& json, SandboxFields* fields) {
  ObjectReader reader(json, "limits");
  reader.Uint("memory_bytes", &fields->memory_bytes, cgroups::kMinMemoryBytes, kMaxBytes)
      .Number("cpus", &fields->cpus, kMinCpus, 4096)
      .Uint("pids", &fields->pids, kMinPids, kMaxPids)
      .Uint("disk_bytes", &fields->disk_bytes, kMinDiskBytes, kMaxBytes)
      .Uint("open_files", &fields->open_files, 16, kMaxOpenFiles);
  return reader.Done(kRefuse);
}

Status ParseTimeoutFields(const oci::Json& json, SandboxFields* fields) {
  return ParseTimeouts(json, &fields->timeouts);
}

Status ParseRoot(const oci::Json& json, SandboxFields* fields) {
  ObjectReader reader(json, "rootfs");
  reader.Bool("readonly", &fields->readonly_root);
  return reader.Done(kRefuse);
}

Status ParseRelax(const oci::Json& json, SandboxFields* fields) {
  std::string proc;
  ObjectReader reader(json, "relax");
  reader.String("proc", &proc).Bool("no_new_privileges", &fields->no_new_privileges);
  const oci::Json* seccomp = reader.Member("seccomp");
  if (!proc.empty() && proc != "full") reader.Fail("proc", "must be \"full\"");
  RETURN_IF_ERROR(reader.Done(kRefuse));
  fields->full_proc = proc == "full";
  if (seccomp != nullptr) {
    ASSIGN_OR_RETURN(fields->seccomp, oci::ParseSeccomp(*seccomp, "relax.seccomp",
                                                        oci::SeccompDialect::kProfileFile));
  }
  fields->relax = json;
  return OkStatus();
}

struct SectionRow {
  const char* name;
  Status (*parse)(const oci::Json&, SandboxFields*);
};
constexpr SectionRow kSections[] = {
    {"limits", ParseLimits},
    {"timeouts", ParseTimeoutFields},
    {"rootfs", ParseRoot},
    {"relax", ParseRelax},
};

Error AboveCeiling(const std::string& shown, const std::string& field) {
  return Error{
      .code = Code::kLimit, .what = "above the operator's ceiling of " + shown, .field = field};
}

Status KeepCeilings(SandboxFields* fields, const Amounts& ceilings) {
  struct Row {
    const char* field;
    uint64_t value, ceiling;
  };
  const Row rows[] = {
      {"limits.memory_bytes", fields->memory_bytes, ceilings.memory_bytes},
      {"limits.pids", fields->pids, ceilings.pids},
      {"limits.disk_bytes", fields->disk_bytes, ceilings.disk_bytes},
      {"limits.open_files", fields->open_files, ceilings.open_files},
  };
  for (const Row& row : rows)
    if (row.ceiling != 0 && row.value > row.ceiling)
      return AboveCeiling(std::to_string(row.ceiling), row.field);
  if (ceilings.cpus > 0 && fields->cpus > ceilings.cpus)
    return AboveCeiling(std::to_string(ceilings.cpus), "limits.cpus");
  return KeepCeilings(ceilings, &fields->timeouts);
}

// An image's "NAME=value" list; what is not of that shape is dropped.
void AddImageEnv(const oci::ImageConfig& image, std::vector<std::string>& env) {
  for (const std::string& entry : image.env) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || entry.find('\0') != std::string::npos)
      continue;
    SetEnv(env, entry.substr(0, equals), entry.substr(equals + 1));
  }
}

// What a request may not have, an image may not either: both are kept with the sandbox.
Status CheckImageConfig(const oci::ImageConfig& image) {
  const auto size = [](const std::vector<std::string>& texts) {
    size_t total = 0;
    for (const std::string& text : texts) total += text.size() + 1;
    return total;
  };
  const auto too_large = [](const char* what) {
    return Error{.code = Code::kLimit,
                 .what = std::string("the image's ") + what + " has more than " +
                         std::to_string(kMaxEnvBytes) + " bytes",
                 .field = "image"};
  };
  if (image.env.size() > kMaxEnvEntries || size(image.env) > kMaxEnvBytes)
    return too_large("environment");
  if (size(image.entrypoint) + size(image.cmd) > kMaxEnvBytes) return too_large("command");
  return OkStatus();
}

// What DefaultSpec gives to uid 1000, /workspace and the home, belongs to the sandbox's user.
void GiveMountsTo(const ResolvedUser& user, std::vector<oci::Mount>& mounts) {
  for (oci::Mount& mount : mounts)
    for (std::string& option : mount.options) {
      if (option == "uid=1000") option = "uid=" + std::to_string(user.uid);
      if (option == "gid=1000") option = "gid=" + std::to_string(user.gid);
    }
}

void ApplyLimits(const SandboxFields& fields, oci::Spec& spec) {
  oci::LinuxResources& resources = spec.linux_.resources;
  resources.memory_limit_bytes = fields.memory_bytes;
  resources.memory_swap_bytes = 0;
  resources.pids_limit = fields.pids;
  resources.cpu_period_us = 100000;
  resources.cpu_quota_us = static_cast<uint64_t>(std::llround(fields.cpus * 100000));
  for (oci::Rlimit& limit : spec.process.rlimits) {
    if (limit.type != "RLIMIT_NOFILE") continue;
    limit.soft = fields.open_files;
    limit.hard = std::max(fields.open_files, kHardOpenFiles);
  }
}

}  // namespace

bool IsRoot(const std::string& user) {
  return user == "root" || user == "0" || user == "0:0" || user == "root:root";
}

Status CheckEnv(const StringMap& env, const std::string& field) {
  if (env.size() > kMaxEnvEntries)
    return Invalid("more than " + std::to_string(kMaxEnvEntries) + " entries", field);
  size_t total = 0;
  for (const auto& [name, value] : env) {
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos)
      return Invalid("a name is empty or holds \"=\" or a NUL", field);
    if (value.find('\0') != std::string::npos)
      return Invalid("a value holds a NUL", field + "." + name.substr(0, 64));
    total += name.size() + value.size() + 2;
  }
  if (total > kMaxEnvBytes)
    return Invalid("more than " + std::to_string(kMaxEnvBytes) + " bytes", field);
  return OkStatus();
}

Status CheckWorkdir(const std::string& path, const std::string& field) {
  if (path.empty()) return OkStatus();
  if (path[0] != '/' || path.find('\0') != std::string::npos || path.size() > kMaxPathBytes)
    return Invalid("must be an absolute path", field);
  return OkStatus();
}

Result<std::string> NormalDirectory(const std::string& path, const std::string& field) {
  if (path.empty()) return Invalid("must be an absolute path", field);
  RETURN_IF_ERROR(CheckWorkdir(path, field));
  std::string normal;
  size_t depth = 0;
  for (const std::string& part : Split(path, '/')) {
    if (part == "." || part == "..") return Invalid("must be a path without . and ..", field);
    if (part.empty()) continue;
    if (part.size() > NAME_MAX) return Invalid("has a name that is too long", field);
    normal.append("/").append(part);
    ++depth;
  }
  if (depth == 0 || depth > kMaxWritableDirectoryDepth)
    return Invalid("must be a directory below the root, at most " +
                       std::to_string(kMaxWritableDirectoryDepth) + " levels",
                   field);
  for (const char* taken : {"/proc", "/sys", "/dev"})
    if (normal == taken || normal.starts_with(std::string(taken) + "/"))
      return Invalid("must not be in " + std::string(taken), field);
  return normal;
}

void SetEnv(std::vector<std::string>& env, const std::string& name, const std::string& value) {
  std::string entry = name + "=";
  const auto same = std::find_if(env.begin(), env.end(),
                                 [&](const std::string& e) { return e.starts_with(entry); });
  entry += value;
  if (same != env.end())
    *same = std::move(entry);
  else
    env.push_back(std::move(entry));
}

void UnsetEnv(std::vector<std::string>& env, const std::string& name) {
  std::erase_if(env, [&](const std::string& entry) { return entry.starts_with(name + "="); });
}

void SetUserEnv(std::vector<std::string>& env, const ResolvedUser& user) {
  SetEnv(env, "HOME", user.uid == 0 ? "/root" : "/home/sandbox");
  if (!user.name.empty()) SetEnv(env, "USER", user.name);
}

Result<uint64_t> WithinCeiling(uint64_t value, uint64_t ceiling, const std::string& field) {
  if (ceiling == 0) return value;
  if (value == 0) return ceiling;
  if (value > ceiling) return AboveCeiling(std::to_string(ceiling), field);
  return value;
}

Result<SandboxFields> ParseSandboxFields(const oci::Json& json, const Config& config) {
  const Amounts& defaults = config.defaults;
  SandboxFields fields;
  fields.memory_bytes = defaults.memory_bytes;
  fields.cpus = defaults.cpus;
  fields.pids = defaults.pids;
  fields.disk_bytes = defaults.disk_bytes;
  fields.open_files = defaults.open_files;
  fields.timeouts.idle_seconds = defaults.idle_seconds;
  fields.timeouts.lifetime_seconds = defaults.lifetime_seconds;
  ObjectReader reader(json, "");
  reader.String("image", &fields.image, 1024)
      .String("pull", &fields.pull, 256)
      .String("name", &fields.name, 1024)
      .String("owner", &fields.owner, kMaxLabelBytes)
      .String("session_key", &fields.session_key, 1024)
      .StringMap("labels", &fields.labels)
      .StringMap("env", &fields.env)
      .String("workdir", &fields.workdir)
      .String("user", &fields.user, 256)
      .String("proc", &fields.proc, 256);
  const oci::Json* sections[std::size(kSections)];
  for (size_t i = 0; i < std::size(kSections); ++i) sections[i] = reader.Member(kSections[i].name);
  const oci::Json* network = reader.Member("network");
  const oci::Json* ports = reader.Member("ports");
  const oci::Json* volumes = reader.Member("volumes");
  if (fields.image.empty()) reader.Fail("image", "is required, or template");
  if (fields.pull != "missing" && fields.pull != "never" && fields.pull != "always")
    reader.Fail("pull", "must be \"missing\", \"never\" or \"always\"");
  if (!fields.proc.empty() && fields.proc != "honest" && fields.proc != "pids")
    reader.Fail("proc", "must be \"honest\" or \"pids\"");
  RETURN_IF_ERROR(reader.Done(kRefuse));
  if (fields.proc == "honest" && !rootfs::CanSealProc())
    return Error{.code = Code::kUnsupported,
                 .what = "this kernel cannot reduce a mounted /proc to processes",
                 .field = "proc",
                 .hint = "\"pids\" has nothing but processes"};
  RETURN_IF_ERROR(CheckName(fields.name));
  RETURN_IF_ERROR(CheckSessionKey(fields.session_key));
  RETURN_IF_ERROR(CheckLabels(fields.labels));
  RETURN_IF_ERROR(CheckEnv(fields.env, "env"));
  RETURN_IF_ERROR(CheckWorkdir(fields.workdir, "workdir"));
  for (size_t i = 0; i < std::size(kSections); ++i)
    if (sections[i] != nullptr) RETURN_IF_ERROR(kSections[i].parse(*sections[i], &fields));
  if (network != nullptr) {
    ASSIGN_OR_RETURN(fields.network, ParseNetworkRequest(*network, config));
  }
  if (ports != nullptr) {
    ASSIGN_OR_RETURN(fields.ports, ParsePorts(*ports, "ports", config));
  }
  if (volumes != nullptr) {
    ASSIGN_OR_RETURN(fields.volumes, ParseVolumes(*volumes, "volumes"));
  }
  if (fields.full_proc && fields.proc == "pids") return Invalid("contradicts relax.proc", "proc");
  if (fields.proc.empty() && !fields.full_proc)
    fields.proc = rootfs::CanSealProc() ? "honest" : "pids";
  RETURN_IF_ERROR(KeepCeilings(&fields, config.ceilings));
  return fields;
}

Result<oci::Spec> BuildSpec(const SandboxFields& fields, const oci::ImageConfig& image,
                            const UserResolver& resolve_user) {
  RETURN_IF_ERROR(CheckImageConfig(image));
  oci::Spec spec = runtime::DefaultSpec();
  oci::ProcessSpec& process = spec.process;
  const std::string& user = fields.user.empty() ? image.user : fields.user;
  if (IsRoot(user)) {
    runtime::UseRootUser(spec);
  } else if (!user.empty()) {
    ASSIGN_OR_RETURN(const ResolvedUser resolved, resolve_user(user));
    if (resolved.uid == 0) runtime::UseRootUser(spec);
    process.user.uid = resolved.uid;
    process.user.gid = resolved.gid;
    SetUserEnv(process.env, resolved);
    if (resolved.uid != 0) GiveMountsTo(resolved, spec.mounts);
  }
  AddImageEnv(image, process.env);
  for (const auto& [name, value] : fields.env) SetEnv(process.env, name, value);
  if (!fields.workdir.empty())
    process.cwd = fields.workdir;
  else if (!image.working_dir.empty() && image.working_dir[0] == '/')
    process.cwd = image.working_dir;
  process.args = image.entrypoint;
  process.args.insert(process.args.end(), image.cmd.begin(), image.cmd.end());
  spec.root.readonly = fields.readonly_root;
  process.no_new_privileges = fields.no_new_privileges;
  if (fields.proc == "pids") runtime::UsePidsProc(spec);
  if (fields.full_proc) runtime::UseFullProc(spec);
  spec.linux_.seccomp = fields.seccomp;
  ApplyLimits(fields, spec);
  return spec;
}

}  // namespace hutch::daemon
