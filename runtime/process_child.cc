// A tenant's process between clone3 and execve: gives up the agent's ids, capabilities and
// descriptors, then executes. Order matters.
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>

#include "base/sys_raw.h"
#include "runtime/agent_child.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxCandidate = 4096;
constexpr const char kDefaultPath[] =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Handlers were cleared by CLONE_CLEAR_SIGHAND; the mask was not.
int ResetSignals(const ProcessContext&) noexcept {
  sigset_t none;
  sigemptyset(&none);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0 ? 0 : errno;
}

// What nproc and the thread pools of run-times count. A hint, not the limit (that is the quota): a
// CPU that has gone meanwhile, or a profile that forbids the call, is no reason to refuse the
// process.
int SetAffinity(const ProcessContext& c) noexcept {
  uint64_t any = 0;
  for (const uint64_t word : c.start->message->cpu_mask) any |= word;
  if (any == 0) return 0;
  const long rc = sys::Raw(SYS_sched_setaffinity, 0, sizeof c.start->message->cpu_mask,
                           c.start->message->cpu_mask);
  return rc >= 0 || rc == -EINVAL || rc == -EPERM || rc == -ENOSYS ? 0 : static_cast<int>(-rc);
}

int SetStdio(const ProcessContext& c) noexcept {
  for (int i = 0; i < 3; ++i)  // the three stand above 2: the agent holds 0 to 2 itself
    if (::dup3(c.fds[kStartStdinFd + static_cast<size_t>(i)], i, 0) < 0) return errno;
  return 0;
}

// A process group of its own: kill(0) stays within. With a terminal a session of its own, since
// only its leader can have a controlling terminal.
int StartSession(const ProcessContext& c) noexcept {
  if (!c.has_terminal) return ::setpgid(0, 0) == 0 ? 0 : errno;
  if (::setsid() < 0) return errno;
  return ::ioctl(0, TIOCSCTTY, 0) == 0 ? 0 : errno;
}

int LimitOpenFiles(const ProcessContext& c) noexcept {
  if (c.open_files == 0) return 0;
  rlimit64 limit{};
  if (const long rc = sys::Raw(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit); rc < 0)
    return static_cast<int>(-rc);
  limit.rlim_cur = c.open_files;
  return static_cast<int>(-sys::Raw(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr));
}

int SetGroups(const ProcessContext& c) noexcept {
  const StartMessage& m = *c.start->message;
  ::umask(m.umask);
  if (const long rc = sys::Raw(SYS_setgroups, m.group_count, m.groups); rc < 0)
    return static_cast<int>(-rc);
  return static_cast<int>(-sys::Raw(SYS_setresgid, m.gid, m.gid, m.gid));
}

// Leaving uid 0 clears every capability; for uid 0 the exec takes them down to the bounding set.
int SetUser(const ProcessContext& c) noexcept {
  const uint32_t uid = c.start->message->uid;
  if (const long rc = sys::Raw(SYS_setresuid, uid, uid, uid); rc < 0) return static_cast<int>(-rc);
  if (uid != 0) return 0;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = static_cast<uint32_t>(kTenantRootCaps);
  const __user_cap_data_struct data[2] = {{low, low, 0}, {0, 0, 0}};
  return -sys::Capset(&header, data);
}

int VerifyUser(const ProcessContext& c) noexcept {
  const StartMessage& m = *c.start->message;
  uid_t r, e, s;
  if (::getresuid(&r, &e, &s) != 0 || r != m.uid || e != m.uid || s != m.uid) return EPERM;
  gid_t rg, eg, sg;
  if (::getresgid(&rg, &eg, &sg) != 0 || rg != m.gid || eg != m.gid || sg != m.gid) return EPERM;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (const int rc = sys::Capget(&header, data); rc < 0) return -rc;
  const uint32_t allowed = m.uid == 0 ? static_cast<uint32_t>(kTenantRootCaps) : 0;
  const bool exact = data[0].permitted == allowed && data[0].effective == allowed &&
                     data[0].inheritable == 0 && data[1].permitted == 0 && data[1].inheritable == 0;
  return exact ? 0 : EPERM;
}

int EnterWorkdir(const ProcessContext& c) noexcept {
  return ::chdir(c.start->workdir) == 0 ? 0 : errno;
}

int InstallProcessFilter(const ProcessContext& c) noexcept {
  const sock_fprog program{c.filter_count, const_cast<sock_filter*>(c.filter)};
  return static_cast<int>(
      -sys::Raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, c.filter_flags, &program));
}

// Close-on-exec rather than closed: the report descriptor is needed until exec.
int SealFds(const ProcessContext&) noexcept {
  return -sys::CloseRange(3, ~0u, CLOSE_RANGE_CLOEXEC);
}

const char* PathOf(char* const* envp) noexcept {
  for (; *envp != nullptr; ++envp)
    if (std::strncmp(*envp, "PATH=", 5) == 0) return *envp + 5;
  return kDefaultPath;
}

// execvp(3) without its shell fallback: the first error that is not "not there" wins over ENOENT.
int Execute(const ProcessContext& c) noexcept {
  if (c.program_fd >= 0)
    return static_cast<int>(
        -sys::Raw(SYS_execveat, c.program_fd, "", c.start->argv, c.start->envp, AT_EMPTY_PATH));
  const char* name = c.start->argv[0];
  if (*name == '\0') return ENOENT;
  if (std::strchr(name, '/') != nullptr) return ::execve(name, c.start->argv, c.start->envp), errno;
  int result = ENOENT;
  const size_t name_size = std::strlen(name) + 1;
  for (const char* part = PathOf(c.start->envp); part != nullptr;) {
    const char* end = std::strchr(part, ':');
    const size_t size = end != nullptr ? static_cast<size_t>(end - part) : std::strlen(part);
    char candidate[kMaxCandidate];
    if (size + 1 + name_size <= sizeof candidate) {
      std::memcpy(candidate, part, size);
      candidate[size] = '/';
      std::memcpy(candidate + size + (size > 0 ? 1 : 0), name, name_size);
      ::execve(candidate, c.start->argv, c.start->envp);
      if (errno == EACCES)
        result = EACCES;
      else if (errno != ENOENT && errno != ENOTDIR)
        return errno;
    }
    part = end != nullptr ? end + 1 : nullptr;
  }
  return result;
}

struct ProcessStepRow {
  ProcessStep id;
  int (*run)(const ProcessContext&) noexcept;
};

constexpr ProcessStepRow kProcessSteps[] = {
    {ProcessStep::kSignals, ResetSignals},
    {ProcessStep::kAffinity, SetAffinity},
    {ProcessStep::kStdio, SetStdio},
    {ProcessStep::kSession, StartSession},
    {ProcessStep::kOpenFiles, LimitOpenFiles},
    {ProcessStep::kGroups, SetGroups},  // needs SETGID
    {ProcessStep::kUser, SetUser},      // last use of a capability
    {ProcessStep::kVerifyUser, VerifyUser},
    {ProcessStep::kWorkdir, EnterWorkdir},  // as the user: its permissions decide
    {ProcessStep::kFilter, InstallProcessFilter},
    {ProcessStep::kSealFds, SealFds},
    {ProcessStep::kExec, Execute},
};

// relax.no_new_privileges = false: seccomp(2) then asks for CAP_SYS_ADMIN, so the filter comes
// while the agent's is still there. A filter that forbids the steps behind it ends the process:
// closed, not open.
constexpr ProcessStepRow kPrivilegedFilterSteps[] = {
    {ProcessStep::kSignals, ResetSignals},     {ProcessStep::kAffinity, SetAffinity},
    {ProcessStep::kStdio, SetStdio},           {ProcessStep::kSession, StartSession},
    {ProcessStep::kOpenFiles, LimitOpenFiles}, {ProcessStep::kFilter, InstallProcessFilter},
    {ProcessStep::kGroups, SetGroups},         {ProcessStep::kUser, SetUser},
    {ProcessStep::kVerifyUser, VerifyUser},    {ProcessStep::kWorkdir, EnterWorkdir},
    {ProcessStep::kSealFds, SealFds},          {ProcessStep::kExec, Execute},
};

template <size_t N>
void RunRows(const ProcessStepRow (&rows)[N], const ProcessContext& context) noexcept {
  for (const ProcessStepRow& row : rows) {
    const int err = row.run(context);
    if (err == 0) continue;
    const StartReport report{static_cast<uint32_t>(row.id), err};
    if (::write(context.fds[kStartReportFd], &report, sizeof report) < 0) ::_exit(199);
    ::_exit(200 + static_cast<int>(row.id));
  }
}

}  // namespace

void RunProcess(const ProcessContext& context) noexcept {
  if (context.no_new_privileges)
    RunRows(kProcessSteps, context);
  else
    RunRows(kPrivilegedFilterSteps, context);
  ::_exit(198);  // not reached: a successful exec does not return
}

}  // namespace hutch::runtime
