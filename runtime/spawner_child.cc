// The spawn server: a small single-threaded process that clones agents for hutchd. It runs the same
// static program as the agents, so that the child needs no exec: it goes straight on with the
// agent's steps.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

#include "base/sys_raw.h"
#include "rootfs/mount_plan.h"
#include "runtime/agent_child.h"
#include "runtime/spawn_protocol.h"

namespace hutch::runtime {
namespace {

constexpr size_t kSpawnMaxFds = kSpawnFixedFds + kMaxV1Fds;

struct Spawner {
  int control_fd;
  int own_netns_fd;
  bool has_time_namespace;
};

struct Request {
  SpawnRequest message;
  int fds[kSpawnMaxFds];
  size_t fd_count;
  int go_read, go_write;
  int pidfd;
  pid_t pid;
};

size_t AppendNumber(char* out, uint32_t value) noexcept {
  char digits[10];
  size_t n = 0;
  do digits[n++] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  for (size_t i = 0; i < n; ++i) out[i] = digits[n - 1 - i];
  return n;
}

size_t AppendText(char* out, const char* text) noexcept {
  const size_t n = std::strlen(text);
  std::memcpy(out, text, n);
  return n;
}

// "/proc/<pid>/<name>"
void ProcPath(char* out, pid_t pid, const char* name) noexcept {
  size_t n = AppendText(out, "/proc/");
  n += AppendNumber(out + n, static_cast<uint32_t>(pid));
  out[n++] = '/';
  n += AppendText(out + n, name);
  out[n] = '\0';
}

int WriteMap(pid_t pid, const char* name, uint32_t host_start) noexcept {
  char path[48], text[48];
  ProcPath(path, pid, name);
  size_t n = AppendText(text, "0 ");
  n += AppendNumber(text + n, host_start);
  text[n++] = ' ';
  n += AppendNumber(text + n, kIdsPerSandbox);
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int err = ::write(fd, text, n) == static_cast<ssize_t>(n) ? 0 : errno;
  ::close(fd);
  return err;
}

// Moves the two kept descriptors to their fixed numbers and closes all others but those the agent's
// first steps need.
void SettleDescriptors(const Request& r, AgentState& state, int* v1_fds) noexcept {
  // First above the fixed range, so that no dup2 overwrites one that is still to be moved.
  const int conn = ::fcntl(r.fds[kSpawnConnFd], F_DUPFD_CLOEXEC, 64);
  const int listener = ::fcntl(r.fds[kSpawnListenFd], F_DUPFD_CLOEXEC, 64);
  const int go = ::fcntl(r.go_read, F_DUPFD_CLOEXEC, 64);
  for (size_t i = 0; i < r.message.v1_count; ++i)
    v1_fds[i] = ::fcntl(r.fds[kSpawnFixedFds + i], F_DUPFD_CLOEXEC, 64);
  ::dup3(conn, kConnFd, O_CLOEXEC);
  ::dup3(listener, kListenFd, O_CLOEXEC);
  sys::CloseRange(kListenFd + 1, 63, 0);
  ::close(conn);
  ::close(listener);
  state.v1_fds = v1_fds;
  state.v1_count = r.message.v1_count;
  state.go_fd = go;
}

[[noreturn]] void RunChild(const Request& r) noexcept {
  static constinit AgentState state{};
  static int v1_fds[kMaxV1Fds];
  SettleDescriptors(r, state, v1_fds);
  state.hostname = r.message.hostname;
  RunAgent(state);
}

int CloneAgent(const Spawner& spawner, Request& r) noexcept {
  struct clone_args args {};
  args.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
               CLONE_PIDFD | CLONE_INTO_CGROUP | CLONE_CLEAR_SIGHAND;
  if (spawner.has_time_namespace) args.flags |= CLONE_NEWTIME;
  args.pidfd = reinterpret_cast<uint64_t>(&r.pidfd);
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(r.fds[kSpawnCgroupFd]);
  const long pid = sys::Clone3(&args);
  if (pid == 0) RunChild(r);
  if (pid < 0) return static_cast<int>(-pid);
  r.pid = static_cast<pid_t>(pid);
  return 0;
}

int WriteMaps(Request& r) noexcept {
  if (const int err = WriteMap(r.pid, "uid_map", r.message.host_id_start); err != 0) return err;
  if (const int err = WriteMap(r.pid, "gid_map", r.message.host_id_start); err != 0) return err;
  return ::write(r.go_write, "g", 1) == 1 ? 0 : errno;
}

int Fail(SpawnReply& reply, SpawnStep step, int err) noexcept {
  reply.answer = SpawnAnswer::kFailed;
  reply.step = static_cast<uint32_t>(step);
  reply.error = err;
  return err;
}

// The steps of one spawn; on failure the child, if any, is killed (SIGCHLD reaps it).
int Spawn(const Spawner& spawner, Request& r, SpawnReply& reply, int* userns_fd) noexcept {
  if (const int netns = r.fds[kSpawnNetnsFd]; ::setns(netns, CLONE_NEWNET) != 0)
    return Fail(reply, SpawnStep::kNetwork, errno);
  int err = CloneAgent(spawner, r);
  // Back at once: the spawn server must not keep a sandbox's network alive.
  if (::setns(spawner.own_netns_fd, CLONE_NEWNET) != 0 && err == 0) err = errno;
  if (err != 0) return Fail(reply, SpawnStep::kClone, err);
  if (err = WriteMaps(r); err != 0) return Fail(reply, SpawnStep::kIdMaps, err);
  char path[48];
  ProcPath(path, r.pid, "ns/user");
  *userns_fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (*userns_fd < 0) return Fail(reply, SpawnStep::kUserNamespace, errno);
  reply.answer = SpawnAnswer::kSpawned;
  reply.pid = r.pid;
  return 0;
}

bool RequestIsSound(const Request& r, long size) noexcept {
  return size == static_cast<long>(sizeof r.message) && r.message.v1_count <= kMaxV1Fds &&
         r.fd_count == kSpawnFixedFds + r.message.v1_count &&
         std::memchr(r.message.hostname, '\0', sizeof r.message.hostname) != nullptr;
}

// One request; false at end of file.
bool ServeRequest(const Spawner& spawner) noexcept {
  static Request r;
  std::memset(&r, 0, sizeof r);
  r.pidfd = -1;
  const long size = ReceiveWithFds(spawner.control_fd, reinterpret_cast<char*>(&r.message),
                                   sizeof r.message, r.fds, kSpawnMaxFds, &r.fd_count);
  if (size == 0 || size == -ECONNRESET) return false;
  SpawnReply reply{};
  reply.number = r.message.number;
  int userns_fd = -1;
  int go[2] = {-1, -1};
  if (size < 0 || !RequestIsSound(r, size) || ::pipe2(go, O_CLOEXEC) != 0) {
    Fail(reply, SpawnStep::kRequest, size < 0 ? static_cast<int>(-size) : EPROTO);
  } else {
    r.go_read = go[0];
    r.go_write = go[1];
    if (Spawn(spawner, r, reply, &userns_fd) != 0 && r.pidfd >= 0)
      sys::PidfdSendSignal(r.pidfd, SIGKILL);
  }
  const int back[kSpawnedFdCount] = {r.pidfd, userns_fd};
  const size_t back_count = reply.answer == SpawnAnswer::kSpawned ? size_t{kSpawnedFdCount} : 0;
  SendWithFds(spawner.control_fd, &reply, sizeof reply, back, back_count);
  for (size_t i = 0; i < r.fd_count; ++i) ::close(r.fds[i]);
  for (const int fd : {go[0], go[1], r.pidfd, userns_fd})
    if (fd >= 0) ::close(fd);
  return true;
}

void Reap(const Spawner& spawner) noexcept {
  int status;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    SpawnReply reply{};
    reply.answer = SpawnAnswer::kExited;
    reply.pid = pid;
    reply.wait_status = status;
    SendWithFds(spawner.control_fd, &reply, sizeof reply, nullptr, 0);
  }
}

// A value below zero would make every sandbox an unlikely OOM victim: raise it, and stop if that
// does not hold.
int RaiseNegativeOomScore() noexcept {
  const int fd = ::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno;
  char first = '0';
  int err = ::pread(fd, &first, 1, 0) == 1 ? 0 : errno;
  if (err == 0 && first == '-' &&
      (::pwrite(fd, "0", 1, 0) != 1 || ::pread(fd, &first, 1, 0) != 1 || first == '-'))
    err = EPERM;
  ::close(fd);
  return err;
}

// What hutchd ignores (SIGPIPE, or SIGHUP under nohup) would stay ignored in every tenant:
// execve(2) and CLONE_CLEAR_SIGHAND reset handlers only. Past libc, which keeps two signals to
// itself and lets posix_spawn ignore them.
int ResetDispositions() noexcept {
  constexpr uint64_t kDefault[4] = {};  // the kernel's sigaction: SIG_DFL, no flags, empty mask
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    const long rc = sys::Raw(SYS_rt_sigaction, signal, kDefault, nullptr, sizeof(uint64_t));
    if (rc < 0) return static_cast<int>(-rc);
  }
  return 0;
}

}  // namespace

int RunSpawner(int control_fd) noexcept {
  sigset_t all;
  sigfillset(&all);
  if (::sigprocmask(SIG_SETMASK, &all, nullptr) != 0) return errno;
  if (const int err = ResetDispositions(); err != 0) return err;
  ::setsid();
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return errno;
  if (const int err = RaiseNegativeOomScore(); err != 0) return err;
  rootfs::CanSealProc();  // once, for all agents
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  const int signal_fd = ::signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
  Spawner spawner{control_fd, ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
                  ::access("/proc/self/ns/time", F_OK) == 0};
  if (signal_fd < 0 || spawner.own_netns_fd < 0) return errno;
  pollfd polls[2] = {{control_fd, POLLIN, 0}, {signal_fd, POLLIN, 0}};
  while (true) {
    if (::poll(polls, 2, -1) < 0 && errno != EINTR) return errno;
    if ((polls[1].revents & POLLIN) != 0) {
      signalfd_siginfo info[8];
      if (::read(signal_fd, info, sizeof info) < 0 && errno != EAGAIN) return errno;
      Reap(spawner);
    }
    if ((polls[0].revents & (POLLIN | POLLHUP)) != 0 && !ServeRequest(spawner)) return 0;
  }
}

}  // namespace hutch::runtime
