#include "daemon/sandbox_volumes.h"

#include "base/file.h"
#include "base/log.h"

namespace hutch::daemon {

std::string VolumeField(size_t index) { return "volumes[" + std::to_string(index) + "].name"; }

Result<HeldVolumes> ShareVolumes(rootfs::Volumes* volumes, const std::vector<VolumeFields>& wanted,
                                 runtime::CreateRequest* request) {
  HeldVolumes held;
  if (wanted.empty()) return held;
  if (volumes == nullptr)
    return Error{
        .code = Code::kUnsupported, .what = "this daemon has no volumes", .field = "volumes"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto mount = volumes->Attach(wanted[i].name);
    if (!mount.has_value()) {
      Error error = std::move(mount).error();
      error.field = VolumeField(i);
      return error;
    }
    ASSIGN_OR_RETURN(UniqueFd copy, Duplicate((*mount)->fd()));
    request->volumes.push_back({.mount = std::move(copy),
                                .access = wanted[i].readonly ? rootfs::VolumeAccess::kReadOnly
                                                             : rootfs::VolumeAccess::kReadWrite});
    held.push_back(std::move(*mount));
  }
  return held;
}

HeldVolumes TakeUpVolumes(rootfs::Volumes* volumes, const SandboxFacts& facts) {
  HeldVolumes held;
  if (volumes == nullptr) return held;
  for (const VolumeFields& wanted : facts.fields.volumes) {
    auto mount = volumes->Attach(wanted.name);
    if (mount.has_value())
      held.push_back(std::move(*mount));
    else
      Log(LogLevel::kError, "a volume of a living sandbox cannot be mounted again",
          {{"sandbox", facts.id}, {"volume", wanted.name}, {"error", mount.error().ToString()}});
  }
  return held;
}

}  // namespace hutch::daemon
