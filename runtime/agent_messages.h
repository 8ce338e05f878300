// What the agent sends, checked: the one place where its bytes become values. Untrusted input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "oci/runtime_spec.h"
#include "rootfs/mount_planner.h"
#include "runtime/agent_protocol.h"
#include "runtime/sandbox.h"
#include "seccomp/filters.h"

namespace hutch::runtime {

struct AgentReply {
  AgentMessage type;
  uint32_t process = 0;
  int pid = 0;                         // kStarted
  std::vector<int> kept = {};          // kStarted: descriptor numbers of the agent's, or -1
  int wait_status = 0;                 // kExited
  struct rusage usage {};              // kExited
  std::vector<RlimitNote> notes = {};  // kReady
  std::optional<Error> error = {};     // kFailed, kStartFailed
};

// kInvalidArgument for anything that is not exactly a message the agent may send.
Result<AgentReply> ParseAgentReply(std::string_view bytes);

// The error a process's report stands for.
Error StartReportError(uint32_t step, int sys, const oci::ProcessSpec& spec);

// "rlimit RLIMIT_NOFILE hard 65536 lowered to 20000"
std::string NoteText(const RlimitNote& note);

// kInvalidArgument for an unknown rlimit name.
Result<uint32_t> RlimitNumber(const std::string& name);
const char* RlimitName(uint32_t number);  // "?": none of ours

// The bytes of a kPlan and of a kStart message. kTooLarge, kInvalidArgument.
Result<std::string> PrintPlan(const oci::Spec& spec, const rootfs::MountPlan& mounts,
                              const seccomp::FilterSet& filters);
struct StartOptions {
  uint32_t flags = 0;       // StartFlags
  uint32_t kept_count = 0;  // at most kMaxKeptFds
  uint16_t rows = 0, columns = 0;
};
Result<std::string> PrintStart(uint32_t process, const oci::ProcessSpec& spec,
                               const StartOptions& options);

}  // namespace hutch::runtime
