#include "oci/seccomp_json.h"

#include <algorithm>
#include <optional>

namespace hutch::oci {
namespace {

constexpr size_t kMaxRules = 4096;
constexpr int kLastErrno = 133;  // EHWPOISON

// The first of the errors of several objects, in the order in which they were read.
class Parser {
 public:
  explicit Parser(SeccompDialect dialect)
      : unknown_(dialect == SeccompDialect::kProfileFile ? ObjectReader::Unknown::kRefuse
                                                         : ObjectReader::Unknown::kIgnore) {}

  Result<LinuxSeccomp> Profile(const Json& value, const std::string& path);

 private:
  using Unknown = ObjectReader::Unknown;

  Status Architectures(ObjectReader& reader, std::vector<std::string>* out);
  Result<SeccompSyscall> Rule(const Json& value, const std::string& path);
  Result<SeccompArg> Arg(const Json& value, const std::string& path);
  Status Conditions(const Json* value, const std::string& path, std::vector<std::string>* caps,
                    std::vector<std::string>* arches, std::string* min_kernel);
  void ErrnoRet(ObjectReader& reader, const char* number_name, const char* symbol_name,
                std::optional<uint32_t>* out);

  Unknown unknown_;
};

std::string At(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

// The elements of an array member; nullptr when it is absent or no array (then an error is noted).
const Json* Array(ObjectReader& reader, const char* name) {
  const Json* member = reader.Member(name);
  if (member == nullptr) return nullptr;
  if (!member->is_array()) return reader.Fail(name, "must be an array"), nullptr;
  if (member->size() > kMaxRules)
    return reader.Fail(name, "has more than " + std::to_string(kMaxRules) + " items"), nullptr;
  return member;
}

std::optional<uint32_t> ErrnoByName(const std::string& name) {
  for (int sys = 1; sys <= kLastErrno; ++sys)
    if (ErrnoName(sys) == name) return static_cast<uint32_t>(sys);
  return std::nullopt;
}

// podman writes the number and, beside it, the symbol.
void Parser::ErrnoRet(ObjectReader& reader, const char* number_name, const char* symbol_name,
                      std::optional<uint32_t>* out) {
  uint64_t number = UINT64_MAX;
  std::string symbol;
  reader.Uint(number_name, &number, 0, UINT16_MAX);
  if (number != UINT64_MAX) *out = static_cast<uint32_t>(number);
  if (unknown_ == Unknown::kIgnore) return;
  reader.String(symbol_name, &symbol);
  if (symbol.empty()) return;
  const std::optional<uint32_t> named = ErrnoByName(symbol);
  if (!named) return reader.Fail(symbol_name, "is not the name of an errno");
  if (*out && *out != named)
    return reader.Fail(symbol_name, "contradicts " + std::string(number_name));
  *out = named;
}

Result<SeccompArg> Parser::Arg(const Json& value, const std::string& path) {
  SeccompArg arg;
  uint64_t index = 0;
  ObjectReader reader(value, path);
  reader.Uint("index", &index, 0, 5).Uint("value", &arg.value).Uint("valueTwo", &arg.value_two);
  reader.String("op", &arg.op);
  if (arg.op.empty()) reader.Fail("op", "is required");
  RETURN_IF_ERROR(reader.Done(unknown_));
  arg.index = static_cast<uint32_t>(index);
  return arg;
}

Status Parser::Conditions(const Json* value, const std::string& path,
                          std::vector<std::string>* caps, std::vector<std::string>* arches,
                          std::string* min_kernel) {
  if (value == nullptr) return OkStatus();
  ObjectReader reader(*value, path);
  reader.Strings("caps", caps).Strings("arches", arches).String("minKernel", min_kernel);
  // A condition that we do not know must not be taken for fulfilled, in whatever document it
  // stands.
  return reader.Done(Unknown::kRefuse);
}

Result<SeccompSyscall> Parser::Rule(const Json& value, const std::string& path) {
  SeccompSyscall rule;
  std::string single, comment;
  ObjectReader reader(value, path);
  reader.Strings("names", &rule.names).String("action", &rule.action).String("comment", &comment);
  reader.String("name", &single);
  if (!single.empty()) {
    if (!rule.names.empty()) reader.Fail("name", "stands beside names");
    rule.names.push_back(single);
  }
  if (rule.names.empty()) reader.Fail("names", "must hold a system call");
  if (rule.action.empty()) reader.Fail("action", "is required");
  ErrnoRet(reader, "errnoRet", "errno", &rule.errno_ret);
  const Json* args = Array(reader, "args");
  const Json* includes = reader.Member("includes");
  const Json* excludes = reader.Member("excludes");
  RETURN_IF_ERROR(reader.Done(unknown_));
  for (size_t i = 0; args != nullptr && i < args->size(); ++i) {
    ASSIGN_OR_RETURN(SeccompArg arg, Arg((*args)[i], At(reader.PathOf("args"), i)));
    rule.args.push_back(std::move(arg));
  }
  RETURN_IF_ERROR(Conditions(includes, reader.PathOf("includes"), &rule.includes_caps,
                             &rule.includes_arches, &rule.includes_min_kernel));
  RETURN_IF_ERROR(Conditions(excludes, reader.PathOf("excludes"), &rule.excludes_caps,
                             &rule.excludes_arches, &rule.excludes_min_kernel));
  return rule;
}

// "architectures" is a list; Docker's "archMap" gives each architecture its compatible ones.
Status Parser::Architectures(ObjectReader& reader, std::vector<std::string>* out) {
  reader.Strings("architectures", out);
  const Json* map = Array(reader, "archMap");
  if (map == nullptr || map->empty()) return OkStatus();
  if (!out->empty()) reader.Fail("archMap", "stands beside architectures");
  for (size_t i = 0; i < map->size(); ++i) {
    std::string main;
    std::vector<std::string> compatible;
    ObjectReader entry((*map)[i], At(reader.PathOf("archMap"), i));
    entry.String("architecture", &main).Strings("subArchitectures", &compatible);
    if (main.empty()) entry.Fail("architecture", "is required");
    RETURN_IF_ERROR(entry.Done(unknown_));
    compatible.insert(compatible.begin(), main);
    for (std::string& name : compatible)
      if (std::find(out->begin(), out->end(), name) == out->end()) out->push_back(std::move(name));
  }
  return OkStatus();
}

Result<LinuxSeccomp> Parser::Profile(const Json& value, const std::string& path) {
  LinuxSeccomp profile;
  ObjectReader reader(value, path);
  reader.String("defaultAction", &profile.default_action).Strings("flags", &profile.flags);
  reader.String("listenerPath", &profile.listener_path)
      .String("listenerMetadata", &profile.listener_metadata);
  if (profile.default_action.empty()) reader.Fail("defaultAction", "is required");
  ErrnoRet(reader, "defaultErrnoRet", "defaultErrno", &profile.default_errno_ret);
  RETURN_IF_ERROR(Architectures(reader, &profile.architectures));
  const Json* rules = Array(reader, "syscalls");
  RETURN_IF_ERROR(reader.Done(unknown_));
  const bool listens = !profile.listener_path.empty() || !profile.listener_metadata.empty();
  if (listens && unknown_ == Unknown::kRefuse)  // of a config.json only
    return Error{.code = Code::kUnsupported,
                 .what = reader.PathOf("listenerPath") + " is not supported",
                 .field = reader.PathOf("listenerPath")};
  for (size_t i = 0; rules != nullptr && i < rules->size(); ++i) {
    ASSIGN_OR_RETURN(SeccompSyscall rule, Rule((*rules)[i], At(reader.PathOf("syscalls"), i)));
    profile.syscalls.push_back(std::move(rule));
  }
  return profile;
}

}  // namespace

Result<LinuxSeccomp> ParseSeccomp(const Json& value, const std::string& path,
                                  SeccompDialect dialect) {
  return Parser(dialect).Profile(value, path);
}

Result<LinuxSeccomp> ParseSeccompProfile(std::string_view text) {
  ASSIGN_OR_RETURN(const Json value, ParseJson(text));
  return ParseSeccomp(value, "", SeccompDialect::kProfileFile);
}

}  // namespace hutch::oci
