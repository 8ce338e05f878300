// What the registry of sandboxes (daemon/sandboxes.h) works with.
#pragma once

#include <cstdint>

#include "cgroups/tree.h"
#include "daemon/audit.h"
#include "daemon/config.h"
#include "daemon/loop.h"
#include "rootfs/store.h"
#include "runtime/runtime.h"

namespace hutch::rootfs {
class Volumes;
}

namespace hutch::daemon {

class Forwards;
class SandboxNetworks;
class Watching;
class Worker;

struct SandboxParts {  // all borrowed
  Loop& loop;
  const Config& config;
  runtime::Runtime& runtime;
  rootfs::Store& store;
  cgroups::Mode mode;
  uint64_t host_memory_bytes;
  uint32_t host_cpus;
  uint64_t host_pids = 0;               // 0: not known, and not counted
  Audit* audit = nullptr;               // without it ends are not recorded
  Forwards* forwards = nullptr;         // without it nothing inside is reached
  Worker* walker = nullptr;             // for large looks at files; without it none are tracked
  SandboxNetworks* networks = nullptr;  // without it none but closed ones are made
  Watching* watching = nullptr;         // without it nobody is told
  rootfs::Volumes* volumes = nullptr;   // without it none with volumes are made
};

}  // namespace hutch::daemon
