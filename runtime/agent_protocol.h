// What hutchd and the agent (PID 1 of a sandbox) say to each other over SOCK_SEQPACKET, version 2.
// One message, one struct; sizes are exact; native byte order (both ends are one host).
// docs/agent-protocol.md is the prose. Everything that comes from the agent is untrusted. Usable
// after clone: no heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/agent_step_names.h"

namespace hutch::runtime {

inline constexpr uint32_t kAgentMagic = 0x48435448;  // "HTCH"
inline constexpr uint16_t kAgentVersion = 2;
inline constexpr size_t kMaxPlanBytes = 160 * 1024;  // a plan message
inline constexpr size_t kMaxStartBytes =
    256 * 1024;                                // a start message: args, env and workdir together
inline constexpr size_t kMaxReplyBytes = 512;  // anything the agent sends
inline constexpr size_t kMaxArgs = 8192;       // args and env entries together
inline constexpr size_t kMaxGroups = 32;
inline constexpr size_t kMaxAgentProcesses = 1024;  // that the agent remembers at once
inline constexpr size_t kMaxNotes = 16;
inline constexpr size_t kMaxVolumes = 16;  // of one sandbox
inline constexpr size_t kMaxKeptFds = 3;   // that the agent keeps for one process
// The agent's descriptor of the directory of /proc's live files: hutchd takes it again with
// pidfd_getfd(2) after a restart.
inline constexpr int kProcFilesFd = 7;
inline constexpr size_t kCpuMaskWords = 16;  // 1024 CPUs

enum class AgentMessage : uint16_t {
  kPlan = 1,     // hutchd: become a sandbox; descriptors: see PlanFd
  kStart = 2,    // hutchd: start a process; descriptors: see StartFd
  kForget = 3,   // hutchd: the exit of this process has been dealt with
  kSignal = 4,   // hutchd: kill(2) for the leader of a process
  kDrop = 5,     // hutchd: one kept descriptor of a process is not needed any more
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
enum PlanFd : size_t {
  kPlanRootFd,
  kPlanScratchFd,
  kPlanMaskFd,
  kPlanDevFd,
  kPlanFdCount,
  kMaxPlanFdCount = kPlanFdCount + kMaxVolumes,  // then one for each volume
};
enum StartFd : size_t {
  kStartCgroupFd,
  kStartStdinFd,
  kStartStdoutFd,
  kStartStderrFd,
  kStartReportFd,
  kStartFdCount,
  // Then, where the flags and kept_count say so: the program, and descriptors to keep.
  kMaxStartFdCount = kStartFdCount + 1 + kMaxKeptFds,
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
  // What the agent keeps for a later hutchd, by its own descriptor numbers, -1 for none: the master
  // of the process's terminal first where it has one, then what came with kStart, in its order.
  int32_t kept[1 + kMaxKeptFds];
};
struct StartFailedMessage {
  AgentHeader header;
  int32_t error;
};
struct ExitedMessage {
  AgentHeader header;
  int32_t wait_status;
  int64_t user_us, system_us, max_rss_kib, in_blocks, out_blocks;  // blocks of 512 bytes
};

struct SignalMessage {
  AgentHeader header;
  int32_t signal;
};

struct DropMessage {
  AgentHeader header;
  uint32_t index;  // into StartedMessage::kept
};

struct StartMessage {
  AgentHeader header;
  uint32_t uid, gid, umask;
  uint32_t group_count;
  uint32_t groups[kMaxGroups];
  uint32_t arg_count, env_count;
  uint32_t flags;                    // StartFlags
  uint32_t kept_count;               // descriptors behind the others, to be kept until kForget
  uint16_t rows, columns;            // of a new terminal
  uint64_t cpu_mask[kCpuMaskWords];  // affinity, bit n of word n / 64; all zero: left alone
  // then: workdir, the args, the env entries, each NUL-terminated
};
enum StartFlags : uint32_t {
  kRaiseOomScore = 1,
  kHasProgram = 2,  // one descriptor behind the fixed ones is executed instead of args[0]
  kTerminal = 4,    // a new terminal of the sandbox's is its standard descriptors
};

// What a process reports over its report pipe before it executes; nothing when it got that far.
struct StartReport {
  uint32_t step;  // ProcessStep
  int32_t error;
};

static_assert(std::is_trivially_copyable_v<StartMessage> &&
              std::is_trivially_copyable_v<ReadyMessage>);
static_assert(sizeof(ReadyMessage) <= kMaxReplyBytes);

}  // namespace hutch::runtime
