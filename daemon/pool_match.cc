#include "daemon/pool_match.h"

#include <algorithm>
#include <cmath>

#include "daemon/limits.h"
#include "daemon/sandbox_record.h"
#include "rootfs/digest.h"

namespace hutch::daemon {
namespace {

using oci::Json;

constexpr double kMemorySeconds = 20;  // of a rate: what is older counts little
constexpr double kBursts = 2;          // takes do not come evenly

Json StagesJson(const std::vector<TemplateStage>& stages) {
  Json list = Json::array();
  for (const TemplateStage& stage : stages) {
    Json commands = Json::array();
    for (const TemplateCommand& command : stage.commands)
      commands.push_back({{"name", command.name}, {"args", command.args}});
    list.push_back({{"property", stage.property}, {"commands", std::move(commands)}});
  }
  return list;
}

Json DirectoriesJson(const std::vector<WritableDirectory>& directories) {
  Json list = Json::array();
  for (const WritableDirectory& directory : directories)
    list.push_back({directory.path, directory.mode, directory.users, directory.only_if_missing});
  return list;
}

}  // namespace

std::string PoolKey(const SandboxFields& fields, const std::vector<TemplateStage>& stages) {
  Json json = FieldsJson(fields);
  for (const char* given_later : {"image", "name", "owner", "session_key", "labels", "timeouts"})
    json.erase(given_later);
  json["template"] = fields.template_name;
  json["directories"] = DirectoriesJson(fields.directories);
  json["stages"] = StagesJson(stages);
  if (stages.empty()) {
    json.erase("env");
    json.erase("workdir");
  } else {
    json["remote_env"] = Json::object();
    for (const auto& [name, value] : fields.remote_env)
      json["remote_env"][name] = value ? Json(*value) : Json();
  }
  return rootfs::DigestOf(oci::PrintJson(json));
}

Status CheckPoolable(const SandboxFields& fields) {
  if (fields.network.join.empty()) return OkStatus();
  return Error{.code = Code::kUnsupported,
               .what = "sandboxes that join networks are not made ahead",
               .field = "network.join"};
}

void DecayingRate::Add(SteadyTime now) {
  sum_ = PerSecond(now) * kMemorySeconds + 1;
  at_ = now;
}

double DecayingRate::PerSecond(SteadyTime now) const {
  const double age = std::max(0.0, std::chrono::duration<double>(now - at_).count());
  return sum_ * std::exp(-age / kMemorySeconds) / kMemorySeconds;
}

uint64_t WantedMembers(const PoolSpec& spec, double takes_per_second, double make_seconds) {
  if (!spec.demand) return spec.ready;
  const double more = std::round(std::max(0.0, takes_per_second * make_seconds * kBursts));
  if (more >= static_cast<double>(spec.max)) return spec.max;
  return std::min(spec.max, spec.ready + static_cast<uint64_t>(more));
}

std::chrono::milliseconds PoolBackoff(uint64_t failures) {
  const uint64_t doublings = std::min<uint64_t>(failures == 0 ? 0 : failures - 1, 16);
  return std::min<std::chrono::milliseconds>(kPoolBackoffFirst * (uint64_t{1} << doublings),
                                             kPoolBackoffMax);
}

}  // namespace hutch::daemon
