// The plan a blank agent receives: everything it needs to become the sandbox, complete before it is
// sent. On the wire a PlanMessage, then mounts, both filters and the strings, back to back.
// ParsePlan checks every count and offset. Usable after clone.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rootfs/mount_plan.h"
#include "runtime/agent_protocol.h"

namespace hutch::runtime {

inline constexpr size_t kMaxFilterInstructions = 4096;  // BPF_MAXINSNS
inline constexpr size_t kMaxPlanStrings = 32 * 1024;

struct PlanRlimit {
  uint32_t resource;
  uint32_t reserved;
  uint64_t soft, hard;
};

enum PlanFlags : uint32_t {
  kPlanNoNewPrivileges = 1,
  kPlanReadonlyRoot = 2,
  kPlanDefaultProc = 4,
  kPlanLiveProc = 8,  // keep the directory of /proc's files open for a later hutchd
};

struct PlanMessage {
  AgentHeader header;
  uint32_t flags;
  uint32_t rlimit_count;
  PlanRlimit rlimits[16];
  uint32_t mount_count;
  uint32_t agent_filter_count;    // instructions
  uint32_t process_filter_count;  // instructions
  uint32_t process_filter_flags;  // SECCOMP_FILTER_FLAG_*
  uint32_t strings_size;
  uint32_t reserved;
};
static_assert(std::is_trivially_copyable_v<PlanMessage>);
static_assert(sizeof(PlanMessage) % alignof(rootfs::MountOp) == 0);

// Views into the message's buffer, which must outlive it.
struct ChildPlan {
  const PlanMessage* message;
  const rootfs::MountOp* mounts;
  const sock_filter* agent_filter;
  const sock_filter* process_filter;
  const char* strings;  // ends with a NUL
};

// Returns 0, or EPROTO for a message that is not a well-formed plan. `buffer` must be 8-byte
// aligned.
int ParsePlan(const void* buffer, size_t size, ChildPlan* plan) noexcept;

// Views into a kStart message. argv and envp point into caller's tables of kMaxArgs + 2 entries in
// all.
struct ChildStart {
  const StartMessage* message;
  const char* workdir;
  char** argv;
  char** envp;
};
int ParseStart(char* buffer, size_t size, char** table, ChildStart* start) noexcept;

}  // namespace hutch::runtime
