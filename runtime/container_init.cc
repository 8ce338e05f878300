#include "runtime/container_init.h"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "runtime/container_hooks.h"
#include "runtime/container_program.h"
#include "runtime/container_sync.h"
#include "runtime/container_terminal.h"

namespace hutch::runtime {
namespace {

constexpr size_t kMaxPasswdBytes = 1u << 20;

struct ChildRow {
  const char* name;
  Status (*run)(ChildContext&);
};

Status AwaitParent(ChildContext& c) {
  RETURN_IF_ERROR(ExpectNote(c.sync.get(), Note::kGo));
  return OkStatus();
}

Status JoinTarget(ChildContext& c) {
  RETURN_IF_ERROR(TakeRoot(c.root));
  if (c.target_namespaces == 0) return OkStatus();
  if (::setns(c.target_pidfd, c.target_namespaces) != 0)
    return SysError(errno, "join the container's namespaces");
  return OkStatus();
}

Status BecomeNamespaceRoot(ChildContext& c) {
  const bool user = c.namespaces.Makes(CLONE_NEWUSER) ||
                    c.namespaces.JoinedFd(CLONE_NEWUSER) >= 0 ||
                    ((c.target_namespaces | c.joined_by_helper) & CLONE_NEWUSER) != 0;
  if (!user) return OkStatus();
  const long dropped = c.confinement.keep_groups ? 0 : sys::Raw(SYS_setgroups, 0, nullptr);
  if (dropped < 0 && dropped != -EPERM) return SysError(static_cast<int>(-dropped), "setgroups");
  if (const long rc = sys::Raw(SYS_setresgid, 0, 0, 0); rc < 0)
    return SysError(static_cast<int>(-rc), "become group 0 of the user namespace");
  if (const long rc = sys::Raw(SYS_setresuid, 0, 0, 0); rc < 0)
    return SysError(static_cast<int>(-rc), "become user 0 of the user namespace");
  return OkStatus();
}

// Whoever shares the pid namespace must not look into this program (CVE-2019-5736, CVE-2016-9962).
Status HideFromOthers(ChildContext&) {
  return ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? OkStatus()
                                                   : Status(SysError(errno, "not dumpable"));
}

// Those that need no one else: the others were inherited, see NamespaceVisit.
Status JoinNamespaces(ChildContext& c) {
  for (const int flag : {CLONE_NEWTIME, CLONE_NEWCGROUP, CLONE_NEWNS}) {
    const int fd = c.namespaces.JoinedFd(flag);
    if (fd >= 0 && ::setns(fd, flag) != 0) return SysError(errno, "join a namespace by path");
  }
  return OkStatus();
}

Status TakeCgroupNamespace(ChildContext& c) {
  if (!c.cgroup_namespace) return OkStatus();
  return ::unshare(CLONE_NEWCGROUP) == 0 ? OkStatus()
                                         : Status(SysError(errno, "unshare the cgroup namespace"));
}

Status TakeTimeNamespace(ChildContext& c) {
  return c.namespaces.Makes(CLONE_NEWTIME) ? MakeTimeNamespace(*c.config) : OkStatus();
}

Status NewSession(ChildContext&) {
  return ::setsid() >= 0 || errno == EPERM ? OkStatus() : Status(SysError(errno, "setsid"));
}

// An anonymous one: a named one could be joined by others.
Status NewKeyring(ChildContext& c) {
  if (!c.new_keyring) return OkStatus();
  const long rc = sys::Raw(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  // Without keyrings, or where a filter of ours forbids them, there is none to share. Any other
  // failure would leave the caller's keys in reach.
  if (rc >= 0 || rc == -ENOSYS || rc == -EPERM) return OkStatus();
  Error error = SysError(static_cast<int>(-rc), "new session keyring");
  if (rc == -EDQUOT) error.hint = "the user has as many keys as it may; or --no-new-keyring";
  return error;
}

Status BringUpNetwork(ChildContext& c) {
  return c.namespaces.Makes(CLONE_NEWNET) ? BringLoopbackUp() : OkStatus();
}

Status SetNames(ChildContext& c) {
  const std::string& host = c.config->hostname;
  const std::string& domain = c.config->domainname;
  if (!host.empty() && ::sethostname(host.data(), host.size()) != 0)
    return SysError(errno, "sethostname");
  if (!domain.empty() && ::setdomainname(domain.data(), domain.size()) != 0)
    return SysError(errno, "setdomainname");
  return OkStatus();
}

Status MakeMounts(ChildContext& c) { return rootfs::MakeContainerMounts(*c.mounts); }

Status AwaitOuterHooks(ChildContext& c) {
  RETURN_IF_ERROR(SendNote(c.sync.get(), Note::kMounted));
  ASSIGN_OR_RETURN(const ReceivedNote go, ExpectNote(c.sync.get(), Note::kGo));
  ASSIGN_OR_RETURN(const uint64_t pid, ParseUint(go.text));
  c.state["pid"] = pid;
  return OkStatus();
}

// In the root that is to be: hooks mount there, by relative paths.
Status RunCreateHooks(ChildContext& c) {
  if (c.config->hooks.create_container.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const HookRunner runner, HookRunner::Make(c.state, c.mounts->where.rootfs));
  return runner.Run("createContainer", c.config->hooks.create_container);
}

Status EnterRoot(ChildContext& c) { return rootfs::EnterContainerRoot(*c.mounts); }

// runc and crun make it, too: images leave it out.
Status MakeWorkdir(ChildContext& c) {
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  const Result<RootedPath> place = RootedPath::Make(root.get(), c.process->cwd);
  if (place) IgnoreError(place->MakeDirectories(0755, 0, 0), "chdir tells what is wrong");
  return OkStatus();
}

Status OpenConsole(ChildContext& c) {
  if (!c.process->terminal) return OkStatus();
  const oci::ConsoleSize& wanted = c.process->console_size;
  const oci::ConsoleSize& size = wanted.height == 0 && wanted.width == 0 ? c.size : wanted;
  // Without a console socket it is relayed to our own output, which may be a file.
  const TerminalRequest request{
      .rows = static_cast<uint16_t>(size.height),
      .columns = static_cast<uint16_t>(size.width),
      .owner = c.process->user.uid,
      .newlines = c.console_fd < 0 ? Newlines::kAsWritten : Newlines::kWithReturn};
  ASSIGN_OR_RETURN(const TerminalPair pair, OpenTerminal(request));
  if (c.gate.valid() && c.namespaces.Makes(CLONE_NEWNS))
    RETURN_IF_ERROR(BindConsole(pair.slave.get()));
  if (c.console_fd >= 0)
    RETURN_IF_ERROR(SendDescriptor(c.console_fd, pair.master.get(), "/dev/ptmx"));
  else
    RETURN_IF_ERROR(SendNote(c.sync.get(), Note::kTerminal, {}, {pair.master.get()}));
  return TakeTerminal(pair.slave.get());
}

Status SealRoot(ChildContext& c) { return rootfs::SealContainerRoot(*c.mounts); }

Status WriteLabels(ChildContext& c) { return SetLabels(c.confinement); }

Status SetPersonality(ChildContext& c) {
  if (!c.config->linux_.personality) return OkStatus();
  return ::personality(*c.config->linux_.personality) >= 0
             ? OkStatus()
             : Status(SysError(errno, "set the personality"));
}

Status TakeMemoryPolicy(ChildContext& c) { return SetMemoryPolicy(c.confinement.scheduling); }

// So that the user can open /dev/stdout anew. Not what others share: /dev/null is everybody's.
Status OwnStdio(ChildContext& c) {
  for (int fd = 0; fd < 3; ++fd) {
    struct stat st;
    const uid_t uid = c.process->user.uid;
    if (::fstat(fd, &st) != 0 || st.st_uid == uid) continue;
    const bool own = S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode);
    if (!own && ::isatty(fd) == 0) continue;
    // Who owns a file can open it anew for writing.
    if (S_ISREG(st.st_mode) && (::fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) continue;
    // A terminal's group is that of the devpts.
    const gid_t gid = own ? c.process->user.gid : static_cast<gid_t>(-1);
    if (::fchown(fd, uid, gid) != 0 && errno != EPERM && errno != EINVAL && errno != EROFS &&
        errno != ENOSYS)
      return SysError(errno, "give stdio to the user");
  }
  return OkStatus();
}

Status DropBounding(ChildContext& c) { return DropBoundingSet(c.confinement); }
Status NoNewPrivileges(ChildContext& c) { return SetNoNewPrivileges(c.confinement); }
Status Become(ChildContext& c) { return BecomeUser(c.confinement); }

// Images have working directories that their user may not enter, and file systems on the network
// ones that root may not: the second try, as the user, may fail when this one did not.
Status TryDirectory(ChildContext& c) {
  c.in_workdir = ::chdir(c.process->cwd.c_str()) == 0;
  return OkStatus();
}
Status ChangeDirectory(ChildContext& c) {
  return EnterWorkdir(c.confinement, c.in_workdir ? WorkdirSoFar::kEntered : WorkdirSoFar::kOther);
}

// HOME of the container's own passwd file, for programs that lack one.
std::string HomeOf(uint32_t uid) {
  const std::string fallback = uid == 0 ? "/root" : "/";
  const Result<UniqueFd> root = Open("/", O_PATH | O_DIRECTORY);
  if (!root) return fallback;
  const Result<RootedPath> place = RootedPath::Make(root->get(), "etc/passwd");
  if (!place) return fallback;
  const Result<UniqueFd> file = place->OpenRegularFile();
  if (!file) return fallback;
  const Result<std::string> text = ReadAll(file->get(), kMaxPasswdBytes);
  if (!text) return fallback;
  for (const std::string& line : Split(*text, '\n')) {
    const std::vector<std::string> fields = Split(line, ':');
    if (fields.size() >= 6 && fields[2] == std::to_string(uid) && !fields[5].empty())
      return fields[5];
  }
  return fallback;
}

std::vector<std::string> LastOfEachName(const std::vector<std::string>& env) {
  std::vector<std::string> kept;
  std::set<std::string_view> names;
  for (auto entry = env.rbegin(); entry != env.rend(); ++entry)
    if (names.insert(std::string_view(*entry).substr(0, entry->find('='))).second)
      kept.push_back(*entry);
  std::reverse(kept.begin(), kept.end());
  return kept;
}

Status FindIt(ChildContext& c) {
  c.env = LastOfEachName(c.process->env);
  std::erase(c.env, "HOME=");
  bool home = false;
  for (const std::string& entry : c.env) home = home || entry.starts_with("HOME=");
  if (!home) c.env.push_back("HOME=" + HomeOf(c.process->user.uid));
  if (c.listen_fds > 0) {
    c.env.push_back("LISTEN_FDS=" + std::to_string(c.listen_fds));
    c.env.push_back("LISTEN_PID=" + std::to_string(::getpid()));
  }
  ASSIGN_OR_RETURN(c.program, FindProgram(c.process->args.at(0), c.env));
  return OkStatus();
}

// What is left goes with the execve; it must not be there before either, for who looks into
// /proc/<pid>/fd while this process waits (CVE-2024-21626).
Status SealDescriptors(ChildContext& c) {
  RETURN_IF_ERROR(CloseOthers(static_cast<int>(3 + c.preserve_fds), {c.sync.get(), c.gate.get()}));
  const int rc = sys::CloseRange(3 + c.preserve_fds, ~0u, CLOSE_RANGE_CLOEXEC);
  return rc < 0 ? Status(SysError(-rc, "close_range")) : OkStatus();
}

// What is ignored or blocked passes the execve: engines and our own foreground do both.
Status UsualSignals(ChildContext&) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);  // not all have one
  sigset_t none;
  ::sigemptyset(&none);
  return ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0 ? OkStatus()
                                                         : Status(SysError(errno, "sigprocmask"));
}

Status SayReady(ChildContext& c) { return SendNote(c.sync.get(), Note::kReady); }

// The kernel drops what would end the first process of a pid namespace unless it is caught; the
// execve undoes this.
Status EndBySignals(ChildContext&) {
  if (::getpid() != 1) return OkStatus();
  struct sigaction action = {};
  action.sa_handler = [](int signal) { ::_exit(128 + signal); };
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
    if (::sigaction(signal, &action, nullptr) != 0) return SysError(errno, "sigaction");
  return OkStatus();
}

Status AwaitStart(ChildContext& c) {
  int fd;
  do fd = ::accept4(c.gate.get(), nullptr, nullptr, SOCK_CLOEXEC);
  while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (fd < 0) return SysError(errno, "wait for start");
  c.starter.reset(fd);
  c.gate.reset();
  c.sync.reset();
  RETURN_IF_ERROR(ExpectNote(c.starter.get(), Note::kGo));
  return OkStatus();
}

// The filter may forbid what this takes.
Status PrepareStartHooks(ChildContext& c) {
  if (c.config->hooks.start_container.empty()) return OkStatus();
  ASSIGN_OR_RETURN(c.start_hooks, HookRunner::Make(c.state, ""));
  return OkStatus();
}

// Their programs are the image's: they get what the container's program gets, and no more.
Status RunStartHooks(ChildContext& c) {
  if (!c.start_hooks) return OkStatus();
  return c.start_hooks->Run("startContainer", c.config->hooks.start_container, &c.env);
}

int ReportFd(const ChildContext& c) { return c.starter.valid() ? c.starter.get() : c.sync.get(); }

// Whoever waits takes a copy of the descriptor by its number, and says so before the program runs.
Status Filter(ChildContext& c) {
  RETURN_IF_ERROR(LoadFilter(c.confinement, &c.listener));
  if (!c.listener.valid()) return OkStatus();
  RETURN_IF_ERROR(SendNote(ReportFd(c), Note::kListener, std::to_string(c.listener.get())));
  RETURN_IF_ERROR(ExpectNote(ReportFd(c), Note::kGo));
  c.listener.reset();
  return OkStatus();
}

Status DropCaps(ChildContext& c) { return DropCapabilities(c.confinement); }
Status VerifyCaps(ChildContext& c) { return VerifyCapabilities(c.confinement); }
Status Execute(ChildContext& c) { return ExecuteProgram(c.program, c.process->args, c.env); }

constexpr ChildRow kFirstProcessRows[] = {
    {"await parent", AwaitParent},          // maps, group and limits are there afterwards
    {"time namespace", TakeTimeNamespace},  // its file is ours until the next row
    {"session keyring", NewKeyring},  // of the caller's quota: that of the user inside may be full
    {"become namespace root", BecomeNamespaceRoot},
    {"hide from others", HideFromOthers},  // behind the maps: their files are ours until here
    {"join namespaces", JoinNamespaces},
    {"cgroup namespace", TakeCgroupNamespace},
    {"new session", NewSession},
    {"loopback", BringUpNetwork},
    {"names", SetNames},
    {"container mounts", MakeMounts},
    {"await outer hooks", AwaitOuterHooks},     // createRuntime: in the host's namespaces
    {"createContainer hooks", RunCreateHooks},  // paths are the host's until the next row
    {"enter root", EnterRoot},
    {"make workdir", MakeWorkdir},  // before the root is read-only
    {"console", OpenConsole},       // of the container's own devpts
    {"seal root", SealRoot},        // last of what changes mounts
    {"labels", WriteLabels},
    {"personality", SetPersonality},
    {"memory policy", TakeMemoryPolicy},  // in the group: its nodes are counted
    {"own stdio", OwnStdio},
    {"drop bounding set", DropBounding},  // needs SETPCAP, which the next row may take
    {"set no new privileges", NoNewPrivileges},
    {"try directory", TryDirectory},
    {"become user", Become},
    {"change directory", ChangeDirectory},
    {"find program", FindIt},  // as the user: its permissions decide; so that create tells
    {"close descriptors", SealDescriptors},
    {"usual signals", UsualSignals},
    {"end by signals", EndBySignals},
    {"say ready", SayReady},  // created
    {"await start at gate", AwaitStart},
    {"prepare startContainer hooks", PrepareStartHooks},
};

constexpr ChildRow kOneMoreRows[] = {
    {"await parent", AwaitParent},
    {"hide from others", HideFromOthers},  // before anyone inside can see us
    {"join target", JoinTarget},
    {"session keyring", NewKeyring},
    {"become namespace root", BecomeNamespaceRoot},
    {"new session", NewSession},
    {"console", OpenConsole},
    {"labels", WriteLabels},
    {"personality", SetPersonality},
    {"memory policy", TakeMemoryPolicy},  // in the group: its nodes are counted
    {"own stdio", OwnStdio},
    {"drop bounding set", DropBounding},
    {"set no new privileges", NoNewPrivileges},
    {"try directory", TryDirectory},
    {"become user", Become},
    {"change directory", ChangeDirectory},
    {"find program", FindIt},
    {"close descriptors", SealDescriptors},
    {"usual signals", UsualSignals},
};

// With no-new-privileges the filter comes last: our own calls stay outside of it. Without, loading
// it needs CAP_SYS_ADMIN, so what is given up comes behind it.
constexpr ChildRow kFilterLastRows[] = {
    {"drop all capabilities", DropCaps},
    {"verify what is left", VerifyCaps},
    {"load filter", Filter},
    {"startContainer hooks", RunStartHooks},
    {"execute", Execute},
};
constexpr ChildRow kFilterFirstRows[] = {
    {"load filter", Filter},
    {"drop all capabilities", DropCaps},
    {"verify what is left", VerifyCaps},
    {"startContainer hooks", RunStartHooks},
    {"execute", Execute},
};

template <size_t N>
void RunRows(const ChildRow (&rows)[N], ChildContext& context) {
  for (const ChildRow& row : rows) {
    Status done = row.run(context);
    if (done) continue;
    Error error = std::move(done).error();
    // The words of the exec itself are compared by engines: no name before them.
    const bool plain =
        error.code == Code::kCommandNotFound || error.code == Code::kCommandNotExecutable;
    error.step = plain ? "" : row.name;
    SendFailure(ReportFd(context), error);
    ::_exit(1);
  }
}

[[noreturn]] void RunTail(ChildContext& context) {
  if (context.process->no_new_privileges)
    RunRows(kFilterLastRows, context);
  else
    RunRows(kFilterFirstRows, context);
  ::_exit(1);  // not reached: the last row does not succeed
}

}  // namespace

Status TakeRoot(const std::string& directory) {
  if (directory.empty()) return OkStatus();
  if (::chroot(directory.c_str()) != 0) return SysError(errno, "chroot");
  return ::chdir("/") == 0 ? OkStatus() : Status(SysError(errno, "chdir"));
}

void RunFirstProcess(ChildContext& context) {
  RunRows(kFirstProcessRows, context);
  RunTail(context);
}

void RunOneMoreProcess(ChildContext& context) {
  RunRows(kOneMoreRows, context);
  RunTail(context);
}

}  // namespace hutch::runtime
