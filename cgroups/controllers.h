// One controller each: how its limits are checked and written and its statistics are read, on
// cgroup v2 and on v1. A new controller is one file and one row of kControllers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cgroups/stats.h"
#include "oci/runtime_spec.h"

namespace hutch::cgroups {

struct Controller {
  const char* name;      // in cgroup.controllers
  const char* v1_name;   // in a v1 mount's options: "blkio" for io
  bool required;         // a host without it cannot run sandboxes
  const char* v2_files;  // what apply writes, for docs/cgroups.md
  const char* v1_files;
  bool (*wanted)(const oci::LinuxResources&);  // whether any limit of this controller is set
  // kInvalidArgument for values that the kernel would refuse, or that nothing could run under.
  Status (*check)(const oci::LinuxResources&);
  // Called when wanted and checked. `shown` is the group's path, for messages.
  Status (*apply_v2)(int dir_fd, const std::string& shown, const oci::LinuxResources&);
  Status (*apply_v1)(int dir_fd, const std::string& shown, const oci::LinuxResources&);
  // Leave alone what the group's files do not say.
  void (*stats_v2)(int dir_fd, Stats&);
  void (*stats_v1)(int dir_fd, Stats&);
};

extern const Controller kMemoryController, kPidsController, kCpuController, kIoController;
// In the order their limits are written.
std::span<const Controller* const> Controllers();
const Controller* FindController(std::string_view name);

// Writes one value in one write(2). The error names file and value: kUnsupported when there is no
// such file, kInvalidArgument when the kernel refuses the value.
Status WriteLimit(int dir_fd, const std::string& shown, const char* file, const std::string& value);
bool HasFile(int dir_fd, const char* file);
std::string ReadText(int dir_fd, const char* file);  // absent or gone reads as empty
// The number that is the whole file; nullopt when it is absent, "max" or nonsense.
std::optional<uint64_t> ReadNumber(int dir_fd, const char* file);
// In lines of "key value".
std::optional<uint64_t> FindKey(std::string_view text, std::string_view key);
std::optional<uint64_t> ReadKey(int dir_fd, const char* file, std::string_view key);

}  // namespace hutch::cgroups
