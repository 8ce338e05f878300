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
#include "daemon/kept_sockets.h"
#include "daemon/listener.h"
#include "daemon/reload.h"
#include "daemon/routes.h"
#include "daemon/sandbox_pools.h"
#include "daemon/sandbox_snapshots.h"
#include "daemon/sandboxes.h"
#include "daemon/stopper.h"
#include "daemon/takeover.h"
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

Result<Socket> OpenSocket(const Config& config, Place& place) {
  std::optional<UniqueFd> activated = place.sockets.TakeActivated();
  Socket socket{.fd = UniqueFd(), .passed = activated.has_value() || place.socket_passed};
  if (activated)
    socket.fd = std::move(*activated);
  else if (PathExists(config.socket))  // without its file nobody would find it
    socket.fd = place.sockets.Take(config.socket);
  if (!socket.fd.valid()) {
    ASSIGN_OR_RETURN(socket.fd, BindSocket(config.socket, config.socket_group));
    socket.passed = false;
  }
  place.sockets.Keep(socket.fd.get(),
                     socket.passed ? KeptSockets::Store::kSystemds : KeptSockets::Store::kOurs);
  const Status refused = RefuseDescriptors(socket.fd.get());
  if (!refused.has_value() && refused.error().code != Code::kUnsupported) return refused.error();
  return socket;
}

Result<std::unique_ptr<runtime::Runtime>> StartRuntime(const Config& config,
                                                       const cgroups::Tree& tree,
                                                       const std::string& init_path) {
  runtime::RuntimeConfig runtime_config;
  runtime_config.run_dir = config.run_dir;
  runtime_config.state_dir = config.state_dir;
  runtime_config.init_path = init_path;
  runtime_config.host_id_start = static_cast<uint32_t>(config.host_id_start);
  runtime_config.host_id_ranges = static_cast<uint32_t>(config.host_id_ranges);
  runtime_config.pools = config.pools == "on" ? runtime::Pools::kOn : runtime::Pools::kOff;
  runtime_config.blanks = static_cast<uint32_t>(config.blanks);
  return runtime::Runtime::Start(runtime_config, tree);
}

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
Status OpenTcp(Loop& loop, const Config& config, KeptSockets& kept, Access& access,
               HttpServers* servers) {
  if (config.tcp.listen.empty()) return OkStatus();
  ASSIGN_OR_RETURN(Tokens tokens, Tokens::Load(config.tcp.tokens_file));
  ASSIGN_OR_RETURN(const TcpEndpoint endpoint, ParseTcpListen(config.tcp.listen));
  UniqueFd socket = kept.Take(config.tcp.listen);
  if (!socket.valid()) {
    ASSIGN_OR_RETURN(socket, BindTcp(endpoint));
  }
  kept.Keep(socket.get());
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

// One that a successor listens on, or will, stays.
void RemoveSocket(const Config& config, const Socket& socket, const KeptSockets& kept,
                  const TakeoverServer& takeover) {
  const bool followed = socket.passed || takeover.leaving() || kept.stores(config.socket);
  if (!followed && ::unlink(config.socket.c_str()) != 0)
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

// All that answers requests, in the order in which one needs another.
struct ApiMakers {
  struct Parts {  // all borrowed
    Loop& loop;
    const Config& config;
    const cgroups::Tree& tree;
    runtime::Runtime& runtime;
    rootfs::Store& store;
    Audit& audit;
    Worker& worker;
    Worker& walker;
    NetworkMakers& networks;
    VolumeMakers& volumes;
    Watching& watching;
    Sandboxes& sandboxes;
  };
  explicit ApiMakers(const Parts& p)
      : images(p.loop, p.config, p.worker, p.store, p.sandboxes),
        snapshots(p.loop, p.sandboxes, p.store),
        info(p.config, p.tree, p.runtime, p.sandboxes, ProbeFeatures()),
        volumes(p.loop, p.volumes.worker, p.volumes.images, p.config, *p.volumes.volumes,
                p.sandboxes),
        volume_archives(p.loop, *p.volumes.volumes),
        api{.loop = p.loop,
            .config = p.config,
            .sandboxes = p.sandboxes,
            .networks = p.networks.networks,
            .images = images.images,
            .info = info,
            .files = files,
            .audit = p.audit,
            .worker = p.walker,
            .image_keeping = images.keeping,
            .image_archives = images.archives,
            .workspaces = p.networks.workspaces,
            .watching = p.watching,
            .snapshots = snapshots,
            .volumes = volumes,
            .volume_archives = volume_archives},
        pools(api) {
    api.pools = &pools;
    pools.Recover();
  }
  void Start() {
    snapshots.Start();
    pools.Start();
  }

  ImageMakers images;
  SandboxSnapshots snapshots;
  Info info;
  VolumeKeeping volumes;
  VolumeArchives volume_archives;
  FilesProgram files;
  Api api;
  SandboxPools pools;
};

// Both listeners and what they and the signals lead to.
struct Serving {
  Serving(CommandLine& line, UniqueFd socket, KeptSockets& kept, Api& api)
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
                        api.pools->Reload();
                        api.snapshots.CountReserved();
                        servers.SetOptions(MakeOptions(config), MakeTcpOptions(config));
                      }}),
        stopper({.loop = api.loop,
                 .server = servers,
                 .sandboxes = api.sandboxes,
                 .watching = api.watching,
                 .config = line.config,
                 .reloader = reloader,
                 .kept = kept}) {
    api.info.SetConfigurationView([this] { return reloader.ToJson(); });
    api.watching.SetConnections([this] {
      return Watching::Connections{servers.connections(), servers.requests_under_way()};
    });
    api.sandboxes.SetBusyCheck([this] { return servers.requests_under_way() > 0; });
    api.pools->SetBusyCheck([this] { return servers.requests_under_way() > 0; });
    stopper.SetHandlers([&api] { api.pools->Stop(); }, [&api] { api.pools->Start(); });
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

TakeoverServer::Parts MakeTakeoverParts(Loop& loop, const Place& place, const Socket& socket,
                                        const StringPairs& environment, Stopper& stopper) {
  return {.loop = loop,
          .kept = place.sockets,
          .socket_passed = socket.passed,
          .environment = environment,
          .leave = [&stopper] { stopper.Leave(); },
          .stay = [&stopper] { stopper.Stay(); }};
}

// An image job cannot be stopped; the store sweeps half-made layers at the next start.
void ExitUnlessIdle(bool idle, Audit& audit) {
  if (idle) return;
  audit.Flush();
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace

Status RunServer(CommandLine line) {
  Config& config = line.config;  // the loop's: a reload changes it
  RaiseFileLimit();
  // First what can fail while a predecessor still runs.
  ASSIGN_OR_RETURN(const std::string init_path, FindInit(config.init_path));
  ASSIGN_OR_RETURN(const std::string egress_program, FindProgram("hutch-egress"));
  ASSIGN_OR_RETURN(const cgroups::Layout layout, cgroups::DetectLayout());
  ASSIGN_OR_RETURN(Place place, TakePlace(config.run_dir, config.socket,
                                          line.takeover ? Arrival::kTakeover : Arrival::kFirst));
  const StringPairs systemd_variables = SystemdVariables();
  const std::optional<Milliseconds> watchdog_interval = TakeWatchdogInterval(::getpid());
  ASSIGN_OR_RETURN(
      const cgroups::Tree tree,
      cgroups::Tree::Open(layout, cgroups::TreeConfig{.parent = config.cgroup_parent}));
  Watching watching;
  Loop loop;  // outlives all that has watches and timers
  ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime,
                   StartRuntime(config, tree, init_path));
  ASSIGN_OR_RETURN(const UniqueFd signals,
                   WatchSignals());  // after the spawn server, which keeps its own
  ASSIGN_OR_RETURN(const std::unique_ptr<rootfs::Store> store, OpenStore(config));
  Audit audit = StartAudit(config);
  Worker worker(kWorkerThreads);  // the first threads
  Worker walker(kWalkerThreads);  // of its own: a command's answer must not wait for an import
  Sandboxes::Parts parts = MakeParts(loop, config, *runtime, *store, tree.mode());
  NetworkMakers makers(loop, config, audit, egress_program);
  makers.forwards.SetKept(&place.sockets);
  AddParts(walker, audit, makers, watching, &parts);
  VolumeMakers volume_makers;
  RETURN_IF_ERROR(volume_makers.Open(config));
  parts.volumes = volume_makers.volumes.get();
  watching.DaemonStarted();
  Sandboxes sandboxes(parts);
  RETURN_IF_ERROR(sandboxes.Recover());
  ApiMakers apis({loop, config, tree, *runtime, *store, audit, worker, walker, makers,
                  volume_makers, watching, sandboxes});
  Api& api = apis.api;
  ASSIGN_OR_RETURN(Socket socket, OpenSocket(config, place));
  Serving serving(line, std::move(socket.fd), place.sockets, api);
  RETURN_IF_ERROR(OpenTcp(loop, config, place.sockets, serving.access, &serving.servers));
  place.sockets.CloseRest();
  TakeoverServer takeover(
      config.run_dir, MakeTakeoverParts(loop, place, socket, systemd_variables, serving.stopper));
  RETURN_IF_ERROR(takeover.Start());
  serving.Follow(signals.get());
  sandboxes.Start();
  apis.Start();
  serving.servers.Start();
  Announce(config, tree, audit, sandboxes);
  Watchdog watchdog;
  if (watchdog_interval) watchdog.Start(loop, *watchdog_interval);

  loop.Run();

  RemoveSocket(config, socket, place.sockets, takeover);
  audit.Record({.kind = AuditKind::kDaemonStopped});
  serving.Close();
  loop.RunPending();
  ExitUnlessIdle(worker.idle() && apis.snapshots.idle(), audit);
  return OkStatus();
}

}  // namespace hutch::daemon
