// What hutchd and the agent (PID 1 of a sandbox) say to each other over SOCK_SEQPACKET, version 1.
// One message, one struct; sizes are exact; native byte order (both ends are one host).
// docs/agent-protocol.md is the prose. Everything that comes from the agent is untrusted. Usable
// after clone: no heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hutch::runtime {

inline constexpr uint32_t kAgentMagic = 0x48435448;  // "HTCH"
inline constexpr uint16_t kAgentVersion = 1;
inline constexpr size_t kMaxPlanBytes = 160 * 1024;  // a plan message
inline constexpr size_t kMaxStartBytes =
    256 * 1024;                                // a start message: args, env and workdir together
inline constexpr size_t kMaxReplyBytes = 512;  // anything the agent sends
inline constexpr size_t kMaxArgs = 8192;       // args and env entries together
inline constexpr size_t kMaxGroups = 32;
inline constexpr size_t kMaxAgentProcesses = 1024;  // that the agent remembers at once
inline constexpr size_t kMaxNotes = 16;
// The agent's descriptor of the directory of /proc's live files: hutchd takes it again with
// pidfd_getfd(2) after a restart.
inline constexpr int kProcFilesFd = 6;
inline constexpr size_t kCpuMaskWords = 16;  // 1024 CPUs

enum class AgentMessage : uint16_t {
  kPlan = 1,     // hutchd: become a sandbox; descriptors: see PlanFd
  kStart = 2,    // hutchd: start a process; descriptors: see StartFd
  kForget = 3,   // hutchd: the exit of this process has been dealt with
  kBlank = 15,   // agent: its steps before the plan are done
  kReady = 16,   // agent: the plan is done
  kFailed = 17,  // agent: a step failed; the agent exits
  kHello = 18,  // agent: first message on a new connection after the first; its processes follow as
                // kStarted and kExited
  kStarted = 19,
  kStartFailed = 20,  // agent: could not even make the process
  kExited = 21,
};

struct AgentHeader {
  uint32_t magic = kAgentMagic;
  uint16_t version = kAgentVersion;
  AgentMessage type;
  uint32_t size;     // of the whole message
  uint32_t process;  // number given by hutchd, 0 where it does not apply
};

// Order of the descriptors that come with kPlan and kStart.
enum PlanFd : size_t { kPlanRootFd, kPlanScratchFd, kPlanMaskFd, kPlanDevFd, kPlanFdCount };
enum StartFd : size_t {
  kStartCgroupFd,
  kStartStdinFd,
  kStartStdoutFd,
  kStartStderrFd,
  kStartReportFd,
  kStartFdCount
};

struct BlankMessage {
  AgentHeader header;
};
struct FailedMessage {
  AgentHeader header;
  uint32_t step;    // AgentStep
  int32_t error;    // errno value
  uint32_t detail;  // index of the mount at fault, else 0
};
struct RlimitNote {
  uint32_t resource;
  uint64_t wanted, applied;  // hard limit
};
struct ReadyMessage {
  AgentHeader header;
  uint32_t note_count;
  RlimitNote notes[kMaxNotes];
};
struct HelloMessage {
  AgentHeader header;
  uint32_t process_count;
};
struct StartedMessage {
  AgentHeader header;
  int32_t pid;
};
struct StartFailedMessage {
  AgentHeader header;
  int32_t error;
};
struct ExitedMessage {
  AgentHeader header;
  int32_t wait_status;
  int64_t user_us, system_us, max_rss_kib;
};

struct StartMessage {
  AgentHeader header;
  uint32_t uid, gid, umask;
  uint32_t group_count;
  uint32_t groups[kMaxGroups];
  uint32_t arg_count, env_count;
  uint32_t flags;                    // StartFlags
  uint64_t cpu_mask[kCpuMaskWords];  // affinity, bit n of word n / 64; all zero: left alone
  // then: workdir, the args, the env entries, each NUL-terminated
};
enum StartFlags : uint32_t { kRaiseOomScore = 1 };

// What a process reports over its report pipe before it executes; nothing when it got that far.
struct StartReport {
  uint32_t step;  // ProcessStep
  int32_t error;
};

static_assert(std::is_trivially_copyable_v<StartMessage> &&
              std::is_trivially_copyable_v<ReadyMessage>);
static_assert(sizeof(ReadyMessage) <= kMaxReplyBytes);

// Steps of the agent, in order: before the plan is known, then the plan. Names in kAgentStepNames.
enum class AgentStep : uint32_t {
  kOpenOomScore,
  kOpenClock,
  kJoinV1Cgroups,
  kAwaitMaps,
  kBecomeRoot,
  kSession,
  kKeyring,
  kHostname,
  kPropagation,
  kPrepareMounts,
  kDropBounding,
  kListen,
  kReadPlan,
  kRlimits,
  kClock,
  kMounts,
  kSealFds,
  kNoNewPrivileges,
  kDropCapabilities,
  kVerifyCapabilities,
  kSeccomp,
  kVerifySeccomp,
  kVerifyRoot,
  kCount,
};
inline constexpr const char* kAgentStepNames[] = {
    "open oom score",
    "open clock",
    "join v1 cgroups",
    "await id maps",
    "become root",
    "new session",
    "session keyring",
    "hostname",
    "mount propagation",
    "prepare mounts",
    "drop bounding set",
    "listen",
    "read plan",
    "rlimits",
    "clock",
    "mounts",
    "seal descriptors",
    "no new privileges",
    "drop capabilities",
    "verify capabilities",
    "seccomp filter",
    "verify seccomp",
    "verify root",
};
static_assert(sizeof kAgentStepNames / sizeof *kAgentStepNames ==
              static_cast<size_t>(AgentStep::kCount));

// Steps of a process between clone and exec.
enum class ProcessStep : uint32_t {
  kSignals,
  kAffinity,
  kStdio,
  kGroups,
  kUser,
  kVerifyUser,
  kWorkdir,
  kFilter,
  kSealFds,
  kExec,
  kCount,
};
inline constexpr const char* kProcessStepNames[] = {
    "reset signals", "cpu affinity", "standard descriptors", "groups",           "user",
    "verify user",   "workdir",      "seccomp filter",       "seal descriptors", "exec",
};
static_assert(sizeof kProcessStepNames / sizeof *kProcessStepNames ==
              static_cast<size_t>(ProcessStep::kCount));

}  // namespace hutch::runtime
