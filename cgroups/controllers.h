// One controller each: how its limit is written and its statistics are read, on cgroup v2 and on
// v1. A new controller is one file and one row of kControllers.
#pragma once

#include <span>

#include "base/result.h"
#include "cgroups/tree.h"
#include "oci/runtime_spec.h"

namespace hutch::cgroups {

struct Controller {
  const char* name;      // in cgroup.controllers and in a v1 mount's options
  const char* v1_name;   // "blkio" for io
  bool required;         // a host without it cannot run sandboxes
  const char* v2_files;  // what Apply writes, for docs/cgroups.md
  const char* v1_files;
  bool (*wanted)(const oci::LinuxResources&);  // whether any limit of this controller is set
  Status (*apply_v2)(int dir_fd, const std::string& shown, const oci::LinuxResources&);
  Status (*apply_v1)(int dir_fd, const std::string& shown, const oci::LinuxResources&);
  void (*stats_v2)(int dir_fd, Stats&);
  void (*stats_v1)(int dir_fd, Stats&);
};

extern const Controller kMemoryController, kPidsController, kCpuController, kIoController;
// In the order their limits are written.
std::span<const Controller* const> Controllers();
const Controller* FindController(const std::string& name);

// Helpers for the controllers' files.
Status WriteLimit(int dir_fd, const std::string& shown, const char* file, const std::string& value);
bool HasFile(int dir_fd, const char* file);
std::optional<uint64_t> ReadNumber(int dir_fd,
                                   const char* file);  // absent, "max" and nonsense are nullopt
std::optional<uint64_t> ReadKey(int dir_fd, const char* file,
                                std::string_view key);  // "key value" lines

}  // namespace hutch::cgroups
