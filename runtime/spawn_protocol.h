// What hutchd and the spawn server say to each other over SOCK_SEQPACKET. Both ends are ours and
// trusted; sizes are still exact. Usable after clone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::runtime {

inline constexpr size_t kMaxV1Fds = 8;
inline constexpr size_t kMaxIdBytes = 32;
inline constexpr uint32_t kIdsPerSandbox = 65536;

enum SpawnFd : size_t {
  kSpawnCgroupFd,
  kSpawnConnFd,
  kSpawnListenFd,
  kSpawnNetnsFd,
  kSpawnFixedFds
};  // then v1 cgroup.procs files

struct SpawnRequest {
  uint64_t number;
  uint32_t host_id_start;
  uint32_t v1_count;
  char hostname[kMaxIdBytes];  // NUL-terminated
};

enum class SpawnAnswer : uint32_t { kSpawned, kFailed, kExited };

struct SpawnReply {  // with kSpawned: descriptors pidfd, user namespace
  SpawnAnswer answer;
  uint64_t number;      // of the request; 0 with kExited
  int32_t pid;          // host's view
  int32_t error;        // kFailed: errno value
  int32_t wait_status;  // kExited
  uint32_t step;        // kFailed: index into kSpawnStepNames
};
enum SpawnFdBack : size_t { kSpawnedPidfd, kSpawnedUserns, kSpawnedFdCount };

enum class SpawnStep : uint32_t { kRequest, kNetwork, kClone, kIdMaps, kUserNamespace, kCount };
inline constexpr const char* kSpawnStepNames[] = {"spawn request", "enter network", "clone agent",
                                                  "write id maps", "open user namespace"};
static_assert(sizeof kSpawnStepNames / sizeof *kSpawnStepNames ==
              static_cast<size_t>(SpawnStep::kCount));

}  // namespace hutch::runtime
