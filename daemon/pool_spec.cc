#include "daemon/pool_spec.h"

#include <algorithm>
#include <set>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

using oci::Json;
using oci::ObjectReader;

// Whoever takes a sandbox says these.
constexpr const char* kTakers[] = {"name", "owner", "session_key", "labels", "timeouts", "ports"};
constexpr const char* kSubjects[] = {"template", "image"};

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

bool IsName(const std::string& name) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kMaxPoolNameBytes && alnum(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alnum(c) || c == '-' || c == '_' || c == '.'; });
}

Status CheckRequest(const Json& request, const std::string& path) {
  if (!request.is_object()) return Invalid("must be an object", path);
  for (const char* member : kTakers)
    if (request.contains(member))
      return Invalid("comes from the request that takes a sandbox", path + "." + member);
  for (const char* member : kSubjects)
    if (request.contains(member)) return Invalid("stands beside request", path + "." + member);
  return OkStatus();
}

}  // namespace

Result<PoolSpec> ParsePoolSpec(const Json& json, const std::string& path, const std::string& name) {
  PoolSpec spec{.name = name};
  std::string subjects[std::size(kSubjects)];
  ObjectReader reader(json, path);
  if (name.empty()) reader.String("name", &spec.name, 256);
  for (size_t i = 0; i < std::size(kSubjects); ++i) reader.String(kSubjects[i], &subjects[i], 1024);
  spec.ready = 1;
  reader.Uint("ready", &spec.ready, 0, kMaxPoolMembers).Bool("demand", &spec.demand);
  spec.max = spec.ready;
  reader.Uint("max", &spec.max, 0, kMaxPoolMembers);
  const Json* request = reader.Member("request");
  RETURN_IF_ERROR(reader.Done(ObjectReader::Unknown::kRefuse));
  const auto field = [&path](const char* member) {
    return path.empty() ? std::string(member) : path + "." + member;
  };
  if (!IsName(spec.name)) return Invalid("must be [a-z0-9][a-z0-9_.-]{0,62}", field("name"));
  if (subjects[0].empty() == subjects[1].empty())
    return Invalid("one of template and image is required", field("template"));
  if (spec.max < spec.ready) return Invalid("is less than ready", field("max"));
  if (request != nullptr) {
    RETURN_IF_ERROR(CheckRequest(*request, field("request")));
    spec.request = *request;
  }
  for (size_t i = 0; i < std::size(kSubjects); ++i)
    if (!subjects[i].empty()) spec.request[kSubjects[i]] = subjects[i];
  return spec;
}

Json PoolSpecJson(const PoolSpec& spec) {
  Json json = {{"name", spec.name},
               {"ready", spec.ready},
               {"max", spec.max},
               {"demand", spec.demand},
               {"request", spec.request}};
  for (const char* subject : kSubjects) {
    json[subject] = spec.request.contains(subject) ? spec.request[subject] : Json();
    json["request"].erase(subject);
  }
  return json;
}

Result<std::vector<PoolSpec>> ParsePoolSpecs(const Json& json, const std::string& path) {
  if (!json.is_array()) return Invalid("must be a list", path);
  if (json.size() > kMaxPools)
    return Invalid("more than " + std::to_string(kMaxPools) + " pools", path);
  std::vector<PoolSpec> specs;
  std::set<std::string> names;
  for (const Json& item : json) {
    ASSIGN_OR_RETURN(PoolSpec spec, ParsePoolSpec(item, path));
    if (!names.insert(spec.name).second)
      return Invalid("\"" + spec.name + "\" is there twice", path);
    specs.push_back(std::move(spec));
  }
  return specs;
}

Json PoolSpecsJson(const std::vector<PoolSpec>& specs) {
  Json list = Json::array();
  for (const PoolSpec& spec : specs) list.push_back(PoolSpecJson(spec));
  return list;
}

}  // namespace hutch::daemon
