#include "oci/container_config.h"

#include "base/text.h"
#include "oci/config_reader.h"
#include "oci/container_config_checks.h"
#include "oci/seccomp_json.h"

namespace hutch::oci {
namespace {

Error Invalid(const std::string& path, const std::string& what) {
  return Error{.code = Code::kInvalidArgument, .what = path + ": " + what, .field = path};
}

Result<Rlimit> ParseRlimit(const Json& json, const std::string& path) {
  Rlimit limit;
  ConfigReader reader(json, path);
  reader.String("type", &limit.type);
  reader.Integer("soft", &limit.soft).Integer("hard", &limit.hard);
  RETURN_IF_ERROR(reader.End());
  for (const char* name : {"type", "soft", "hard"})
    if (reader.Member(name) == nullptr) return Invalid(path + "." + name, "is required");
  return limit;
}

Result<IdMapping> ParseMapping(const Json& json, const std::string& path) {
  IdMapping mapping;
  ConfigReader reader(json, path);
  reader.Integer("containerID", &mapping.container_id).Integer("hostID", &mapping.host_id);
  reader.Integer("size", &mapping.size);
  RETURN_IF_ERROR(reader.End());
  return mapping;
}

constexpr uint32_t kNoId = UINT32_MAX;  // means "leave it" to setresuid(2)

Result<uint32_t> ParseGid(const Json& json, const std::string& path) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() >= kNoId)
    return Invalid(path, "must be a group id");
  return json.get<uint32_t>();
}

Status ParseUser(const Json& json, const std::string& path, ContainerUser* user) {
  ConfigReader reader(json, path);
  reader.Integer("uid", &user->uid).Integer("gid", &user->gid).Integer("umask", &user->umask);
  RETURN_IF_ERROR(ParseArray(reader, "additionalGids", &user->additional_gids, ParseGid));
  RETURN_IF_ERROR(reader.End());
  if (user->uid == kNoId) return Invalid(path + ".uid", "is out of range");
  return user->gid == kNoId ? Status(Invalid(path + ".gid", "is out of range")) : OkStatus();
}

Status ParseCapabilities(const Json& json, const std::string& path, Capabilities* caps) {
  ConfigReader reader(json, path);
  reader.Strings("bounding", &caps->bounding)
      .Strings("effective", &caps->effective)
      .Strings("inheritable", &caps->inheritable)
      .Strings("permitted", &caps->permitted)
      .Strings("ambient", &caps->ambient);
  return reader.End();
}

Status ParseScheduler(const Json& json, const std::string& path, ContainerProcess* process) {
  Scheduler scheduler;
  ConfigReader reader(json, path);
  reader.String("policy", &scheduler.policy).Strings("flags", &scheduler.flags);
  reader.Integer("nice", &scheduler.nice).Integer("priority", &scheduler.priority);
  reader.Integer("runtime", &scheduler.runtime).Integer("deadline", &scheduler.deadline);
  reader.Integer("period", &scheduler.period);
  RETURN_IF_ERROR(reader.End());
  if (scheduler.policy.empty()) return Invalid(path + ".policy", "is required");
  process->scheduler = std::move(scheduler);
  return OkStatus();
}

Status ParseIoPriority(const Json& json, const std::string& path, ContainerProcess* process) {
  IoPriority priority;
  ConfigReader reader(json, path);
  reader.String("class", &priority.io_class);
  reader.Integer("priority", &priority.priority);
  RETURN_IF_ERROR(reader.End());
  if (priority.io_class.empty()) return Invalid(path + ".class", "is required");
  process->io_priority = std::move(priority);
  return OkStatus();
}

// A list like "0-3,7"; nothing when it is absent or empty.
Status ReadNumberList(ConfigReader& reader, const char* name, uint32_t max,
                      std::vector<uint32_t>* out) {
  std::string text;
  reader.String(name, &text);
  if (text.empty()) return OkStatus();
  Result<std::vector<uint32_t>> list = ParseNumberList(text, max);
  if (!list) return Invalid(reader.PathOf(name), list.error().what);
  *out = std::move(*list);
  return OkStatus();
}

constexpr uint32_t kLastCpu = 8191;   // NR_CPUS is 8192 at most
constexpr uint32_t kLastNode = 1023;  // MAX_NUMNODES is 1024 at most

Status ParseCpuAffinity(const Json& json, const std::string& path, CpuAffinity* affinity) {
  ConfigReader reader(json, path);
  RETURN_IF_ERROR(ReadNumberList(reader, "initial", kLastCpu, &affinity->initial));
  RETURN_IF_ERROR(ReadNumberList(reader, "final", kLastCpu, &affinity->final));
  return reader.End();
}

Result<Namespace> ParseNamespace(const Json& json, const std::string& path) {
  Namespace one;
  ConfigReader reader(json, path);
  reader.String("type", &one.type).String("path", &one.path);
  RETURN_IF_ERROR(reader.End());
  if (!one.path.empty() && one.path[0] != '/') return Invalid(path + ".path", "must be absolute");
  return one;
}

Result<ContainerMount> ParseMount(const Json& json, const std::string& path) {
  ContainerMount mount;
  ConfigReader reader(json, path);
  reader.String("destination", &mount.destination).String("type", &mount.type);
  reader.String("source", &mount.source).Strings("options", &mount.options);
  RETURN_IF_ERROR(ParseArray(reader, "uidMappings", &mount.uid_mappings, ParseMapping));
  RETURN_IF_ERROR(ParseArray(reader, "gidMappings", &mount.gid_mappings, ParseMapping));
  RETURN_IF_ERROR(reader.End());
  if (mount.destination.empty()) return Invalid(path + ".destination", "is required");
  return mount;
}

Result<Hook> ParseHook(const Json& json, const std::string& path) {
  Hook hook;
  ConfigReader reader(json, path);
  reader.String("path", &hook.path).Strings("args", &hook.args).Strings("env", &hook.env);
  reader.Integer("timeout", &hook.timeout_seconds);
  RETURN_IF_ERROR(reader.End());
  if (hook.path.empty() || hook.path[0] != '/')
    return Invalid(path + ".path", "must be an absolute path");
  if (hook.timeout_seconds && (*hook.timeout_seconds == 0 || *hook.timeout_seconds > 1000000))
    return Invalid(path + ".timeout", "must be between 1 and 1000000");
  return hook;
}

Status ParseHooks(const Json& json, const std::string& path, Hooks* hooks) {
  ConfigReader reader(json, path);
  RETURN_IF_ERROR(ParseArray(reader, "prestart", &hooks->prestart, ParseHook));
  RETURN_IF_ERROR(ParseArray(reader, "createRuntime", &hooks->create_runtime, ParseHook));
  RETURN_IF_ERROR(ParseArray(reader, "createContainer", &hooks->create_container, ParseHook));
  RETURN_IF_ERROR(ParseArray(reader, "startContainer", &hooks->start_container, ParseHook));
  RETURN_IF_ERROR(ParseArray(reader, "poststart", &hooks->poststart, ParseHook));
  RETURN_IF_ERROR(ParseArray(reader, "poststop", &hooks->poststop, ParseHook));
  return reader.End();
}

Result<Device> ParseDevice(const Json& json, const std::string& path) {
  Device device;
  ConfigReader reader(json, path);
  reader.String("path", &device.path).String("type", &device.type);
  reader.Integer("major", &device.major).Integer("minor", &device.minor);
  reader.Integer("fileMode", &device.file_mode).Integer("uid", &device.uid);
  reader.Integer("gid", &device.gid);
  RETURN_IF_ERROR(reader.End());
  return device;
}

Status ParseTimeOffsets(const Json& json, const std::string& path, ContainerLinux* out) {
  if (!json.is_object()) return Invalid(path, "must be an object");
  for (const auto& [clock, value] : json.items()) {
    if (clock != "monotonic" && clock != "boottime") return Invalid(path, "unknown clock " + clock);
    TimeOffset offset;
    ConfigReader reader(value, path + "." + clock);
    reader.Integer("secs", &offset.seconds).Integer("nanosecs", &offset.nanoseconds);
    RETURN_IF_ERROR(reader.End());
    out->time_offsets[clock] = offset;
  }
  return OkStatus();
}

Status ParsePersonality(const Json& json, const std::string& path, ContainerLinux* out) {
  std::string domain;
  std::vector<std::string> flags;
  ConfigReader reader(json, path);
  reader.String("domain", &domain).Strings("flags", &flags);
  RETURN_IF_ERROR(reader.End());
  if (!flags.empty())
    return Error{.code = Code::kUnsupported, .what = path + ".flags", .field = path + ".flags"};
  if (domain != "LINUX" && domain != "LINUX32") return Invalid(path + ".domain", "unknown domain");
  out->personality = domain == "LINUX" ? 0 : 8;
  return OkStatus();
}

Status ParseNetDevices(const Json& json, const std::string& path, ContainerLinux* out) {
  if (!json.is_object()) return Invalid(path, "must be an object");
  if (json.size() > kMostItems) return Invalid(path, "has too many members");
  for (const auto& [name, value] : json.items()) {
    NetDevice device{.host_name = name, .name = {}};
    ConfigReader reader(value, path + "." + name);
    reader.String("name", &device.name);
    RETURN_IF_ERROR(reader.End());
    out->net_devices.push_back(std::move(device));
  }
  return OkStatus();
}

Status ParseMemoryPolicy(const Json& json, const std::string& path, ContainerLinux* out) {
  MemoryPolicy policy;
  ConfigReader reader(json, path);
  reader.String("mode", &policy.mode).Strings("flags", &policy.flags);
  RETURN_IF_ERROR(ReadNumberList(reader, "nodes", kLastNode, &policy.nodes));
  RETURN_IF_ERROR(reader.End());
  if (policy.mode.empty()) return Invalid(path + ".mode", "is required");
  out->memory_policy = std::move(policy);
  return OkStatus();
}

Status ParseLinuxParts(ConfigReader& reader, ContainerLinux* out) {
  if (const Json* resources = reader.Member("resources")) {
    ASSIGN_OR_RETURN(out->resources,
                     ParseContainerResources(*resources, reader.PathOf("resources")));
  }
  if (const Json* offsets = reader.Member("timeOffsets"))
    RETURN_IF_ERROR(ParseTimeOffsets(*offsets, reader.PathOf("timeOffsets"), out));
  if (const Json* personality = reader.Member("personality"))
    RETURN_IF_ERROR(ParsePersonality(*personality, reader.PathOf("personality"), out));
  if (const Json* seccomp = reader.Member("seccomp")) {
    ASSIGN_OR_RETURN(out->seccomp, ParseSeccomp(*seccomp, reader.PathOf("seccomp"),
                                                SeccompDialect::kRuntimeSpec));
  }
  if (const Json* devices = reader.Member("netDevices"))
    RETURN_IF_ERROR(ParseNetDevices(*devices, reader.PathOf("netDevices"), out));
  if (const Json* policy = reader.Member("memoryPolicy"))
    RETURN_IF_ERROR(ParseMemoryPolicy(*policy, reader.PathOf("memoryPolicy"), out));
  if (const Json* rdt = reader.Member("intelRdt"); rdt != nullptr && !rdt->empty())
    return Error{.code = Code::kUnsupported,
                 .what = reader.PathOf("intelRdt") + " is not supported",
                 .field = reader.PathOf("intelRdt")};
  return OkStatus();
}

Status ParseLinux(const Json& json, const std::string& path, ContainerLinux* out) {
  ConfigReader reader(json, path);
  RETURN_IF_ERROR(ParseArray(reader, "namespaces", &out->namespaces, ParseNamespace));
  RETURN_IF_ERROR(ParseArray(reader, "uidMappings", &out->uid_mappings, ParseMapping));
  RETURN_IF_ERROR(ParseArray(reader, "gidMappings", &out->gid_mappings, ParseMapping));
  RETURN_IF_ERROR(ParseArray(reader, "devices", &out->devices, ParseDevice));
  reader.String("cgroupsPath", &out->cgroups_path)
      .String("rootfsPropagation", &out->rootfs_propagation)
      .String("mountLabel", &out->mount_label)
      .StringMap("sysctl", &out->sysctl)
      .Strings("maskedPaths", &out->masked_paths)
      .Strings("readonlyPaths", &out->readonly_paths);
  RETURN_IF_ERROR(reader.End());
  for (size_t i = 0; i < out->namespaces.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (out->namespaces[i].type == out->namespaces[j].type)
        return Invalid(path + ".namespaces",
                       "duplicate namespace \"" + out->namespaces[i].type + "\"");
  return ParseLinuxParts(reader, out);
}

// SemVer 2.0.0: 1.MINOR.PATCH, and what may follow a "-" or a "+".
bool IsVersionOne(const std::string& text) {
  const std::string core = text.substr(0, text.find_first_of("-+"));
  const std::vector<std::string> parts = Split(core, '.');
  return parts.size() == 3 && parts[0] == "1" && ParseUint(parts[1]) && ParseUint(parts[2]);
}

}  // namespace

Result<ContainerProcess> ParseContainerProcess(const Json& json, const std::string& path) {
  ContainerProcess process;
  ConfigReader reader(json, path);
  reader.Bool("terminal", &process.terminal)
      .Strings("args", &process.args)
      .Strings("env", &process.env, 65536)
      .String("cwd", &process.cwd)
      .Bool("noNewPrivileges", &process.no_new_privileges)
      .String("apparmorProfile", &process.apparmor_profile)
      .String("selinuxLabel", &process.selinux_label);
  reader.Integer("oomScoreAdj", &process.oom_score_adj);
  RETURN_IF_ERROR(ParseArray(reader, "rlimits", &process.rlimits, ParseRlimit));
  RETURN_IF_ERROR(reader.End());
  if (const Json* user = reader.Member("user"))
    RETURN_IF_ERROR(ParseUser(*user, reader.PathOf("user"), &process.user));
  if (const Json* caps = reader.Member("capabilities"))
    RETURN_IF_ERROR(ParseCapabilities(*caps, reader.PathOf("capabilities"), &process.capabilities));
  if (const Json* size = reader.Member("consoleSize")) {
    ConfigReader part(*size, reader.PathOf("consoleSize"));
    part.Integer("height", &process.console_size.height)
        .Integer("width", &process.console_size.width);
    RETURN_IF_ERROR(part.End());
  }
  if (const Json* scheduler = reader.Member("scheduler"))
    RETURN_IF_ERROR(ParseScheduler(*scheduler, reader.PathOf("scheduler"), &process));
  if (const Json* priority = reader.Member("ioPriority"))
    RETURN_IF_ERROR(ParseIoPriority(*priority, reader.PathOf("ioPriority"), &process));
  if (const Json* affinity = reader.Member("execCPUAffinity"))
    RETURN_IF_ERROR(
        ParseCpuAffinity(*affinity, reader.PathOf("execCPUAffinity"), &process.exec_cpu_affinity));
  if (process.cwd.empty() || process.cwd[0] != '/')
    return Invalid(reader.PathOf("cwd"), "must be an absolute path");
  if (process.args.empty()) return Invalid(reader.PathOf("args"), "args must not be empty");
  for (size_t i = 0; i < process.rlimits.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (process.rlimits[i].type == process.rlimits[j].type)
        return Invalid(reader.PathOf("rlimits"), "duplicate " + process.rlimits[i].type);
  return process;
}

Result<std::vector<ContainerMount>> ParseContainerMounts(const Json& json,
                                                         const std::string& path) {
  if (!json.is_array()) return Invalid(path, "must be an array");
  if (json.size() > kMostItems) return Invalid(path, "has too many items");
  std::vector<ContainerMount> mounts;
  for (size_t i = 0; i < json.size(); ++i) {
    ASSIGN_OR_RETURN(ContainerMount mount,
                     ParseMount(json[i], path + "[" + std::to_string(i) + "]"));
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

Result<ContainerConfig> ParseContainerConfig(const Json& json) {
  ContainerConfig config;
  ConfigReader reader(json, "");
  reader.String("ociVersion", &config.oci_version)
      .String("hostname", &config.hostname)
      .String("domainname", &config.domainname)
      .StringMap("annotations", &config.annotations);
  RETURN_IF_ERROR(ParseArray(reader, "mounts", &config.mounts, ParseMount));
  RETURN_IF_ERROR(reader.End());
  if (!IsVersionOne(config.oci_version))
    return Invalid("ociVersion", "\"" + config.oci_version + "\" is no version 1.x");
  const Json* root = reader.Member("root");
  if (root == nullptr) return Invalid("root", "is required");
  ConfigReader part(*root, "root");
  part.String("path", &config.root.path).Bool("readonly", &config.root.readonly);
  RETURN_IF_ERROR(part.End());
  if (config.root.path.empty()) return Invalid("root.path", "is required");
  if (const Json* process = reader.Member("process")) {
    ASSIGN_OR_RETURN(config.process, ParseContainerProcess(*process));
  }
  if (const Json* hooks = reader.Member("hooks"))
    RETURN_IF_ERROR(ParseHooks(*hooks, "hooks", &config.hooks));
  if (const Json* linux_part = reader.Member("linux"))
    RETURN_IF_ERROR(ParseLinux(*linux_part, "linux", &config.linux_));
  RETURN_IF_ERROR(CheckContainerConfig(config));
  return config;
}

}  // namespace hutch::oci
