// One sandbox as runtime/ sees it: namespaces, cgroups, root and an agent that starts processes.
// Not thread-safe; lives on the daemon's event-loop thread. Nothing here waits: there are
// descriptors to watch, and calls to make when they are readable.
#pragma once

#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"
#include "oci/runtime_spec.h"
#include "runtime/scratch_view.h"

namespace hutch::runtime {

struct Timing {
  const char* step;  // row name
  double ms;
};

// What a process is to be. Descriptors are borrowed for the call.
struct ProcessRequest {
  oci::ProcessSpec spec;  // args, env, cwd, user
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // A sealed memfd with a static program, executed instead of looking up args[0]; args stay its
  // argv.
  int program_fd = -1;
  // A new terminal of the sandbox becomes the process's standard descriptors and its controlling
  // terminal; KeptFd(process, 0) is its master then.
  bool terminal = false;
  uint16_t rows = 24, columns = 80;
  // Descriptors (at most 3) that the agent holds until AcknowledgeExit, for a later hutchd: what is
  // in a pipe does not vanish with this one.
  std::vector<int> kept = {};
};

struct AgentEvent {
  enum class Kind {
    kReady,        // the sandbox is made: it may be used now
    kFailed,       // it could not be made: error says which step; destroy it
    kStarted,      // process: pid inside the sandbox is known
    kStartFailed,  // process: never ran (error: kCommandNotFound, kCommandNotExecutable, kLimit for
                   // pids, kInvalidArgument for the workdir, ...)
    kExited,       // process: wait status and usage; its group may still hold children of it
    kClosed,       // the agent hung up or broke the protocol: the sandbox is lost, destroy it
  };
  Kind kind;
  uint32_t process = 0;
  int pid = 0;             // kStarted
  int wait_status = 0;     // kExited, as waitpid(2)
  struct rusage usage {};  // kExited: of the leader and what it waited for
  std::optional<Error> error = {};
};

class Sandbox {
 public:
  virtual ~Sandbox() = default;  // closes descriptors; does not end the sandbox

  virtual const std::string& id() const = 0;
  virtual uint32_t host_id_start() const = 0;
  virtual pid_t pid() const = 0;  // of the agent, host's view
  virtual bool from_pool() const = 0;
  virtual const std::vector<Timing>& timings() const = 0;  // of creation
  virtual const std::vector<std::string>& reported()
      const = 0;  // what could not be applied as asked (rlimits)
  virtual const cgroups::SandboxGroup& group() const = 0;

  // The directory of its /proc's live files (rootfs/proc_files.h): regular files that hutchd alone
  // can write. Borrowed; -1 when it has none, or after a restart that could not get at it.
  virtual int proc_files_fd() const = 0;
  // Everything the sandbox may write, from the plan on. No descriptor in it when an earlier hutchd
  // made the sandbox and its agent did not keep that very file system.
  virtual const ScratchView& scratch() const = 0;
  // Topmost of the layers below a writable root; borrowed, -1 when there is none.
  virtual int skeleton_fd() const = 0;

  // SOCK_SEQPACKET to the agent; -1 until Runtime::Dispatch said kSpawned. Readable: call
  // ReadAgent.
  virtual int agent_fd() const = 0;
  // Readable once PID 1 has ended; every process of the sandbox is then dead.
  virtual const Pidfd& init() const = 0;

  // Everything the agent has to say now. Never blocks. What comes from it is checked and bounded.
  virtual std::vector<AgentEvent> ReadAgent() = 0;

  // Asks the agent to start a process in a fresh cgroup of its own; returns the process's number
  // ("p1" is 1). Answers come as events. kBadState before kReady; kTooLarge when args and env
  // exceed kMaxStartBytes; kInvalidArgument for an empty args.
  virtual Result<uint32_t> StartProcess(const ProcessRequest& request) = 0;
  // The cgroup of a process, until ForgetProcess. nullptr when unknown.
  virtual const cgroups::ProcessGroup* ProcessCgroup(uint32_t process) const = 0;
  // cgroup.kill: the process and all it ever started.
  virtual Status KillProcess(uint32_t process) = 0;
  // A signal for the leader alone (sent by the agent; nothing when it has ended) or for everything
  // in its group (kNotFound when nothing of it lives).
  virtual Status SignalLeader(uint32_t process, int signal) = 0;
  virtual Status SignalTree(uint32_t process, int signal) = 0;
  // After kExited: what is known of the end has been stored, the agent may forget it. Without this
  // it is told again to the next hutchd.
  virtual void AcknowledgeExit(uint32_t process) = 0;
  // A copy of what the agent keeps: the terminal's master first where there is one, then
  // ProcessRequest::kept (from index 1 on with a terminal, else from 0 on). After kStarted, for
  // processes of an earlier hutchd, too. It comes from the sandbox: fstat(2) it before use.
  // kNotFound when there is no such descriptor.
  virtual Result<UniqueFd> KeptFd(uint32_t process, size_t index) = 0;
  // The agent closes its copy: the write end of a process's input, for example, when it shall see
  // the end of file.
  virtual void DropKeptFd(uint32_t process, size_t index) = 0;
  // The read end of a process's start report: closed by its exec (POLLHUP without POLLIN); what it
  // holds otherwise comes as kStartFailed. -1 when unknown.
  virtual int ReportFd(uint32_t process) const = 0;
  // Numbers up to this one are taken: by ended processes that are still remembered.
  virtual void SkipProcessNumbers(uint32_t last) = 0;
  // Removes the process's cgroup (kBadState while something lives in it: call again later) and its
  // number.
  virtual Status ForgetProcess(uint32_t process) = 0;
  // Numbers of processes whose cgroup still exists, after a restart too.
  virtual std::vector<uint32_t> Processes() const = 0;

  // Makes ahead what the next StartProcess needs; call when idle.
  virtual void Prepare() = 0;

  // cgroup.kill of the whole sandbox. Then watch init().
  virtual Status Kill() = 0;
};

}  // namespace hutch::runtime
