// The parts of hutch-init: the spawn server, the agent's steps, its loop, and the processes it
// starts. One static program without heap; every function is noexcept and returns 0 or an errno
// value unless it says otherwise.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>

#include "runtime/agent_protocol.h"
#include "runtime/child_plan.h"

namespace hutch::runtime {

// Descriptors the agent keeps, at fixed numbers from its first instruction on.
inline constexpr int kConnFd = 3;  // to hutchd
inline constexpr int kListenFd =
    4;  // <run-dir>/sandboxes/<id>/agent.sock, bound by hutchd, listened on by the agent
inline constexpr int kOomScoreFd = 5;  // its own /proc/<pid>/oom_score_adj, write-only
inline constexpr int kScratchFd =
    6;  // the root of its scratch file system, O_PATH, once it has a plan: for a later hutchd
inline constexpr int kFirstFreeFd = 7;
// From there on, when kPlanLiveProc is set: the directory of /proc's live files (O_PATH; its number
// is kProcFilesFd), then the links of /proc that are kept in use.
static_assert(kFirstFreeFd == kProcFilesFd);

// What the agent knows of itself; one static instance, filled step by step.
struct AgentState {
  const char* hostname;
  const int* v1_fds;
  size_t v1_count;
  int go_fd;                          // readable once the id maps are written
  int proc_fd, devpts_fd, mqueue_fd;  // made ahead
  int clock_fd;                       // its own timens_offsets; -1: the kernel has none
  unsigned kept_count;                // descriptors from kFirstFreeFd on
  ChildPlan plan;
  int plan_fds[kMaxPlanFdCount];
  size_t plan_fd_count;
  size_t failed_mount;
  ReadyMessage ready;
  uint64_t tenant_open_files;  // soft limit of processes; the agent's own is as high as it may be
  char* message;               // the receive buffer
  size_t message_size;
};

// Reads one message with its descriptors (close-on-exec). Returns its size, 0 at end of file, or
// -errno. More descriptors than fd_capacity, or a cut message, is -EPROTO with everything closed.
long ReceiveWithFds(int socket_fd, char* buffer, size_t capacity, int* fds, size_t fd_capacity,
                    size_t* fd_count) noexcept;
// Sends one message with descriptors; 0 or -errno.
long SendWithFds(int socket_fd, const void* bytes, size_t size, const int* fds,
                 size_t fd_count) noexcept;

// The rows before the plan, then those of the plan; a failing row is reported and ends the agent.
void RunBlankSteps(AgentState& state) noexcept;
void RunPlanSteps(AgentState& state) noexcept;

// PID 1 of a sandbox from clone on; never returns.
[[noreturn]] void RunAgent(AgentState& state) noexcept;

// A child of the agent from clone3 on: never returns. `fds` in StartFd order.
struct ProcessContext {
  const ChildStart* start;
  int fds[kStartFdCount];
  int program_fd;       // -1: args[0] is looked up
  bool has_terminal;    // the three are a terminal of its own
  uint64_t open_files;  // soft limit; 0: as the agent's
  const sock_filter* filter;
  uint16_t filter_count;
  uint32_t filter_flags;
  bool no_new_privileges;  // without it only a privileged process may install a filter
};
[[noreturn]] void RunProcess(const ProcessContext& context) noexcept;

// The spawn server's loop on its socket to hutchd; returns at end of file.
int RunSpawner(int control_fd) noexcept;

// Capabilities a tenant's root may have, and those the agent keeps for itself: bit n is capability
// n.
inline constexpr uint64_t kTenantRootCaps =
    1ull << 0 /*CHOWN*/ | 1ull << 1 /*DAC_OVERRIDE*/ | 1ull << 3 /*FOWNER*/ | 1ull << 4 /*FSETID*/ |
    1ull << 5 /*KILL*/ | 1ull << 6 /*SETGID*/ | 1ull << 7 /*SETUID*/;
// SYS_ADMIN in the sandbox's own user namespace is what CLONE_NEWCGROUP needs; the filter refuses
// all else it is good for.
inline constexpr uint64_t kAgentCaps = kTenantRootCaps | 1ull << 21 /*SYS_ADMIN*/;

}  // namespace hutch::runtime
