#include "daemon/devcontainer.h"

#include <algorithm>
#include <cmath>

#include "daemon/devcontainer_values.h"
#include "daemon/limits.h"
#include "oci/jsonc.h"
#include "rootfs/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using oci::ObjectReader;

struct Draft {
  const Config& config;
  Template made = {};
  std::string workspace = "/workspace";
  std::string container_user = {}, remote_user = {};
  StringMap container_env = {};
  std::vector<PortFacts> ports = {};
  std::vector<VolumeFields> volumes = {};
  Json ours = Json::object();  // customizations.hutch
};

// --- properties that are refused as soon as they ask for something

struct RefusedRow {
  const char* name;
  const char* why;
  const char* hint;
};
constexpr const char* kUseImage = "build the image elsewhere, import it and name it with \"image\"";
constexpr RefusedRow kRefused[] = {
    {"build", "images are not built from a Dockerfile", kUseImage},
    {"dockerFile", "images are not built from a Dockerfile", kUseImage},
    {"context", "images are not built from a Dockerfile", kUseImage},
    {"dockerComposeFile", "a sandbox is one container", kUseImage},
    {"service", "a sandbox is one container", kUseImage},
    {"runServices", "a sandbox is one container", kUseImage},
    {"features", "features are not installed", kUseImage},
    {"overrideFeatureInstallOrder", "features are not installed", kUseImage},
    {"workspaceMount", "it would show a folder of this host", "copy files into the sandbox"},
    {"initializeCommand", "it would run on this host", "run it yourself, before"},
    {"postAttachCommand", "there is no tool that attaches", "use postStartCommand"},
    {"secrets", "there are no secrets of templates", "give values in the request's env"},
    {"capAdd", "a sandbox has no capabilities and gets none", "run as root inside: remoteUser"},
    {"runArgs", "there is no docker whose arguments these are",
     "customizations.hutch has limits, timeouts, user, rootfs, relax"},
};

// What asks for nothing is as good as left out.
bool AsksForNothing(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

Status CheckRefused(const Json& json) {
  for (const RefusedRow& row : kRefused) {
    const auto it = json.find(row.name);
    if (it != json.end() && !AsksForNothing(*it))
      return TemplateRefused(row.why, row.name, row.hint);
  }
  return OkStatus();
}

// --- properties that are done

Status ReadName(const Json& value, Draft& draft) {
  ASSIGN_OR_RETURN(draft.made.title, ReadText(value, "name", draft.workspace));
  if (draft.made.title.size() > kMaxLabelBytes) return TemplateInvalid("is too long", "name");
  return OkStatus();
}

Status ReadImage(const Json& value, Draft& draft) {
  ASSIGN_OR_RETURN(draft.made.image, ReadText(value, "image", draft.workspace));
  return OkStatus();
}

Status ReadWorkspace(const Json& value, Draft& draft) {
  constexpr const char* kName = "workspaceFolder";
  ASSIGN_OR_RETURN(const std::string path, ReadText(value, kName, ""));
  if (path == "/") {
    draft.workspace = path;
    return OkStatus();
  }
  ASSIGN_OR_RETURN(draft.workspace, NormalDirectory(path, kName));
  draft.made.directories.push_back(
      {.path = draft.workspace, .mode = 0755, .users = true, .only_if_missing = true});
  return OkStatus();
}

Status ReadContainerEnv(const Json& value, Draft& draft) {
  if (!value.is_object()) return TemplateInvalid("must be an object of strings", "containerEnv");
  for (const auto& [name, item] : value.items()) {
    ASSIGN_OR_RETURN(draft.container_env[name],
                     ReadText(item, "containerEnv." + name, draft.workspace));
  }
  return CheckEnv(draft.container_env, "containerEnv");
}

Status ReadRemoteEnv(const Json& value, Draft& draft) {
  if (!value.is_object()) return TemplateInvalid("must be an object", "remoteEnv");
  StringMap given;
  for (const auto& [name, item] : value.items()) {
    const std::string property = "remoteEnv." + name;
    if (item.is_null()) {
      draft.made.remote_env[name] = std::nullopt;
      given[name] = "";
      continue;
    }
    if (!item.is_string()) return TemplateInvalid("must be a string or null", property);
    ASSIGN_OR_RETURN(given[name], ReplaceVariables(item.get<std::string>(), property,
                                                   draft.workspace, VariablePlace::kRemoteEnv));
    draft.made.remote_env[name] = given[name];
  }
  return CheckEnv(given, "remoteEnv");
}

Status AddPorts(const Json& value, const char* property, Draft& draft) {
  ASSIGN_OR_RETURN(const std::vector<PortFacts> ports, ReadPorts(value, property));
  for (const PortFacts& port : ports) {
    const auto same = std::find_if(draft.ports.begin(), draft.ports.end(),
                                   [&](const PortFacts& other) { return other.port == port.port; });
    if (same == draft.ports.end())
      draft.ports.push_back(port);
    else if (port.host_port != 0)
      same->host_port = port.host_port;
  }
  return OkStatus();
}
Status ReadForwardPorts(const Json& value, Draft& draft) {
  return AddPorts(value, "forwardPorts", draft);
}
Status ReadAppPort(const Json& value, Draft& draft) { return AddPorts(value, "appPort", draft); }

// Labels are ours to show; what else is said of a port is for editors.
Status ReadPortsAttributes(const Json& value, Draft& draft) {
  constexpr const char* kName = "portsAttributes";
  if (!value.is_object()) return TemplateInvalid("must be an object", kName);
  for (PortFacts& port : draft.ports) {
    const auto it = value.find(std::to_string(port.port));
    if (it == value.end() || !it->is_object() || !it->contains("label")) continue;
    const std::string property = std::string(kName) + "." + std::to_string(port.port) + ".label";
    ASSIGN_OR_RETURN(port.label, ReadText((*it)["label"], property, draft.workspace));
  }
  return OkStatus();
}

Status ReadContainerUser(const Json& value, Draft& draft) {
  ASSIGN_OR_RETURN(draft.container_user, ReadText(value, "containerUser", draft.workspace));
  return OkStatus();
}

Status ReadRemoteUser(const Json& value, Draft& draft) {
  ASSIGN_OR_RETURN(draft.remote_user, ReadText(value, "remoteUser", draft.workspace));
  return OkStatus();
}

Status ReadMounts(const Json& value, Draft& draft) {
  if (!value.is_array()) return TemplateInvalid("must be an array", "mounts");
  if (value.size() > kMaxWritableDirectories)
    return TemplateInvalid("has more than " + std::to_string(kMaxWritableDirectories) + " items",
                           "mounts");
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(auto mount,
                     ReadMount(value[i], "mounts[" + std::to_string(i) + "]", draft.workspace));
    if (auto* directory = std::get_if<WritableDirectory>(&mount)) {
      draft.made.directories.push_back(std::move(*directory));
      continue;
    }
    // A name that nobody has given yet means a new volume, as it does to docker.
    VolumeFields volume = std::get<VolumeFields>(std::move(mount));
    volume.size_bytes = std::max(draft.config.defaults.disk_bytes, rootfs::kMinVolumeBytes);
    draft.volumes.push_back(std::move(volume));
  }
  return OkStatus();
}

Status ReadNeeds(const Json& value, Draft& draft) {
  TemplateNeeds& needs = draft.made.needs;
  ObjectReader reader(value, "hostRequirements");
  uint64_t cpus = 0;
  reader.Uint("cpus", &cpus, 1, 4096);
  const Json* memory = reader.Member("memory");
  const Json* storage = reader.Member("storage");
  const Json* gpu = reader.Member("gpu");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  if (gpu != nullptr && *gpu != "optional" && !AsksForNothing(*gpu))
    return TemplateRefused("sandboxes have no GPU", "hostRequirements.gpu",
                           "\"optional\" goes without");
  needs.cpus = static_cast<double>(cpus);
  if (memory != nullptr) {
    ASSIGN_OR_RETURN(needs.memory_bytes, ReadDevcontainerSize(*memory, "hostRequirements.memory"));
  }
  if (storage != nullptr) {
    ASSIGN_OR_RETURN(needs.disk_bytes, ReadDevcontainerSize(*storage, "hostRequirements.storage"));
  }
  return OkStatus();
}

Status ReadBoolean(const Json& value, const char* name, bool* flag) {
  if (!value.is_boolean()) return TemplateInvalid("must be true or false", name);
  *flag = value.get<bool>();
  return OkStatus();
}

Status ReadInit(const Json& value, Draft&) {
  bool flag = true;
  RETURN_IF_ERROR(ReadBoolean(value, "init", &flag));
  if (flag) return OkStatus();
  return TemplateRefused("the first process of a sandbox always reaps the others", "init",
                         "leave it out");
}

Status ReadPrivileged(const Json& value, Draft&) {
  bool flag = false;
  RETURN_IF_ERROR(ReadBoolean(value, "privileged", &flag));
  if (!flag) return OkStatus();
  return TemplateRefused("no sandbox is privileged", "privileged",
                         "customizations.hutch.relax names what can be weakened");
}

Status ReadSecurityOptions(const Json& value, Draft&) {
  if (!value.is_array()) return TemplateInvalid("must be an array of strings", "securityOpt");
  for (const Json& item : value)
    if (item != "no-new-privileges" && item != "no-new-privileges:true" &&
        item != "no-new-privileges=true")
      return TemplateRefused(
          "only \"no-new-privileges\" is known, which is so anyway", "securityOpt",
          "customizations.hutch.relax has \"seccomp\" and \"no_new_privileges\"");
  return OkStatus();
}

Status ReadOverrideCommand(const Json& value, Draft&) {
  bool flag = true;
  RETURN_IF_ERROR(ReadBoolean(value, "overrideCommand", &flag));
  if (flag) return OkStatus();
  return TemplateRefused("the image's command does not run by itself", "overrideCommand",
                         "a command of exec or of a process that names none runs it");
}

Status ReadChoice(const Json& value, const char* name, const std::vector<std::string>& choices) {
  if (value.is_string() &&
      std::find(choices.begin(), choices.end(), value.get<std::string>()) != choices.end())
    return OkStatus();
  std::string what = "must be one of";
  for (const std::string& choice : choices) what += " " + choice;
  return TemplateInvalid(what, name);
}

// Of a window that there is not: sandboxes end as their time-outs say.
Status ReadShutdownAction(const Json& value, Draft&) {
  return ReadChoice(value, "shutdownAction", {"none", "stopContainer"});
}

// There is no bind mount whose owner a user's number would have to match.
Status ReadUpdateUid(const Json& value, Draft&) {
  bool flag = true;
  return ReadBoolean(value, "updateRemoteUserUID", &flag);
}

// No shell is asked for its environment.
Status ReadEnvProbe(const Json& value, Draft&) {
  RETURN_IF_ERROR(ReadChoice(value, "userEnvProbe",
                             {"none", "interactiveShell", "loginShell", "loginInteractiveShell"}));
  if (value == "none") return OkStatus();
  return TemplateRefused("no shell is asked for its environment", "userEnvProbe",
                         "\"none\", and remoteEnv for what commands need");
}

Status ReadSchema(const Json& value, Draft&) {
  return value.is_string() ? OkStatus() : Status(TemplateInvalid("must be a string", "$schema"));
}

Status ReadOtherPorts(const Json& value, Draft&) {
  return value.is_object() ? OkStatus()
                           : Status(TemplateInvalid("must be an object", "otherPortsAttributes"));
}

constexpr const char* kStages[] = {"onCreateCommand", "updateContentCommand", "postCreateCommand",
                                   "postStartCommand"};

Status ReadWaitFor(const Json& value, Draft& draft) {
  RETURN_IF_ERROR(ReadChoice(
      value, "waitFor", {"initializeCommand", kStages[0], kStages[1], kStages[2], kStages[3]}));
  draft.made.wait_for = value.get<std::string>();
  return OkStatus();
}

// Other tools' customizations are theirs.
Status ReadCustomizations(const Json& value, Draft& draft) {
  if (!value.is_object()) return TemplateInvalid("must be an object", "customizations");
  const auto ours = value.find("hutch");
  if (ours == value.end() || ours->is_null()) return OkStatus();
  if (!ours->is_object()) return TemplateInvalid("must be an object", "customizations.hutch");
  draft.ours = *ours;
  return OkStatus();
}

struct PropertyRow {
  const char* name;
  Status (*read)(const Json& value, Draft& draft);
};
// The workspace first: variables name it.
constexpr PropertyRow kProperties[] = {
    {"workspaceFolder", ReadWorkspace},
    {"forwardPorts", ReadForwardPorts},
    {"appPort", ReadAppPort},
    {"portsAttributes", ReadPortsAttributes},  // of the ports above
    {"otherPortsAttributes", ReadOtherPorts},
    {"$schema", ReadSchema},
    {"name", ReadName},
    {"image", ReadImage},
    {"containerEnv", ReadContainerEnv},
    {"remoteEnv", ReadRemoteEnv},
    {"containerUser", ReadContainerUser},
    {"remoteUser", ReadRemoteUser},
    {"mounts", ReadMounts},
    {"hostRequirements", ReadNeeds},
    {"init", ReadInit},
    {"privileged", ReadPrivileged},
    {"securityOpt", ReadSecurityOptions},
    {"overrideCommand", ReadOverrideCommand},
    {"shutdownAction", ReadShutdownAction},
    {"updateRemoteUserUID", ReadUpdateUid},
    {"userEnvProbe", ReadEnvProbe},
    {"waitFor", ReadWaitFor},
    {"customizations", ReadCustomizations},
};

template <class Rows, class Name>
bool Has(const Rows& rows, const std::string& key, const Name& name) {
  return std::any_of(std::begin(rows), std::end(rows),
                     [&](const auto& row) { return key == name(row); });
}

Status CheckKnown(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    const auto name = [](const auto& row) { return row.name; };
    if (Has(kProperties, key, name) || Has(kRefused, key, name) ||
        Has(kStages, key, [](const char* stage) { return stage; }))
      continue;
    return Error{.code = Code::kInvalidArgument,
                 .what = "unknown property \"" + key + "\"",
                 .field = key,
                 .hint = "settings of hutch's own are in customizations.hutch"};
  }
  return OkStatus();
}

Status ReadStages(const Json& json, Draft& draft) {
  Template& made = draft.made;
  const bool all = made.wait_for.empty();
  bool awaited = made.wait_for != "initializeCommand";
  for (const char* property : kStages) {
    const auto it = json.find(property);
    if (it != json.end() && !AsksForNothing(*it)) {
      ASSIGN_OR_RETURN(TemplateStage stage, ReadStage(*it, property, draft.workspace));
      made.stages.push_back(std::move(stage));
    }
    if (awaited) made.awaited = made.stages.size();
    if (!all && made.wait_for == property) awaited = false;
  }
  return OkStatus();
}

// --- customizations.hutch, and all of it as a request

constexpr const char* kOurMembers[] = {"limits", "timeouts", "env",   "workdir", "user",
                                       "rootfs", "labels",   "relax", "proc"};

Status CheckOurs(Draft& draft) {
  const std::string path = "customizations.hutch";
  const auto description = draft.ours.find("description");
  if (description != draft.ours.end()) {
    ASSIGN_OR_RETURN(draft.made.description,
                     ReadText(*description, path + ".description", draft.workspace));
    draft.ours.erase("description");
  }
  for (const auto& [key, value] : draft.ours.items())
    if (!Has(kOurMembers, key, [](const char* member) { return member; }))
      return TemplateInvalid("is unknown", path + "." + key);
  const auto relax = draft.ours.find("relax");
  if (relax != draft.ours.end() && !AsksForNothing(*relax) && draft.config.template_relax != "on")
    return Error{.code = Code::kForbidden,
                 .what = path + ".relax: templates may not weaken sandboxes here",
                 .field = path + ".relax",
                 .hint = "template_relax in hutchd's configuration lets them"};
  Json probe = draft.ours;
  probe["image"] = "image";
  Result<SandboxFields> fields = ParseSandboxFields(probe, draft.config);
  if (fields.has_value()) return OkStatus();
  Error error = std::move(fields).error();
  error.field = error.field.empty() ? path : path + "." + error.field;
  error.what = error.field + ": " + error.what;
  return error;
}

struct NeedRow {
  const char* property;  // of hostRequirements
  const char* limit;     // of limits
  double need, usual, ceiling;
};

// What the host must be able to give is the least that the sandbox gets.
Status ApplyNeeds(const Draft& draft, Json& settings) {
  const TemplateNeeds& needs = draft.made.needs;
  const Amounts& usual = draft.config.defaults;
  const Amounts& ceilings = draft.config.ceilings;
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const NeedRow rows[] = {
      {"cpus", "cpus", needs.cpus, usual.cpus, ceilings.cpus},
      {"memory", "memory_bytes", number(needs.memory_bytes), number(usual.memory_bytes),
       number(ceilings.memory_bytes)},
      {"storage", "disk_bytes", number(needs.disk_bytes), number(usual.disk_bytes),
       number(ceilings.disk_bytes)},
  };
  for (const NeedRow& row : rows) {
    const std::string property = std::string("hostRequirements.") + row.property;
    if (row.ceiling > 0 && row.need > row.ceiling)
      return Error{.code = Code::kLimit,
                   .what = property + " is above the operator's ceiling",
                   .field = property};
    const Json& limits = settings["limits"];
    const auto given = limits.find(row.limit);
    if (given != limits.end() && !given->is_null()) {
      if (given->get<double>() < row.need)
        return TemplateInvalid("is more than customizations.hutch.limits has", property);
    } else if (row.need > row.usual) {
      settings["limits"][row.limit] =
          row.limit == std::string("cpus") ? Json(row.need) : Json(static_cast<uint64_t>(row.need));
    }
  }
  return OkStatus();
}

Status MakeSettings(Draft& draft) {
  Json& settings = draft.made.settings;
  settings["image"] = draft.made.image;
  if (!draft.container_env.empty()) settings["env"] = draft.container_env;
  const std::string& user = draft.remote_user.empty() ? draft.container_user : draft.remote_user;
  if (!user.empty()) settings["user"] = user;
  if (draft.workspace != "/workspace") settings["workdir"] = draft.workspace;
  if (!draft.volumes.empty()) settings["volumes"] = VolumesJson(draft.volumes);
  if (!draft.ports.empty()) settings["ports"] = PortListJson(draft.ports);
  settings = MergeRequest(settings, draft.ours);
  if (!settings.contains("limits")) settings["limits"] = Json::object();
  RETURN_IF_ERROR(ApplyNeeds(draft, settings));
  if (settings["limits"].empty()) settings.erase("limits");
  const Result<SandboxFields> fields = ParseSandboxFields(settings, draft.config);
  return fields.has_value() ? OkStatus() : Status(fields.error());
}

}  // namespace

Result<Template> ParseDevcontainer(std::string_view text, const Config& config) {
  ASSIGN_OR_RETURN(const std::string plain, oci::JsoncToJson(text, kMaxDevcontainerBytes));
  ASSIGN_OR_RETURN(const Json json, oci::ParseJson(plain, {.max_bytes = kMaxDevcontainerBytes,
                                                           .max_depth = kMaxDevcontainerDepth}));
  if (!json.is_object()) return Error{.code = Code::kInvalidArgument, .what = "not a JSON object"};
  RETURN_IF_ERROR(CheckKnown(json));
  RETURN_IF_ERROR(CheckRefused(json));
  Draft draft{.config = config};
  for (const PropertyRow& row : kProperties) {
    const auto it = json.find(row.name);
    if (it != json.end() && !it->is_null()) RETURN_IF_ERROR(row.read(*it, draft));
  }
  if (draft.made.image.empty()) return TemplateInvalid("is required", "image");
  RETURN_IF_ERROR(ReadStages(json, draft));
  RETURN_IF_ERROR(CheckOurs(draft));
  RETURN_IF_ERROR(MakeSettings(draft));
  return std::move(draft.made);
}

oci::Json TemplateJson(const Template& made) {
  Json stages = Json::array();
  for (const TemplateStage& stage : made.stages) {
    Json commands = Json::array();
    for (const TemplateCommand& command : stage.commands)
      commands.push_back({{"name", command.name.empty() ? Json() : Json(command.name)},
                          {"command", command.args}});
    stages.push_back({{"stage", stage.property}, {"commands", std::move(commands)}});
  }
  Json remote = Json::object();
  for (const auto& [name, value] : made.remote_env) remote[name] = value ? Json(*value) : Json();
  Json directories = Json::array();
  for (const WritableDirectory& directory : made.directories) directories.push_back(directory.path);
  return {{"title", made.title},
          {"description", made.description},
          {"image", made.image},
          {"settings", made.settings},
          {"remote_env", std::move(remote)},
          {"writable_directories", std::move(directories)},
          {"lifecycle", std::move(stages)},
          {"wait_for", made.wait_for.empty() ? kStages[3] : made.wait_for}};
}

oci::Json MergeRequest(const Json& settings, const Json& request) {
  Json merged = settings;
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) {
      merged.erase(key);
    } else if (value.is_object()) {
      if (!merged.contains(key) || !merged[key].is_object()) merged[key] = Json::object();
      for (const auto& [name, member] : value.items()) {
        if (member.is_null())
          merged[key].erase(name);
        else
          merged[key][name] = member;
      }
    } else {
      merged[key] = value;
    }
  }
  return merged;
}

Status CheckNeeds(const TemplateNeeds& needs, const SandboxFields& fields) {
  const auto below = [](const char* field) {
    return Error{.code = Code::kInvalidArgument,
                 .what = "is less than the template needs (hostRequirements)",
                 .field = field};
  };
  if (fields.cpus < needs.cpus) return below("limits.cpus");
  if (fields.memory_bytes < needs.memory_bytes) return below("limits.memory_bytes");
  if (fields.disk_bytes < needs.disk_bytes) return below("limits.disk_bytes");
  return OkStatus();
}

namespace {

// The value of NAME among "NAME=value".
std::optional<std::string> EnvValue(const std::vector<std::string>& env, const std::string& name) {
  for (const std::string& entry : env)
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

constexpr std::string_view kContainerEnv = "${containerEnv:";

std::string ResolveOne(const std::string& text, const std::vector<std::string>& env) {
  std::string out;
  size_t at = 0;
  while (out.size() <= kMaxEnvBytes) {
    const size_t begin = text.find(kContainerEnv, at);
    const size_t end = begin == std::string::npos ? begin : text.find('}', begin);
    if (end == std::string::npos) break;
    out.append(text, at, begin - at);
    const size_t name_at = begin + kContainerEnv.size();
    const std::string inner = text.substr(name_at, end - name_at);
    const size_t colon = inner.find(':');
    const std::string otherwise = colon == std::string::npos ? "" : inner.substr(colon + 1);
    out += EnvValue(env, inner.substr(0, colon)).value_or(otherwise);
    at = end + 1;
  }
  out.append(text, at);
  return out;
}

}  // namespace

Result<RemoteEnv> ResolveRemoteEnv(const RemoteEnv& remote_env,
                                   const std::vector<std::string>& container_env) {
  RemoteEnv resolved;
  size_t total = 0;
  for (const auto& [name, value] : remote_env) {
    if (value) resolved[name] = ResolveOne(*value, container_env);
    if (!value) resolved[name] = std::nullopt;
    total += name.size() + (value ? resolved[name]->size() : 0) + 2;
    if (total > kMaxEnvBytes)
      return Error{.code = Code::kLimit,
                   .what = "remoteEnv of the template has more than " +
                           std::to_string(kMaxEnvBytes) + " bytes",
                   .field = "template"};
  }
  return resolved;
}

}  // namespace hutch::daemon
