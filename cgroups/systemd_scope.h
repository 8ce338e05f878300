// systemd's part of a container's groups, over its D-Bus API with libsystemd, which is loaded only
// when it is needed: with cgroupfs its start-up would cost more than everything else. Of this
// folder only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace hutch::cgroups {

// One property of a unit, by D-Bus type: s, b, t, u, as, ay, i.
struct UnitProperty {
  std::string name;
  std::string type;
  std::variant<std::string, uint64_t, int64_t, std::vector<std::string>, std::vector<uint8_t>>
      value;
};

// "s", "'text'", "uint64 5", "true", "['a', 'b']": the text of an annotation
// org.systemd.property.<Name>, in GVariant's notation. kInvalidArgument for another.
Result<UnitProperty> ParseUnitProperty(std::string_view name, std::string_view text);

struct ScopeRequest {
  std::string unit;
  std::string slice;
  std::string description;
  pid_t pid = 0;
  bool user_manager = false;
  std::vector<UnitProperty> properties;
};

// kUnsupported when systemd does not run here, or libsystemd is not installed.
Status CheckSystemd(bool user_manager);
// Starts a transient, delegated scope with the process in it, and waits for the job.
Status StartUnit(const ScopeRequest& request);
Status SetUnitProperties(const std::string& unit, bool user_manager,
                         const std::vector<UnitProperty>& properties);
// "No such unit" is success. Waits for the job.
Status StopUnit(const std::string& unit, bool user_manager);

}  // namespace hutch::cgroups
