// The agent's steps as two flat tables: what a blank can do before it knows what it will be, and
// the plan. A step that fails ends the agent: less isolation than asked is an error. Order matters;
// comments say what breaks if a row moves.
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstring>
#include <ctime>
#include <initializer_list>

#include "base/sys_raw.h"
#include "rootfs/proc_files.h"
#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {

constexpr int kLastCapability = 63;  // PR_CAPBSET_DROP answers EINVAL past the kernel's last one

// While our ids are still the host's: later the file of a process that is not dumpable belongs to
// nobody we are.
int OpenOomScore(AgentState&) noexcept {
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  if (fd == kOomScoreFd) return 0;
  const int err = ::dup3(fd, kOomScoreFd, O_CLOEXEC) == kOomScoreFd ? 0 : errno;
  ::close(fd);
  return err;
}

// As above; needs CAP_SYS_TIME when written, which is looked up in who opened it.
int OpenClock(AgentState& s) noexcept {
  s.clock_fd = ::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  return s.clock_fd >= 0 || errno == ENOENT ? 0 : errno;
}

int JoinV1Cgroups(AgentState& s) noexcept {
  for (size_t i = 0; i < s.v1_count; ++i) {
    if (::write(s.v1_fds[i], "0", 1) != 1) return errno;
    ::close(s.v1_fds[i]);
  }
  return 0;
}

int AwaitMaps(AgentState& s) noexcept {
  char byte;
  ssize_t n;
  do n = ::read(s.go_fd, &byte, 1);
  while (n < 0 && errno == EINTR);
  ::close(s.go_fd);
  return n == 1 ? 0 : n == 0 ? EPIPE : errno;
}

int BecomeRoot(AgentState&) noexcept {
  // Raw calls: glibc's wrappers signal threads that are not there.
  if (const long rc = sys::Raw(SYS_setgroups, 0, nullptr); rc < 0) return static_cast<int>(-rc);
  if (const long rc = sys::Raw(SYS_setresgid, 0, 0, 0); rc < 0) return static_cast<int>(-rc);
  if (const long rc = sys::Raw(SYS_setresuid, 0, 0, 0); rc < 0) return static_cast<int>(-rc);
  return ::prctl(PR_SET_DUMPABLE, 0) == 0 ? 0
                                          : errno;  // a change of ids may have turned it on again
}

int NewSession(AgentState&) noexcept { return ::setsid() < 0 ? errno : 0; }

int SessionKeyring(AgentState&) noexcept {
  const long rc = sys::Raw(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  // A kernel without keyrings has none to share.
  return rc < 0 && rc != -ENOSYS ? static_cast<int>(-rc) : 0;
}

int SetHostname(AgentState& s) noexcept {
  return ::sethostname(s.hostname, std::strlen(s.hostname)) == 0 ? 0 : errno;
}

// Slave, not private: what the host unmounts must not stay alive in blanks.
int SetPropagation(AgentState&) noexcept {
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0 ? 0 : errno;
}

int PrepareMounts(AgentState& s) noexcept {
  s.proc_fd = rootfs::MakeProc();
  s.devpts_fd = rootfs::MakeDevpts();
  s.mqueue_fd = rootfs::MakeMqueue();
  for (const int fd : {s.proc_fd, s.devpts_fd, s.mqueue_fd})
    if (fd < 0) return -fd;
  return 0;
}

// Bounds what any program here can ever have; the agent itself never executes one.
int DropBounding(AgentState&) noexcept {
  for (int cap = 0; cap <= kLastCapability; ++cap) {
    if ((kTenantRootCaps >> cap & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, cap) == 0) continue;
    return errno == EINVAL ? 0 : errno;
  }
  return 0;
}

int Listen(AgentState&) noexcept { return ::listen(kListenFd, 4) == 0 ? 0 : errno; }

int ReadPlan(AgentState& s) noexcept { return ParsePlan(s.message, s.message_size, &s.plan); }

// Only ever lower than or equal to what we have: raising needs CAP_SYS_RESOURCE on the host. What
// could not be is reported.
int SetRlimits(AgentState& s) noexcept {
  for (uint32_t i = 0; i < s.plan.message->rlimit_count; ++i) {
    const PlanRlimit& want = s.plan.message->rlimits[i];
    rlimit64 now{};
    if (const long rc = sys::Raw(SYS_prlimit64, 0, want.resource, nullptr, &now); rc < 0)
      return static_cast<int>(-rc);
    rlimit64 set{want.soft < now.rlim_max ? want.soft : now.rlim_max,
                 want.hard < now.rlim_max ? want.hard : now.rlim_max};
    if (want.resource == RLIMIT_NOFILE) {
      // The agent keeps descriptors for many processes: the soft limit is each process's own.
      s.tenant_open_files = set.rlim_cur;
      set.rlim_cur = set.rlim_max;
    }
    if (const long rc = sys::Raw(SYS_prlimit64, 0, want.resource, &set, nullptr); rc < 0)
      return static_cast<int>(-rc);
    if (set.rlim_max != want.hard && s.ready.note_count < kMaxNotes)
      s.ready.notes[s.ready.note_count++] = {want.resource, want.hard, set.rlim_max};
  }
  return 0;
}

size_t AppendNumber(char* out, uint64_t value) noexcept {
  char digits[20];
  size_t n = 0;
  do digits[n++] = static_cast<char>('0' + value % 10);
  while ((value /= 10) != 0);
  for (size_t i = 0; i < n; ++i) out[i] = digits[n - 1 - i];
  return n;
}

// The time since boot counts from now for every process started from here on, so that start times
// in /proc, uptime(1) and our /proc/uptime agree. A new time namespace is for children only, and
// its offsets are fixed by the first of them.
int SetClock(AgentState& s) noexcept {
  if (s.clock_fd < 0) return 0;
  if (const long rc = sys::Raw(SYS_unshare, CLONE_NEWTIME); rc < 0) return static_cast<int>(-rc);
  timespec now{};
  if (const long rc = sys::Raw(SYS_clock_gettime, CLOCK_BOOTTIME, &now); rc < 0)
    return static_cast<int>(-rc);
  char text[48] = "boottime -";
  size_t n = std::strlen(text);
  n += AppendNumber(text + n, static_cast<uint64_t>(now.tv_sec));
  std::memcpy(text + n, " 0\n", 3);
  n += 3;
  const bool written = ::write(s.clock_fd, text, n) == static_cast<ssize_t>(n);
  const int err = written ? 0 : errno;
  ::close(s.clock_fd);
  return err;
}

// Moves what outlives the plan to fixed numbers; the plan's own descriptors may sit there.
int KeepDescriptors(AgentState& s, const int* pins) noexcept {
  int kept[2 + rootfs::kMaxPins];
  size_t count = 0;
  kept[count++] = s.plan_fds[kPlanScratchFd];
  if ((s.plan.message->flags & kPlanLiveProc) != 0) {
    kept[count] = sys::Openat2(s.plan_fds[kPlanScratchFd], rootfs::kProcFilesDirectory,
                               O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (kept[count] < 0) return -kept[count];
    ++count;
    for (size_t i = 0; i < rootfs::kMaxPins; ++i) kept[count++] = pins[i];
  }
  for (size_t i = 0; i < count; ++i)
    if (kept[i] = ::fcntl(kept[i], F_DUPFD_CLOEXEC, 64); kept[i] < 0) return errno;
  for (size_t i = 0; i < count; ++i)
    if (::dup3(kept[i], kScratchFd + static_cast<int>(i), O_CLOEXEC) < 0) return errno;
  s.kept_count = static_cast<unsigned>(count - 1);
  return 0;
}

int DoAllMounts(AgentState& s) noexcept {
  int pins[rootfs::kMaxPins];
  for (int& pin : pins) pin = -1;
  const rootfs::MountContext context{s.plan.mounts,
                                     s.plan.message->mount_count,
                                     s.plan.strings,
                                     s.plan_fds,
                                     s.plan_fd_count,
                                     s.plan_fds[kPlanRootFd],
                                     s.plan_fds[kPlanScratchFd],
                                     s.plan_fds[kPlanMaskFd],
                                     s.proc_fd,
                                     s.devpts_fd,
                                     s.mqueue_fd,
                                     (s.plan.message->flags & kPlanDefaultProc) != 0,
                                     pins};
  const int err = rootfs::DoMounts(context, &s.failed_mount);
  return err != 0 ? err : KeepDescriptors(s, pins);
}

// Nothing of the host's stays open: connection, listening socket, the standard three (which are
// /dev/null), and what KeepDescriptors put behind them.
int SealFds(AgentState& s) noexcept {
  return -sys::CloseRange(kFirstFreeFd + s.kept_count, ~0u, 0);
}

int SetNoNewPrivileges(AgentState& s) noexcept {
  if ((s.plan.message->flags & kPlanNoNewPrivileges) == 0) return 0;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : EPERM;
}

int DropCapabilities(AgentState&) noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = static_cast<uint32_t>(kAgentCaps);
  const __user_cap_data_struct data[2] = {{low, low, 0}, {0, 0, 0}};
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return errno;
  return -sys::Capset(&header, data);
}

int VerifyCapabilities(AgentState&) noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (const int rc = sys::Capget(&header, data); rc < 0) return -rc;
  const auto low = static_cast<uint32_t>(kAgentCaps);
  if (data[0].permitted != low || data[0].inheritable != 0 || data[1].permitted != 0 ||
      data[1].inheritable != 0)
    return EPERM;
  for (int cap = 0; cap <= kLastCapability; ++cap) {
    const int bound = ::prctl(PR_CAPBSET_READ, cap);
    if (bound < 0) break;
    if (bound != static_cast<int>(kTenantRootCaps >> cap & 1)) return EPERM;
  }
  return 0;
}

// Last of the confinement: our own calls above stay outside the filter.
int InstallFilter(AgentState& s) noexcept {
  const sock_fprog program{static_cast<unsigned short>(s.plan.message->agent_filter_count),
                           const_cast<sock_filter*>(s.plan.agent_filter)};
  return static_cast<int>(-sys::Raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

// A call no sandbox may make must fail now, whatever seccomp(2) answered. The arguments are
// harmless if it does not.
int VerifySeccomp(AgentState&) noexcept {
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != SECCOMP_MODE_FILTER) return EPERM;
  return sys::Raw(SYS_unshare, CLONE_NEWUTS) == -EPERM ? 0 : EPERM;
}

int VerifyRoot(AgentState& s) noexcept {
  struct statvfs fs {};
  if (::statvfs("/", &fs) != 0) return errno;
  const bool readonly = (fs.f_flag & ST_RDONLY) != 0;
  if (readonly != ((s.plan.message->flags & kPlanReadonlyRoot) != 0)) return EROFS;
  return (fs.f_flag & ST_NOSUID) != 0 && (fs.f_flag & ST_NODEV) != 0 ? 0 : EPERM;
}

struct AgentStepRow {
  AgentStep id;
  int (*run)(AgentState&) noexcept;
};

constexpr AgentStepRow kBlankSteps[] = {
    {AgentStep::kOpenOomScore, OpenOomScore},    // before the ids change
    {AgentStep::kOpenClock, OpenClock},          // before the ids change
    {AgentStep::kJoinV1Cgroups, JoinV1Cgroups},  // before any fork: membership is inherited
    {AgentStep::kAwaitMaps, AwaitMaps},          // without maps every id is the overflow id
    {AgentStep::kBecomeRoot, BecomeRoot},
    {AgentStep::kSession,
     NewSession},  // early: costs milliseconds under load, and not on the create path here
    {AgentStep::kKeyring, SessionKeyring},
    {AgentStep::kHostname, SetHostname},
    {AgentStep::kPropagation, SetPropagation},  // before the first mount
    {AgentStep::kPrepareMounts, PrepareMounts},
    {AgentStep::kDropBounding, DropBounding},  // while SETPCAP is still there
    {AgentStep::kListen, Listen},
};

constexpr AgentStepRow kPlanSteps[] = {
    {AgentStep::kReadPlan, ReadPlan},
    {AgentStep::kRlimits, SetRlimits},
    {AgentStep::kClock, SetClock},      // at creation, not in the blank; needs SYS_ADMIN
    {AgentStep::kMounts, DoAllMounts},  // needs SYS_ADMIN and the plan's descriptors
    {AgentStep::kSealFds, SealFds},     // after the last use of a descriptor of the host's
    {AgentStep::kNoNewPrivileges, SetNoNewPrivileges},
    {AgentStep::kDropCapabilities, DropCapabilities},
    {AgentStep::kVerifyCapabilities, VerifyCapabilities},
    {AgentStep::kVerifyRoot, VerifyRoot},
    {AgentStep::kSeccomp, InstallFilter},  // last: our own calls stay outside it
    {AgentStep::kVerifySeccomp, VerifySeccomp},
};

[[noreturn]] void ReportAndExit(const AgentState& s, AgentStep step, int err) noexcept {
  FailedMessage message{};
  message.header = {kAgentMagic, kAgentVersion, AgentMessage::kFailed, sizeof message, 0};
  message.step = static_cast<uint32_t>(step);
  message.error = err;
  message.detail = static_cast<uint32_t>(s.failed_mount);
  SendWithFds(kConnFd, &message, sizeof message, nullptr, 0);
  ::_exit(200);
}

template <size_t N>
void RunRows(const AgentStepRow (&rows)[N], AgentState& s) noexcept {
  for (const AgentStepRow& row : rows)
    if (const int err = row.run(s); err != 0) ReportAndExit(s, row.id, err);
}

}  // namespace

void RunBlankSteps(AgentState& state) noexcept { RunRows(kBlankSteps, state); }
void RunPlanSteps(AgentState& state) noexcept { RunRows(kPlanSteps, state); }

}  // namespace hutch::runtime
