#include "daemon/devcontainer_values.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;

constexpr uint32_t kTmpfsMode = 01777;  // as docker's

std::string BaseName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

struct Variable {
  std::string name, argument, otherwise;
  bool has_default = false;
};

// "localEnv:HOME:/root"
Variable ParseVariable(const std::string& text) {
  Variable variable;
  const size_t first = text.find(':');
  variable.name = text.substr(0, first);
  if (first == std::string::npos) return variable;
  const size_t second = text.find(':', first + 1);
  variable.argument =
      text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  if (second == std::string::npos) return variable;
  variable.has_default = true;
  variable.otherwise = text.substr(second + 1);
  return variable;
}

struct RefusedVariable {
  const char* name;
  const char* why;
  const char* hint;
};
constexpr RefusedVariable kRefusedVariables[] = {
    {"localEnv", "hutchd's own environment is not for sandboxes",
     "write a default, ${localEnv:NAME:default}, or give the value in the request's env"},
    {"env", "hutchd's own environment is not for sandboxes",
     "write a default, ${localEnv:NAME:default}, or give the value in the request's env"},
    {"containerEnv", "it can stand in remoteEnv only", "a shell in the sandbox knows it as $NAME"},
    {"localWorkspaceFolder", "there is no folder of this host in a sandbox", ""},
    {"localWorkspaceFolderBasename", "there is no folder of this host in a sandbox", ""},
    {"devcontainerId", "a template has no id of its own", ""},
};

// Nothing: not one of the specification's, the text stays as it is.
Result<std::optional<std::string>> ValueOf(const Variable& variable, const std::string& property,
                                           const std::string& workspace, VariablePlace place) {
  using Value = std::optional<std::string>;
  if (variable.name == "containerWorkspaceFolder") return Value(workspace);
  if (variable.name == "containerWorkspaceFolderBasename") return Value(BaseName(workspace));
  const bool local = variable.name == "localEnv" || variable.name == "env";
  if (local && variable.has_default) return Value(variable.otherwise);
  if (variable.name == "containerEnv" && place == VariablePlace::kRemoteEnv) return Value();
  for (const RefusedVariable& row : kRefusedVariables)
    if (variable.name == row.name)
      return TemplateRefused("${" + variable.name + "}: " + row.why, property, row.hint);
  return Value();
}

Result<TemplateCommand> ReadCommand(const Json& value, const std::string& property,
                                    const std::string& workspace) {
  TemplateCommand command;
  if (value.is_string()) {
    ASSIGN_OR_RETURN(std::string line, ReadText(value, property, workspace));
    if (Trim(line).empty()) return TemplateInvalid("must not be empty", property);
    command.args = {"/bin/sh", "-c", std::move(line)};
    return command;
  }
  if (!value.is_array())
    return TemplateInvalid("must be a string or an array of strings", property);
  if (value.empty() || value.size() > kMaxCommandArgs)
    return TemplateInvalid("must have 1 to " + std::to_string(kMaxCommandArgs) + " items",
                           property);
  for (const Json& item : value) {
    ASSIGN_OR_RETURN(std::string arg, ReadText(item, property, workspace));
    command.args.push_back(std::move(arg));
  }
  if (command.args.front().empty()) return TemplateInvalid("must name a program", property);
  return command;
}

// {"type": "tmpfs", "target": "/x"} of "type=tmpfs,target=/x".
Result<std::map<std::string, std::string>> MountParts(const Json& value,
                                                      const std::string& property,
                                                      const std::string& workspace) {
  std::map<std::string, std::string> parts;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      ASSIGN_OR_RETURN(parts[key], ReadText(item, property + "." + key, workspace));
    }
    return parts;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(value, property, workspace));
  for (const std::string& part : Split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key(Trim(part.substr(0, equals)));
    if (!parts.emplace(key, equals == std::string::npos ? "" : part.substr(equals + 1)).second)
      return TemplateInvalid("has \"" + key + "\" twice", property);
  }
  return parts;
}

Result<uint32_t> ReadMode(const std::string& text, const std::string& property) {
  if (text.empty() || text.size() > 4 || text.find_first_not_of("01234567") != std::string::npos)
    return TemplateInvalid("tmpfs-mode must be octal", property);
  return static_cast<uint32_t>(std::stoul(text, nullptr, 8));
}

}  // namespace

Error TemplateInvalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument,
               .what = field + " " + std::move(what),
               .field = std::move(field)};
}

Error TemplateRefused(std::string what, std::string field, std::string hint) {
  return Error{.code = Code::kUnsupported,
               .what = field + " is refused: " + std::move(what),
               .field = std::move(field),
               .hint = std::move(hint)};
}

Result<std::string> ReplaceVariables(const std::string& text, const std::string& property,
                                     const std::string& workspace, VariablePlace place) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = text.find("${", at);
    const size_t end = begin == std::string::npos ? begin : text.find('}', begin);
    if (end == std::string::npos) break;
    out.append(text, at, begin - at);
    const Variable variable = ParseVariable(text.substr(begin + 2, end - begin - 2));
    ASSIGN_OR_RETURN(const std::optional<std::string> value,
                     ValueOf(variable, property, workspace, place));
    if (value)
      out.append(*value);
    else
      out.append(text, begin, end + 1 - begin);
    if (out.size() > kMaxDevcontainerBytes)
      return TemplateInvalid("is too long with its variables replaced", property);
    at = end + 1;
  }
  out.append(text, at);
  return out;
}

Result<std::string> ReadText(const Json& value, const std::string& property,
                             const std::string& workspace) {
  if (!value.is_string()) return TemplateInvalid("must be a string", property);
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) return TemplateInvalid("holds a NUL", property);
  return ReplaceVariables(text, property, workspace, VariablePlace::kElsewhere);
}

Result<TemplateStage> ReadStage(const Json& value, const char* property,
                                const std::string& workspace) {
  TemplateStage stage{.property = property, .commands = {}};
  if (!value.is_object()) {
    ASSIGN_OR_RETURN(TemplateCommand command, ReadCommand(value, property, workspace));
    stage.commands.push_back(std::move(command));
    return stage;
  }
  if (value.size() > kMaxTemplateCommands)
    return TemplateInvalid("has more than " + std::to_string(kMaxTemplateCommands) + " commands",
                           property);
  for (const auto& [name, item] : value.items()) {
    ASSIGN_OR_RETURN(TemplateCommand command,
                     ReadCommand(item, std::string(property) + "." + name, workspace));
    command.name = name;
    stage.commands.push_back(std::move(command));
  }
  return stage;
}

Result<uint64_t> ReadDevcontainerSize(const Json& value, const std::string& property) {
  constexpr std::pair<const char*, unsigned> kUnits[] = {
      {"kb", 10}, {"mb", 20}, {"gb", 30}, {"tb", 40}};
  const Error wrong = TemplateInvalid("must be a size such as \"512mb\" or \"4gb\"", property);
  if (!value.is_string()) return wrong;
  std::string text = value.get<std::string>();
  unsigned shift = 0;
  for (const auto& [unit, bits] : kUnits)
    if (text.ends_with(unit)) shift = bits;
  if (shift > 0) text.resize(text.size() - 2);
  const Result<uint64_t> number = ParseUint(text, (uint64_t{1} << 60) >> shift);
  if (!number.has_value()) return wrong;
  return *number << shift;
}

namespace {

using TemplateMount = std::variant<WritableDirectory, VolumeFields>;
using Parts = std::map<std::string, std::string>;

bool NamesTarget(const std::string& key) {
  return key == "target" || key == "destination" || key == "dst";
}

bool IsYes(const std::string& text) { return text.empty() || text == "true" || text == "1"; }

Result<TemplateMount> ReadVolumeMount(const Parts& parts, const std::string& property) {
  VolumeFields volume;
  for (const auto& [key, text] : parts) {
    if (NamesTarget(key)) {
      volume.target = text;
    } else if (key == "source" || key == "src") {
      volume.name = text;
    } else if (key == "readonly" || key == "ro") {
      volume.readonly = IsYes(text);
    } else if (key != "type") {
      return TemplateRefused("\"" + key + "\" cannot be done for a volume", property,
                             "source, target and readonly can");
    }
  }
  ASSIGN_OR_RETURN(volume.target, NormalDirectory(volume.target, property));
  if (volume.name.empty())
    return TemplateMount(WritableDirectory{.path = volume.target, .users = true});
  return TemplateMount(std::move(volume));
}

}  // namespace

Result<TemplateMount> ReadMount(const Json& value, const std::string& property,
                                const std::string& workspace) {
  if (!value.is_object() && !value.is_string())
    return TemplateInvalid("must be a string or an object", property);
  ASSIGN_OR_RETURN(auto parts, MountParts(value, property, workspace));
  const auto type = parts.find("type");
  const std::string kind = type == parts.end() ? "volume" : type->second;  // docker's default
  if (kind == "bind")
    return TemplateRefused("a bind mount would show a path of this host", property,
                           "copy files in, or put them into the image");
  if (kind == "volume") return ReadVolumeMount(parts, property);
  if (kind != "tmpfs") return TemplateInvalid("has the unknown type \"" + kind + "\"", property);
  WritableDirectory directory{.mode = kTmpfsMode};
  for (const auto& [key, text] : parts) {
    if (key == "type") continue;
    if (NamesTarget(key)) {
      directory.path = text;
    } else if (key == "tmpfs-mode") {
      ASSIGN_OR_RETURN(directory.mode, ReadMode(text, property));
    } else {
      return TemplateRefused("\"" + key + "\" cannot be done for a tmpfs", property,
                             "limits.disk_bytes bounds all that is writable together");
    }
  }
  ASSIGN_OR_RETURN(directory.path, NormalDirectory(directory.path, property));
  return TemplateMount(std::move(directory));
}

namespace {

// "8080:3000", "localhost:3000", "3000".
Result<PortFacts> ReadPort(const oci::Json& value, const std::string& property) {
  const Error wrong = TemplateInvalid("must be a port, as 3000 or \"8080:3000\"", property);
  if (!value.is_string() && !value.is_number_unsigned()) return wrong;
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const size_t colon = text.find(':');
  const std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  const bool here = host.empty() || host == "localhost" || host == "127.0.0.1";
  const Result<uint64_t> port =
      ParseUint(colon == std::string::npos ? text : text.substr(colon + 1), UINT16_MAX);
  const Result<uint64_t> host_port = here ? uint64_t{0} : ParseUint(host, UINT16_MAX);
  if (!port.has_value() || *port == 0 || (host.empty() && colon != std::string::npos)) return wrong;
  if (!host_port.has_value())
    return TemplateRefused("a sandbox is one container: there is no host " + host, property,
                           "name the port alone");
  PortFacts facts;
  facts.port = static_cast<uint16_t>(*port);
  facts.host_port = static_cast<uint16_t>(*host_port);
  return facts;
}

}  // namespace

Result<std::vector<PortFacts>> ReadPorts(const oci::Json& value, const std::string& property) {
  std::vector<PortFacts> ports;
  const oci::Json list = value.is_array() ? value : oci::Json::array({value});
  if (list.size() > kMaxForwards)
    return TemplateInvalid("has more than " + std::to_string(kMaxForwards) + " items", property);
  for (const oci::Json& item : list) {
    ASSIGN_OR_RETURN(
        PortFacts facts,
        ReadPort(item, value.is_array() ? property + "[" + std::to_string(ports.size()) + "]"
                                        : property));
    ports.push_back(std::move(facts));
  }
  return ports;
}

}  // namespace hutch::daemon
