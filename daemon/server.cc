#include "daemon/server.h"

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/access.h"
#include "daemon/audit.h"
#include "daemon/files.h"
#include "daemon/forwards.h"
#include "daemon/http_servers.h"
#include "daemon/image_archives.h"
#include "daemon/image_keeping.h"
#include "daemon/images.h"
#include "daemon/info.h"
#include "daemon/listener.h"
#include "daemon/reload.h"
#include "daemon/routes.h"
#include "daemon/sandboxes.h"
#include "daemon/tcp_listener.h"
#include "daemon/volume_archives.h"
#include "daemon/volume_keeping.h"
#include "daemon/watchdog.h"
#include "daemon/watching.h"
#include "daemon/worker.h"
#include "daemon/workspaces.h"

namespace hutch::daemon {
namespace {

constexpr size_t kWorkerThreads = 2;
constexpr size_t kWalkerThreads = 1;
constexpr size_t kVolumeThreads = 2;
constexpr Milliseconds kStopPoll{20};
constexpr Milliseconds kAfterKill{2'000};  // for killed commands to be answered

// Beside the program (a build tree), or in ../libexec/hutch (installed).
Result<std::string> FindProgram(const std::string& name) {
  char self[4096];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self);
  if (size <= 0) return SysError(errno, "readlink /proc/self/exe");
  const std::string path(self, static_cast<size_t>(size));
  const std::string directory = path.substr(0, path.rfind('/'));
  for (const char* place : {"/", "/../libexec/hutch/"})
    if (PathExists(directory + place + name)) return directory + place + name;
  return Error{.code = Code::kNotFound, .what = "no " + name + " beside " + path};
}

Result<std::string> FindInit(const std::string& configured) {
  if (!configured.empty()) return configured;
  Result<std::string> found = FindProgram("hutch-init");
  if (found.has_value()) return found;
  Error error = std::move(found).error();
  error.hint = "give --init-path";
  return error;
}

// Each sandbox costs some descriptors.
void RaiseFileLimit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    Log(LogLevel::kWarning, "cannot raise the limit of open files", {{"error", ErrnoName(errno)}});
}

Result<UniqueFd> WatchSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return SysError(errno, "block signals");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return SysError(errno, "signalfd");
  return fd;
}

struct Socket {
  UniqueFd fd;
  bool passed = false;  // by systemd: its file is not ours to remove
};

Result<Socket> OpenSocket(const Config& config) {
  ASSIGN_OR_RETURN(std::optional<UniqueFd> passed, TakePassedSocket());
  Socket socket;
  socket.passed = passed.has_value();
  if (passed)
    socket.fd = std::move(*passed);
  else {
    ASSIGN_OR_RETURN(socket.fd, BindSocket(config.socket, config.socket_group));
  }
  const Status refused = RefuseDescriptors(socket.fd.get());
  if (!refused.has_value() && refused.error().code != Code::kUnsupported) return refused.error();
  return socket;
}

Result<std::unique_ptr<runtime::Runtime>> StartRuntime(const Config& config,
                                                       const cgroups::Tree& tree) {
  runtime::RuntimeConfig runtime_config;
  runtime_config.run_dir = config.run_dir;
  runtime_config.state_dir = config.state_dir;
  ASSIGN_OR_RETURN(runtime_config.init_path, FindInit(config.init_path));
  runtime_config.host_id_start = static_cast<uint32_t>(config.host_id_start);
  runtime_config.host_id_ranges = static_cast<uint32_t>(config.host_id_ranges);
  runtime_config.pools = config.pools == "on" ? runtime::Pools::kOn : runtime::Pools::kOff;
  runtime_config.blanks = static_cast<uint32_t>(config.blanks);
  return runtime::Runtime::Start(runtime_config, tree);
}

// From the first signal on: no new requests, time for those under way and for removals that have
// begun; then commands are killed and answered.
class Stopper {
 public:
  Stopper(Loop& loop, HttpServers& server, Sandboxes& sandboxes, Watching& watching,
          const Config& config, Reloader& reloader)
      : loop_(loop),
        server_(server),
        sandboxes_(sandboxes),
        watching_(watching),
        config_(config),
        reloader_(reloader) {}

  // `signals` is a signalfd(2), borrowed.
  void Follow(int signals) {
    watch_ = loop_.Add(signals, [this, signals](Ready) {
      struct signalfd_siginfo received {};
      if (::read(signals, &received, sizeof received) > 0) OnSignal(received.ssi_signo);
      watch_.Arm(Ready::kReadable);
    });
    watch_.Arm(Ready::kReadable);
  }

 private:
  void OnSignal(uint32_t number) {
    if (number == SIGHUP) return stopping_ ? void() : reloader_.Reload();
    if (stopping_) return loop_.Stop();  // asked twice
    stopping_ = true;
    Log(LogLevel::kInfo, "stopping",
        {{"requests_under_way", std::to_string(server_.requests_under_way())}});
    IgnoreError(NotifySystemd("STOPPING=1"), "systemd sees the exit anyway");
    server_.StopAccepting();
    watching_.DaemonStops();
    deadline_ = Loop::Now() + std::chrono::seconds(config_.shutdown_seconds);
    Poll();
  }

  void Poll() {
    if (server_.requests_under_way() == 0 && sandboxes_.ending() == 0) return loop_.Stop();
    if (Loop::Now() >= deadline_ && killed_) return loop_.Stop();
    if (Loop::Now() >= deadline_) {
      killed_ = true;
      deadline_ = Loop::Now() + kAfterKill;
      sandboxes_.KillCommands();
    }
    timer_.Start(loop_, kStopPoll, [this] { Poll(); });
  }

  Loop& loop_;
  HttpServers& server_;
  Sandboxes& sandboxes_;
  Watching& watching_;
  const Config& config_;
  Reloader& reloader_;
  SteadyTime deadline_;
  bool stopping_ = false, killed_ = false;
  Timer timer_;
  Watch watch_;
};

// The most processes and threads the kernel keeps; 0: not known.
uint64_t HostPids() {
  uint64_t least = 0;
  for (const char* path : {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"}) {
    const Result<std::string> text = ReadFile(path, 64);
    const auto value = text.has_value() ? ParseUint(Trim(*text)) : Result<uint64_t>(text.error());
    if (value && *value > 0 && (least == 0 || *value < least)) least = *value;
  }
  return least;
}

uint64_t HostMemoryBytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Sandboxes::Parts MakeParts(Loop& loop, const Config& config, runtime::Runtime& runtime,
                           rootfs::Store& store, cgroups::Mode mode) {
  return Sandboxes::Parts{.loop = loop,
                          .config = config,
                          .runtime = runtime,
                          .store = store,
                          .mode = mode,
                          .host_memory_bytes = HostMemoryBytes(),
                          .host_cpus = static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN)),
                          .host_pids = HostPids()};
}

HttpServer::Options MakeOptions(const Config& config) {
  return HttpServer::Options{.max_connections = config.max_connections,
                             .timeout = std::chrono::seconds(config.http_timeout_seconds),
                             .log_requests = config.log_level == "debug"};
}

HttpServer::Options MakeTcpOptions(const Config& config) {
  HttpServer::Options options = MakeOptions(config);
  options.max_connections = config.tcp.connections;
  options.transport = HttpServer::Transport::kTcp;
  return options;
}

// The second listener, where it is asked for: nobody is let in without a token.
Status OpenTcp(Loop& loop, const Config& config, Access& access, HttpServers* servers) {
  if (config.tcp.listen.empty()) return OkStatus();
  ASSIGN_OR_RETURN(Tokens tokens, Tokens::Load(config.tcp.tokens_file));
  ASSIGN_OR_RETURN(const TcpEndpoint endpoint, ParseTcpListen(config.tcp.listen));
  ASSIGN_OR_RETURN(UniqueFd socket, BindTcp(endpoint));
  Log(LogLevel::kInfo, "listening on TCP",
      {{"address", config.tcp.listen}, {"tokens", std::to_string(tokens.size())}});
  access.SetTokens(std::move(tokens));
  servers->AddTcp(
      loop, std::move(socket), MakeTcpOptions(config),
      [&access](Request request, Responder responder) {
        access.Dispatch(std::move(request), std::move(responder));
      },
      [&access](const Request& request) { return access.BodyFor(request); });
  return OkStatus();
}

Audit StartAudit(const Config& config) {
  if (config.audit != "on") return Audit();
  return Audit({.path = config.state_dir + "/audit.db",
                .retention_days = config.audit_retention_days,
                .max_bytes = config.audit_max_bytes});
}

Pulls::Run PullInto(rootfs::Store& store, const Config& config) {
  return [&store, &config](const rootfs::PullRequest& request, const rootfs::ProgressFn& progress,
                           const std::atomic<bool>& cancelled) {
    return rootfs::Pull(store, config.registries, request, progress, cancelled);
  };
}

void TellSystemd() {
  const Status notified = NotifySystemd("READY=1");
  if (!notified.has_value())
    Log(LogLevel::kWarning, "cannot notify systemd", {{"error", notified.error().ToString()}});
}

void RemoveSocket(const Config& config, const Socket& socket) {
  if (!socket.passed && ::unlink(config.socket.c_str()) != 0)
    Log(LogLevel::kWarning, "cannot remove the socket", {{"error", ErrnoName(errno)}});
}

void LogStart(const Config& config, const cgroups::Tree& tree) {
  Log(LogLevel::kInfo, "hutchd is ready",
      {{"version", HUTCH_VERSION},
       {"socket", config.socket},
       {"cgroup_mode", cgroups::ModeName(tree.mode())},
       {"cgroup_parent", tree.parent()},
       {"pools", config.pools}});
}

void Announce(const Config& config, const cgroups::Tree& tree, Audit& audit,
              const Sandboxes& sandboxes) {
  LogStart(config, tree);
  audit.Record({.kind = AuditKind::kDaemonStarted,
                .detail = {{"version", HUTCH_VERSION}, {"sandboxes", sandboxes.List().size()}}});
  TellSystemd();
}

Result<std::unique_ptr<rootfs::Store>> OpenStore(const Config& config) {
  ASSIGN_OR_RETURN(std::unique_ptr<rootfs::Store> store,
                   rootfs::Store::Open(config.state_dir, config.registries.default_registry));
  IgnoreError(RemoveTree(config.state_dir + "/build"),
              "of builds the last daemon did not finish; their next one makes its own");
  return store;
}

// Each needs those before it.
struct NetworkMakers {
  NetworkMakers(Loop& loop, const Config& config, Audit& audit, const std::string& egress_program)
      : worker(1, kMaxQueuedNetworkJobs),
        workspaces(loop, worker, config, RealWorkspaceKernel()),
        networks({.loop = loop,
                  .config = config,
                  .worker = worker,
                  .workspaces = workspaces,
                  .egress_program = egress_program,
                  .audit = &audit}),
        forwards(loop) {}

  Worker worker;  // one thread: a queue, and a library that wants that
  Workspaces workspaces;
  SandboxNetworks networks;
  Forwards forwards;
};

void AddParts(Worker& walker, Audit& audit, NetworkMakers& makers, Watching& watching,
              Sandboxes::Parts* parts) {
  parts->walker = &walker;
  parts->audit = &audit;
  parts->networks = &makers.networks;
  parts->forwards = &makers.forwards;
  parts->watching = &watching;
}

struct ImageMakers {
  ImageMakers(Loop& loop, const Config& config, Worker& worker, rootfs::Store& store,
              Sandboxes& sandboxes)
      : pulls(loop, PullInto(store, config)),
        images(loop, worker, store, sandboxes, pulls, config),
        keeping(loop, worker, store, sandboxes),
        archives(loop, worker, store, config.state_dir) {}

  Pulls pulls;
  Images images;
  ImageKeeping keeping;
  ImageArchives archives;
};

// The volumes, and the threads that wait for their disks.
struct VolumeMakers {
  Status Open(const Config& config) {
    ASSIGN_OR_RETURN(volumes, rootfs::Volumes::Open({.directory = config.state_dir + "/volumes",
                                                     .mounts = config.run_dir + "/volumes",
                                                     .later = [this](std::function<void()> job) {
                                                       if (!worker.Submit(job).has_value()) job();
                                                     }}));
    return OkStatus();
  }

  std::unique_ptr<rootfs::Volumes> volumes;
  // Before the volumes end those that work on them.
  Worker worker{kVolumeThreads}, images{1};
};

// Both listeners and what they and the signals lead to.
struct Serving {
  Serving(CommandLine& line, UniqueFd socket, Api& api)
      : dispatch([&api](Request request, Responder responder) {
          Dispatch(api, std::move(request), std::move(responder));
        }),
        access(api.loop, api.audit, dispatch),
        servers(api.loop, std::move(socket), MakeOptions(line.config), dispatch, BodyOf),
        reloader({.config = line.config,
                  .source = line.source,
                  .file = line.file,
                  .audit = api.audit,
                  .watching = api.watching,
                  .access = access,
                  .applied =
                      [this, &config = line.config, &api] {
                        api.sandboxes.RecountOwners();
                        servers.SetOptions(MakeOptions(config), MakeTcpOptions(config));
                      }}),
        stopper(api.loop, servers, api.sandboxes, api.watching, line.config, reloader) {
    api.info.SetConfigurationView([this] { return reloader.ToJson(); });
    api.watching.SetConnections([this] {
      return Watching::Connections{servers.connections(), servers.requests_under_way()};
    });
    api.sandboxes.SetBusyCheck([this] { return servers.requests_under_way() > 0; });
  }
  void Follow(int signals) { stopper.Follow(signals); }
  void Close() {
    servers.CloseAll();
    access.Stop();
  }

  HttpServer::Dispatch dispatch;
  Access access;
  HttpServers servers;
  Reloader reloader;
  Stopper stopper;
};

// An image job cannot be stopped; the store sweeps half-made layers at the next start.
void ExitUnlessIdle(const Worker& worker, Audit& audit) {
  if (worker.idle()) return;
  audit.Flush();
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace

Status RunServer(CommandLine line) {
  Config& config = line.config;  // the loop's: a reload changes it
  RaiseFileLimit();
  const std::optional<Milliseconds> watchdog_interval = TakeWatchdogInterval(::getpid());
  ASSIGN_OR_RETURN(const UniqueFd lock, LockRunDirectory(config.run_dir));
  ASSIGN_OR_RETURN(const cgroups::Layout layout, cgroups::DetectLayout());
  ASSIGN_OR_RETURN(
      const cgroups::Tree tree,
      cgroups::Tree::Open(layout, cgroups::TreeConfig{.parent = config.cgroup_parent}));
  Watching watching;
  Loop loop;  // outlives all that has watches and timers
  ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, StartRuntime(config, tree));
  ASSIGN_OR_RETURN(const UniqueFd signals,
                   WatchSignals());  // after the spawn server, which keeps its own
  ASSIGN_OR_RETURN(const std::unique_ptr<rootfs::Store> store, OpenStore(config));
  Audit audit = StartAudit(config);
  Worker worker(kWorkerThreads);  // the first threads
  Worker walker(kWalkerThreads);  // of its own: a command's answer must not wait for an import
  Sandboxes::Parts parts = MakeParts(loop, config, *runtime, *store, tree.mode());
  ASSIGN_OR_RETURN(const std::string egress_program, FindProgram("hutch-egress"));
  NetworkMakers makers(loop, config, audit, egress_program);
  AddParts(walker, audit, makers, watching, &parts);
  VolumeMakers volume_makers;
  RETURN_IF_ERROR(volume_makers.Open(config));
  parts.volumes = volume_makers.volumes.get();
  watching.DaemonStarted();
  Sandboxes sandboxes(parts);
  RETURN_IF_ERROR(sandboxes.Recover());
  ImageMakers image_makers(loop, config, worker, *store, sandboxes);
  Info info(config, tree, *runtime, sandboxes, ProbeFeatures());
  VolumeKeeping volumes(loop, volume_makers.worker, volume_makers.images, config,
                        *volume_makers.volumes, sandboxes);
  VolumeArchives volume_archives(loop, *volume_makers.volumes);
  FilesProgram files;
  Api api{.loop = loop,
          .config = config,
          .sandboxes = sandboxes,
          .networks = makers.networks,
          .images = image_makers.images,
          .info = info,
          .files = files,
          .audit = audit,
          .worker = walker,
          .image_keeping = image_makers.keeping,
          .image_archives = image_makers.archives,
          .workspaces = makers.workspaces,
          .watching = watching,
          .volumes = volumes,
          .volume_archives = volume_archives};
  ASSIGN_OR_RETURN(Socket socket, OpenSocket(config));
  Serving serving(line, std::move(socket.fd), api);
  RETURN_IF_ERROR(OpenTcp(loop, config, serving.access, &serving.servers));
  serving.Follow(signals.get());
  sandboxes.Start();
  serving.servers.Start();
  Announce(config, tree, audit, sandboxes);
  Watchdog watchdog;
  if (watchdog_interval) watchdog.Start(loop, *watchdog_interval);

  loop.Run();

  RemoveSocket(config, socket);
  audit.Record({.kind = AuditKind::kDaemonStopped});
  serving.Close();
  loop.RunPending();
  ExitUnlessIdle(worker, audit);
  return OkStatus();
}

}  // namespace hutch::daemon
