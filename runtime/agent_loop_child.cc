// PID 1 of a sandbox: becomes it, then starts processes for hutchd and reaps everything, for as
// long as the sandbox lives. When hutchd goes away a blank ends; a sandbox goes on, and keeps every
// exit status until a new hutchd has taken it.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/sys_raw.h"
#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {

constexpr char kTenantOomScore[] = "500";
constexpr char kAgentOomScore[] = "0";

struct ProcessSlot {
  uint32_t process;  // 0: free
  pid_t pid;
  bool exited;
  ExitedMessage exit;
  int kept[1 + kMaxKeptFds];  // as StartedMessage has them
};

// One static instance: the agent has no heap.
struct Agent {
  int conn_fd;  // -1 while hutchd is away
  int signal_fd;
  sock_filter process_filter[kMaxFilterInstructions];
  uint16_t process_filter_count;
  uint32_t process_filter_flags;
  bool no_new_privileges;
  uint64_t open_files;
  ProcessSlot slots[kMaxAgentProcesses];
  size_t slot_high;  // slots at and above were never used
  alignas(8) char buffer[kMaxStartBytes > kMaxPlanBytes ? kMaxStartBytes : kMaxPlanBytes];
  char* table[kMaxArgs + 2];
};
Agent g_agent;

template <class Message>
void Stamp(Message& message, AgentMessage type, uint32_t process) noexcept {
  message.header = {kAgentMagic, kAgentVersion, type, sizeof message, process};
}

// A failed send means that hutchd is gone; what matters is kept in the slots.
template <class Message>
void Tell(const Message& message) noexcept {
  if (g_agent.conn_fd >= 0) SendWithFds(g_agent.conn_fd, &message, sizeof message, nullptr, 0);
}

ProcessSlot* FindSlot(uint32_t process) noexcept {
  for (size_t i = 0; i < g_agent.slot_high; ++i)
    if (g_agent.slots[i].process == process) return &g_agent.slots[i];
  return nullptr;
}

ProcessSlot* TakeSlot() noexcept {
  if (ProcessSlot* free_slot = FindSlot(0); free_slot != nullptr) return free_slot;
  if (g_agent.slot_high == kMaxAgentProcesses) return nullptr;
  return &g_agent.slots[g_agent.slot_high++];
}

long CloneProcess(const ProcessContext& context) noexcept {
  struct clone_args args {};
  // A cgroup namespace of its own, rooted at its own group: it sees "/" and nothing above.
  args.flags = CLONE_INTO_CGROUP | CLONE_NEWCGROUP | CLONE_CLEAR_SIGHAND;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(context.fds[kStartCgroupFd]);
  return sys::Clone3(&args);
}

// Where agent and tenant share one limit (cgroup v1), the kernel must choose the tenant: it is born
// with a higher score than the agent, which goes back to its own. The way back is open, since
// nobody with CAP_SYS_RESOURCE moved the floor.
int SetOomScore(const char* score) noexcept {
  const auto size = static_cast<ssize_t>(std::strlen(score));
  return ::write(kOomScoreFd, score, static_cast<size_t>(size)) == size ? 0 : errno;
}

// The descriptors of one kStart. What was taken out of `all` is -1 there.
struct StartFds {
  int* all;
  int program;
  int master, slave;  // of a new terminal, or -1
};

void CloseFd(int& fd) noexcept {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// A terminal of the sandbox's own devpts. Its slave belongs to the process's user, as login(1)
// would have it.
int OpenTerminal(const StartMessage& message, StartFds& fds) noexcept {
  fds.master = ::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (fds.master < 0) return errno;
  int unlocked = 0;
  if (::ioctl(fds.master, TIOCSPTLCK, &unlocked) != 0) return errno;
  const winsize size{message.rows, message.columns, 0, 0};
  if (::ioctl(fds.master, TIOCSWINSZ, &size) != 0) return errno;
  fds.slave = ::ioctl(fds.master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fds.slave < 0) return errno;
  return static_cast<int>(-sys::Raw(SYS_fchown, fds.slave, message.uid, -1));
}

int CloneInto(ProcessSlot& slot, const ProcessContext& context) noexcept {
  const StartMessage& message = *context.start->message;
  const bool raise = (message.flags & kRaiseOomScore) != 0;
  if (const int err = raise ? SetOomScore(kTenantOomScore) : 0; err != 0) return err;
  const long pid = CloneProcess(context);
  if (pid == 0) RunProcess(context);
  if (const int err = raise ? SetOomScore(kAgentOomScore) : 0; err != 0) ::_exit(204);
  if (pid < 0) return static_cast<int>(-pid);
  slot.process = message.header.process;
  slot.pid = static_cast<pid_t>(pid);
  slot.exited = false;
  return 0;
}

int StartInto(ProcessSlot& slot, const ChildStart& start, StartFds& fds) noexcept {
  const StartMessage& message = *start.message;
  ProcessContext context{.start = &start,
                         .fds = {},
                         .program_fd = fds.program,
                         .has_terminal = (message.flags & kTerminal) != 0,
                         .open_files = g_agent.open_files,
                         .filter = g_agent.process_filter,
                         .filter_count = g_agent.process_filter_count,
                         .filter_flags = g_agent.process_filter_flags,
                         .no_new_privileges = g_agent.no_new_privileges};
  std::memcpy(context.fds, fds.all, sizeof context.fds);
  if (context.has_terminal) {
    if (const int err = OpenTerminal(message, fds); err != 0) return err;
    for (size_t fd = kStartStdinFd; fd <= kStartStderrFd; ++fd) context.fds[fd] = fds.slave;
  }
  return CloneInto(slot, context);
}

// From now on the slot's: until kForget.
void Keep(ProcessSlot& slot, const StartMessage& message, StartFds& fds) noexcept {
  for (int& kept : slot.kept) kept = -1;
  size_t count = 0;
  if (fds.master >= 0) slot.kept[count++] = fds.master;
  fds.master = -1;
  int* from = fds.all + kStartFdCount + ((message.flags & kHasProgram) != 0 ? 1 : 0);
  for (uint32_t i = 0; i < message.kept_count; ++i) {
    slot.kept[count++] = from[i];
    from[i] = -1;
  }
}

void Free(ProcessSlot& slot) noexcept {
  for (int& kept : slot.kept) CloseFd(kept);
  slot.process = 0;
}

StartedMessage Started(const ProcessSlot& slot) noexcept {
  StartedMessage started{};
  Stamp(started, AgentMessage::kStarted, slot.process);
  started.pid = slot.pid;
  std::memcpy(started.kept, slot.kept, sizeof started.kept);
  return started;
}

void HandleStart(size_t size, int* all, size_t fd_count) noexcept {
  ChildStart start{};
  int err = ParseStart(g_agent.buffer, size, g_agent.table, &start);
  StartFds fds{all, -1, -1, -1};
  if (err == 0) {
    const StartMessage& message = *start.message;
    const size_t programs = (message.flags & kHasProgram) != 0 ? 1 : 0;
    if (fd_count != kStartFdCount + programs + message.kept_count) err = EPROTO;
    if (programs != 0) fds.program = all[kStartFdCount];
  }
  const uint32_t process = reinterpret_cast<AgentHeader*>(g_agent.buffer)->process;
  ProcessSlot* slot = err == 0 ? TakeSlot() : nullptr;
  if (err == 0) err = slot == nullptr ? EAGAIN : StartInto(*slot, start, fds);
  if (err == 0) {
    Keep(*slot, *start.message, fds);
    Tell(Started(*slot));
  }
  CloseFd(fds.master);
  CloseFd(fds.slave);
  if (err == 0) return;
  StartFailedMessage failed{};
  Stamp(failed, AgentMessage::kStartFailed, process);
  failed.error = err;
  Tell(failed);
}

void Hangup() noexcept {
  ::close(g_agent.conn_fd);
  g_agent.conn_fd = -1;
}

void HandleForget(uint32_t process) noexcept {
  ProcessSlot* slot = process != 0 ? FindSlot(process) : nullptr;
  if (slot != nullptr && slot->exited) Free(*slot);
}

// The pid is the leader's until this program itself has reaped it.
void HandleSignal(size_t size) noexcept {
  if (size != sizeof(SignalMessage)) return;
  const auto* message = reinterpret_cast<const SignalMessage*>(g_agent.buffer);
  ProcessSlot* slot = message->header.process != 0 ? FindSlot(message->header.process) : nullptr;
  if (slot != nullptr && !slot->exited && ::kill(slot->pid, message->signal) != 0) return;
}

void HandleDrop(size_t size) noexcept {
  if (size != sizeof(DropMessage)) return;
  const auto* message = reinterpret_cast<const DropMessage*>(g_agent.buffer);
  ProcessSlot* slot = message->header.process != 0 ? FindSlot(message->header.process) : nullptr;
  if (slot != nullptr && message->index < 1 + kMaxKeptFds) CloseFd(slot->kept[message->index]);
}

void HandleMessage() noexcept {
  int fds[kMaxStartFdCount];
  size_t fd_count = 0;
  const long size = ReceiveWithFds(g_agent.conn_fd, g_agent.buffer, sizeof g_agent.buffer, fds,
                                   kMaxStartFdCount, &fd_count);
  if (size == -EAGAIN) return;
  if (size <= 0) return Hangup();
  const auto* header = reinterpret_cast<const AgentHeader*>(g_agent.buffer);
  const bool sound = static_cast<size_t>(size) >= sizeof *header && header->magic == kAgentMagic &&
                     header->version == kAgentVersion && header->size == static_cast<size_t>(size);
  if (sound && header->type == AgentMessage::kStart)
    HandleStart(static_cast<size_t>(size), fds, fd_count);
  if (sound && header->type == AgentMessage::kForget) HandleForget(header->process);
  if (sound && header->type == AgentMessage::kSignal) HandleSignal(static_cast<size_t>(size));
  if (sound && header->type == AgentMessage::kDrop) HandleDrop(static_cast<size_t>(size));
  for (size_t i = 0; i < fd_count; ++i) CloseFd(fds[i]);
  if (!sound) Hangup();
}

// A new hutchd: told everything that is remembered, exits included, since it may not know.
void HandleConnect() noexcept {
  const int fd = ::accept4(kListenFd, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  if (g_agent.conn_fd >= 0) Hangup();
  g_agent.conn_fd = fd;
  HelloMessage hello{};
  Stamp(hello, AgentMessage::kHello, 0);
  for (size_t i = 0; i < g_agent.slot_high; ++i)
    hello.process_count += g_agent.slots[i].process != 0 ? 1 : 0;
  Tell(hello);
  for (size_t i = 0; i < g_agent.slot_high; ++i) {
    const ProcessSlot& slot = g_agent.slots[i];
    if (slot.process == 0) continue;
    Tell(Started(slot));
    if (slot.exited) Tell(slot.exit);
  }
}

int64_t Microseconds(const timeval& time) noexcept { return time.tv_sec * 1000000 + time.tv_usec; }

void Reap() noexcept {
  signalfd_siginfo info[16];
  while (::read(g_agent.signal_fd, info, sizeof info) > 0) continue;
  int status;
  rusage usage{};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;) {
    for (size_t i = 0; i < g_agent.slot_high; ++i) {
      ProcessSlot& slot = g_agent.slots[i];
      if (slot.process == 0 || slot.exited || slot.pid != pid) continue;
      Stamp(slot.exit, AgentMessage::kExited, slot.process);
      slot.exit.wait_status = status;
      slot.exit.user_us = Microseconds(usage.ru_utime);
      slot.exit.system_us = Microseconds(usage.ru_stime);
      slot.exit.max_rss_kib = usage.ru_maxrss;
      slot.exit.in_blocks = usage.ru_inblock;
      slot.exit.out_blocks = usage.ru_oublock;
      slot.exited = true;
      Tell(slot.exit);
      break;
    }
  }
}

void AwaitPlan(AgentState& state) noexcept {
  size_t fd_count = 0;
  const long size = ReceiveWithFds(kConnFd, g_agent.buffer, sizeof g_agent.buffer, state.plan_fds,
                                   kMaxPlanFdCount, &fd_count);
  if (size <= 0 || fd_count < kPlanFdCount)
    ::_exit(size == 0 ? 0 : 201);  // hutchd is gone: a blank ends with it
  state.plan_fd_count = fd_count;
  state.message = g_agent.buffer;
  state.message_size = static_cast<size_t>(size);
}

int OpenSignals() noexcept {
  sigset_t all, chld;
  sigfillset(&all);
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  if (::sigprocmask(SIG_SETMASK, &all, nullptr) != 0) return -1;
  return ::signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
}

void KeepProcessFilter(const ChildPlan& plan) noexcept {
  g_agent.process_filter_count = static_cast<uint16_t>(plan.message->process_filter_count);
  g_agent.process_filter_flags = plan.message->process_filter_flags;
  g_agent.no_new_privileges = (plan.message->flags & kPlanNoNewPrivileges) != 0;
  std::memcpy(g_agent.process_filter, plan.process_filter,
              plan.message->process_filter_count * sizeof(sock_filter));
}

}  // namespace

void RunAgent(AgentState& state) noexcept {
  RunBlankSteps(state);
  BlankMessage blank{};
  Stamp(blank, AgentMessage::kBlank, 0);
  SendWithFds(kConnFd, &blank, sizeof blank, nullptr, 0);
  AwaitPlan(state);
  RunPlanSteps(state);
  KeepProcessFilter(state.plan);  // the buffer is used again
  g_agent.open_files = state.tenant_open_files;
  g_agent.conn_fd = kConnFd;
  g_agent.signal_fd = OpenSignals();
  if (g_agent.signal_fd < 0) ::_exit(202);
  Stamp(state.ready, AgentMessage::kReady, 0);
  Tell(state.ready);
  while (true) {
    pollfd polls[3] = {
        {g_agent.signal_fd, POLLIN, 0}, {kListenFd, POLLIN, 0}, {g_agent.conn_fd, POLLIN, 0}};
    if (::poll(polls, 3, -1) < 0) {
      if (errno == EINTR) continue;
      ::_exit(203);
    }
    if (polls[0].revents != 0) Reap();
    if (polls[2].revents != 0 && g_agent.conn_fd >= 0) HandleMessage();
    if (polls[1].revents != 0) HandleConnect();
  }
}

}  // namespace hutch::runtime
