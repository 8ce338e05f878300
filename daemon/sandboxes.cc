#include "daemon/sandboxes.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/devcontainer.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_stops.h"
#include "daemon/sandbox_volumes.h"
#include "daemon/sealed_directories.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

Error NotFound(const std::string& id) {
  return Error{.code = Code::kNotFound, .what = "no sandbox \"" + id + "\""};
}

Result<rootfs::Image> ResolveImage(rootfs::Store& store, const std::string& reference) {
  Result<rootfs::Image> image = store.Resolve(reference);
  if (image.has_value()) return image;
  Error error = std::move(image).error();
  if (error.field.empty()) error.field = "image";
  return error;
}

SandboxNetworks::Who WhoIs(const SandboxEntry& entry) {
  return {entry.facts.id, entry.facts.fields.name, entry.sandbox->init()};
}

constexpr size_t kMaxLoggedBytes = 4096;  // of a relaxation: the audit log has more of it

// What is written by sandboxes is in memory.
Promise HostPromise(const Sandboxes::Parts& parts) {
  return {.memory_bytes = parts.host_memory_bytes,
          .cpu_millis = uint64_t{parts.host_cpus} * 1000,
          .pids = parts.host_pids,
          .disk_bytes = parts.host_memory_bytes,
          .id_ranges = parts.config.host_id_ranges};
}

double MillisecondsSince(SteadyTime start) {
  return std::chrono::duration<double, std::milli>(Loop::Now() - start).count();
}

}  // namespace

Sandboxes::Sandboxes(const Parts& parts)
    : stops(std::make_unique<SandboxStops>(*this, parts)),
      parts_(parts),
      admission_(parts.config, HostPromise(parts)),
      cpu_turns_(UsableCpus()),
      user_layers_(parts.config.state_dir + "/user-layers") {
  if (const Result<std::string> text = ReadFile("/proc/cpuinfo", kCpuinfoBytes))
    numbers_.SetProcessors(SplitCpuinfo(*text));
}
Sandboxes::~Sandboxes() = default;

void Sandboxes::Start() {
  spawner_watch_ = parts_.loop.Add(parts_.runtime.spawner_fd(), [this](Ready) { OnSpawner(); });
  spawner_watch_.Arm(Ready::kReadable);
  ahead_.ScheduleRefill();
  if (parts_.networks == nullptr || parts_.watching == nullptr) return;
  parts_.networks->OnDenied([this](const std::string& id, const oci::Json& denial) {
    if (const SandboxEntry* entry = Living(id)) parts_.watching->NetworkDenied(*entry, denial);
  });
}

SandboxEntry* Sandboxes::Living(const std::string& id) {
  const auto it = living_.find(id);
  return it == living_.end() ? nullptr : it->second.get();
}

// --- finding

Result<SandboxEntry*> Sandboxes::Find(const std::string& id_or_name) {
  const auto name = ids_by_name_.find(id_or_name);
  if (SandboxEntry* entry = Living(name == ids_by_name_.end() ? id_or_name : name->second))
    return entry;
  if (SandboxEntry* entry = stops->Find(name == ids_by_name_.end() ? id_or_name : name->second))
    return entry;
  for (const auto& entry : tombstones_)
    if (entry->facts.id == id_or_name) return entry.get();
  return NotFound(id_or_name);
}

oci::Json Sandboxes::ToJson(const SandboxEntry& entry) const {
  SandboxMoments moments = entry.moments;
  moments.processes = entry.commands ? entry.commands->count() : 0;
  const bool failed = moments.state == SandboxState::kFailed && entry.error.has_value();
  return SandboxJson(entry.facts, moments, cgroups::ModeName(parts_.mode),
                     failed ? &*entry.error : nullptr);
}

std::vector<const SandboxEntry*> Sandboxes::List() const {
  std::vector<const SandboxEntry*> entries = ListAll();
  std::erase_if(entries, [](const auto* entry) { return entry->facts.fields.pooled; });
  return entries;
}

std::vector<const SandboxEntry*> Sandboxes::ListAll() const {
  std::vector<const SandboxEntry*> entries;
  entries.reserve(living_.size() + tombstones_.size());
  for (const auto& [id, entry] : living_) entries.push_back(entry.get());
  for (const auto& entry : tombstones_) entries.push_back(entry.get());
  for (const auto& [id, entry] : stops->stopped()) entries.push_back(entry.get());
  std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    return a->facts.created_at < b->facts.created_at;
  });
  return entries;
}

// --- making

Result<ResolvedUser> Sandboxes::ResolveUserOf(const rootfs::Image& image, const std::string& user) {
  auto cached = users_by_image_.find(image.id);
  if (cached == users_by_image_.end()) {
    std::vector<UniqueFd> layers;
    std::vector<int> fds;
    for (const std::string& diff_id : image.diff_ids) {
      ASSIGN_OR_RETURN(UniqueFd layer, parts_.store.OpenLayer(diff_id));
      fds.push_back(layer.get());
      layers.push_back(std::move(layer));
    }
    if (users_by_image_.size() >= kCachedImageUsers) users_by_image_.clear();
    cached = users_by_image_.emplace(image.id, ReadImageUsers(fds)).first;
  }
  return ResolveUser(cached->second, user);
}

std::set<std::string> Sandboxes::UserLayersInUse() const {
  std::set<std::string> names;
  for (const auto& [id, entry] : living_)
    if (!entry->facts.user_layer.empty()) names.insert(entry->facts.user_layer);
  return names;
}

// Volumes of the image and mounts of the template: mounts in request.spec, mount points returned.
Result<std::vector<LayerDirectory>> Sandboxes::AddDirectories(const rootfs::Image& image,
                                                              const SandboxFields& fields,
                                                              runtime::CreateRequest& request) {
  ASSIGN_OR_RETURN(std::vector<WritableDirectory> directories,
                   CollectDirectories(image.config, fields.directories));
  AddVolumeTargets(fields.volumes, &directories);
  std::vector<UniqueFd> layers;
  if (!directories.empty())
    for (const UniqueFd& layer : request.layers) {
      ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(layer.get()));
      layers.push_back(std::move(copy));
    }
  return PlanDirectories(directories, rootfs::LowerLayers(std::move(layers)), request.spec);
}

// Before the sandbox is begun: the layer counts as in use once the entry is among the living, and
// nothing else runs in between.
Status Sandboxes::AddUserLayer(const rootfs::Image& image, SandboxFacts& facts,
                               runtime::CreateRequest& request) {
  const oci::User& user = facts.process.user;
  RETURN_IF_ERROR(ResolveUserOf(image, std::to_string(user.uid)));  // fills the cache
  UserFiles files = PlanUserFiles(users_by_image_.at(image.id), user.uid, user.gid);
  ASSIGN_OR_RETURN(files.directories, AddDirectories(image, facts.fields, request));
  if (files.empty()) return OkStatus();
  ASSIGN_OR_RETURN(facts.user_layer, user_layers_.Make(files, UserLayersInUse()));
  ASSIGN_OR_RETURN(UniqueFd layer, user_layers_.Open(facts.user_layer));
  request.layers.push_back(std::move(layer));
  if (!files.name.empty() && !facts.fields.env.contains("USER"))
    SetEnv(facts.process.env, "USER", files.name);
  return OkStatus();
}

Result<std::string> Sandboxes::Create(SandboxFields fields, const Peer& peer, Created created) {
  const SteadyTime begun = Loop::Now();
  RETURN_IF_ERROR(Admit(fields, peer.uid));
  const Result<rootfs::Image> image = ResolveImage(parts_.store, fields.image);
  if (!image.has_value()) return image.error();
  if (blocked_images_.contains(image->id))
    return Error{.code = Code::kUnavailable,
                 .what = "image " + fields.image + " is being removed",
                 .field = "image"};
  ASSIGN_OR_RETURN(std::vector<ReservedPort> ports, ReservePorts(fields.ports));
  runtime::CreateRequest request;
  ASSIGN_OR_RETURN(request.spec, BuildSpec(fields, image->config, [&](const std::string& user) {
                     return ResolveUserOf(*image, user);
                   }));
  for (const std::string& diff_id : image->diff_ids) {
    ASSIGN_OR_RETURN(UniqueFd layer, parts_.store.OpenLayer(diff_id));
    request.layers.push_back(std::move(layer));
  }
  request.scratch_bytes = fields.disk_bytes;
  request.wants_link = fields.network.mode == network::Mode::kOpen;

  auto entry = std::make_unique<SandboxEntry>();
  entry->begun = begun;
  entry->reserved_ports = std::move(ports);
  entry->facts.process = request.spec.process;
  entry->facts.fields = std::move(fields);
  RETURN_IF_ERROR(AddUserLayer(*image, entry->facts, request));
  RETURN_IF_ERROR(UseSealedDirectories(image->config, request));
  ASSIGN_OR_RETURN(entry->volumes,
                   ShareVolumes(parts_.volumes, entry->facts.fields.volumes, &request));
  SandboxFields& placed_fields = entry->facts.fields;
  if (placed_fields.has_lifecycle)
    entry->facts.lifecycle = {.state = LifecycleFacts::State::kRunning, .awaited = true};
  ASSIGN_OR_RETURN(placed_fields.remote_env,
                   ResolveRemoteEnv(placed_fields.remote_env, entry->facts.process.env));
  entry->facts.process.cpus = cpu_turns_.Take(entry->facts.fields.cpus);
  ASSIGN_OR_RETURN(entry->sandbox, parts_.runtime.Begin(std::move(request)));
  entry->facts.id = entry->sandbox->id();
  entry->facts.image_id = image->id;
  entry->facts.image_reference =
      image->references.empty() ? entry->facts.fields.image : image->references.front();
  entry->facts.created_at = std::chrono::system_clock::now();
  entry->facts.caller_uid = peer.uid;
  entry->created = std::move(created);
  if (!entry->facts.fields.relax.empty())
    Log(LogLevel::kWarning, "a sandbox is confined less than by default",
        {{"sandbox", entry->facts.id},
         {"peer_uid", std::to_string(peer.uid)},
         {"relax", oci::PrintJson(entry->facts.fields.relax).substr(0, kMaxLoggedBytes)}});
  SandboxEntry& placed = *entry;
  const std::string id = placed.facts.id;
  CountIn(placed);
  living_[id] = std::move(entry);
  AddToHistory({SandboxState::kCreating, MoveCause::kRequested, placed.facts.created_at},
               &placed.facts.history);
  BeginIdle(placed, placed.facts.created_at);
  placed.ready_timer.Start(parts_.loop, kReadyDeadline, [this, &placed] {
    FailCreation(placed,
                 Error{.code = Code::kUnavailable, .what = "the sandbox was not ready in time"});
  });
  if (placed.sandbox->agent_fd() >= 0) {
    Track(placed);
    StartNetwork(placed);
  }
  if (parts_.watching != nullptr) parts_.watching->SandboxBegun(placed);
  return id;
}

void Sandboxes::Track(SandboxEntry& entry) {
  entry.moments.pid = entry.sandbox->pid();
  entry.moments.host_id_start = entry.sandbox->host_id_start();
  if (entry.agent_watch.active()) return;
  entry.agent_watch =
      parts_.loop.Add(entry.sandbox->agent_fd(), [this, &entry](Ready) { OnAgent(entry); });
  entry.agent_watch.Arm(Ready::kReadable);
  entry.init_watch = parts_.loop.Add(entry.sandbox->init().fd(), [this, &entry](Ready) {
    if (entry.sandbox->init().HasEnded()) return InitEnded(entry);
    entry.init_watch.Arm(Ready::kReadable);
  });
  entry.init_watch.Arm(Ready::kReadable);
}

// Beside what the agent does: the namespace is there, and nothing of the tenant's runs yet.
void Sandboxes::StartNetwork(SandboxEntry& entry) {
  if (entry.ending || IsClosed(entry.facts.fields.network)) return;
  entry.network_ready = false;
  ahead_.ExpectNetworksLike(entry.facts.fields.network.mode);
  const auto made = [this, id = entry.facts.id, began = Loop::Now()](const Status& status) {
    SandboxEntry* const living = Living(id);
    if (living == nullptr || living->ending) return;
    if (!status.has_value()) return FailCreation(*living, status.error());
    living->network_ready = true;
    living->network_ms = MillisecondsSince(began);
    BecomeReady(*living);
  };
  parts_.networks->Apply(WhoIs(entry), entry.facts.fields.network, made);
}

void Sandboxes::OnSpawner() {
  for (runtime::RuntimeEvent& event : parts_.runtime.Dispatch()) OnSpawnerEvent(event);
  ahead_.Link();
  spawner_watch_.Arm(Ready::kReadable);
}

void Sandboxes::OnSpawnerEvent(runtime::RuntimeEvent& event) {
  using Kind = runtime::RuntimeEvent::Kind;
  if (event.kind == Kind::kSpawnerDied) {
    Log(LogLevel::kError, "the spawn server ended and was started again",
        {{"error", event.error ? event.error->ToString() : ""}});
    spawner_watch_ = parts_.loop.Add(parts_.runtime.spawner_fd(), [this](Ready) { OnSpawner(); });
    return;
  }
  SandboxEntry* entry = Living(event.id);
  if (entry == nullptr) return;
  if (event.kind == Kind::kSpawned) {
    Track(*entry);
    StartNetwork(*entry);
  }
  if (event.kind == Kind::kSpawnFailed)
    FailCreation(*entry, event.error.value_or(Error{.code = Code::kInternal,
                                                    .what = "the sandbox could not be spawned"}));
  if (event.kind != Kind::kInitExited) return;
  if (!entry->ending)
    Log(LogLevel::kWarning, "the first process of a sandbox ended unasked",
        {{"sandbox", event.id}, {"wait_status", std::to_string(event.wait_status)}});
  InitEnded(*entry);
}

void Sandboxes::OnAgent(SandboxEntry& entry) {
  for (const runtime::AgentEvent& event : entry.sandbox->ReadAgent()) OnAgentEvent(entry, event);
  if (!entry.init_ended) entry.agent_watch.Arm(Ready::kReadable);
}

void Sandboxes::OnAgentEvent(SandboxEntry& entry, const runtime::AgentEvent& event) {
  using Kind = runtime::AgentEvent::Kind;
  switch (event.kind) {
    case Kind::kReady:
      entry.agent_ready = true;
      return BecomeReady(entry);
    case Kind::kFailed:
      return FailCreation(
          entry, event.error.value_or(Error{.code = Code::kInternal, .what = "the agent failed"}));
    case Kind::kClosed:
      entry.agent_watch.Reset();
      if (!entry.ending)
        Log(LogLevel::kWarning, "an agent hung up",
            {{"sandbox", entry.facts.id},
             {"error", event.error ? event.error->ToString() : "end of file"}});
      if (entry.moments.state == SandboxState::kCreating)
        return FailCreation(
            entry, event.error.value_or(Error{.code = Code::kUnavailable,
                                              .what = "the agent ended before it was ready"}));
      return End(entry, CauseOfDeath(entry));
    case Kind::kStarted:
    case Kind::kStartFailed:
    case Kind::kExited:
      if (entry.commands == nullptr) return;
      if (event.kind != Kind::kStarted && !entry.ending) {
        const bool ends_call = entry.commands->awaited() > 0 &&  // it ends only now
                               entry.facts.fields.timeouts.Counts(Activity::kCall);
        Touch(entry, ends_call ? Activity::kCall : Activity::kProcess);
      }
      entry.commands->OnAgentEvent(event);
      if (event.kind != Kind::kStarted) SchedulePrepare(entry.facts.id);
      return;
  }
}

void Sandboxes::BecomeReady(SandboxEntry& entry) {
  if (entry.ending || entry.moments.state != SandboxState::kCreating) return;
  if (!entry.agent_ready || !entry.network_ready) return;
  entry.ready_timer.Cancel();
  entry.facts.from_pool = entry.sandbox->from_pool();
  entry.facts.reported = entry.sandbox->reported();
  entry.facts.timings_ms.emplace_back("total", MillisecondsSince(entry.begun));
  for (const runtime::Timing& timing : entry.sandbox->timings())
    entry.facts.timings_ms.emplace_back(timing.step, timing.ms);
  if (entry.network_ms) entry.facts.timings_ms.emplace_back("network", *entry.network_ms);
  for (const ReservedPort& port : entry.reserved_ports) entry.facts.ports.push_back(port.facts);
  SandboxFacts ready = entry.facts;
  const WallTime now = std::chrono::system_clock::now();
  AddToHistory({SandboxState::kRunning, MoveCause::kReady, now}, &ready.history);
  const std::string record = SaveFacts(ready);
  const Status rememberable = CheckRecord(record);
  if (!rememberable.has_value()) return FailCreation(entry, rememberable.error());
  const Status saved = parts_.runtime.SaveState(*entry.sandbox, record);
  if (!saved.has_value()) return FailCreation(entry, saved.error());
  const Status opened = OpenPorts(entry);
  if (!opened.has_value()) return FailCreation(entry, opened.error());
  MakeCommands(entry);
  stops->host_records().Write(entry.facts.id, record);
  Move(entry, SandboxState::kRunning, MoveCause::kReady, now);
  BeginIdle(entry, now);
  numbers_.Open(entry);
  IgnoreError(TrackFiles(entry), "commands then do not tell which files they changed");
  StartTimers(entry);
  if (parts_.watching != nullptr) parts_.watching->SandboxRuns(entry);
  Log(LogLevel::kDebug, "sandbox made",
      {{"sandbox", entry.facts.id}, {"image", entry.facts.image_reference}});
  const Created created = std::exchange(entry.created, nullptr);
  if (created) created(&entry);
  numbers_.WriteFirst(entry);  // behind the answer, before the loop can take a command
  SchedulePrepare(entry.facts.id);
  ahead_.ScheduleRefill();
}

// Commands run without it, too: they only cannot tell which files they changed.
Status Sandboxes::TrackFiles(SandboxEntry& entry) {
  const runtime::ScratchView& scratch = entry.sandbox->scratch();
  if (parts_.walker == nullptr || !scratch.fd.valid()) return OkStatus();
  FileTracker::Parts parts{.loop = parts_.loop,
                           .worker = *parts_.walker,
                           .budget = snapshot_budget_,
                           .scratch = UniqueFd(),
                           .roots = scratch.roots,
                           .layers = {}};
  ASSIGN_OR_RETURN(parts.scratch, Duplicate(scratch.fd.get()));
  if (rootfs::HasUpper(scratch.roots)) {
    ASSIGN_OR_RETURN(const rootfs::Image image, parts_.store.Resolve(entry.facts.image_id));
    for (const std::string& diff_id : image.diff_ids) {
      ASSIGN_OR_RETURN(UniqueFd layer, parts_.store.OpenLayer(diff_id));
      parts.layers.push_back(std::move(layer));
    }
    ASSIGN_OR_RETURN(UniqueFd skeleton, Duplicate(entry.sandbox->skeleton_fd()));
    parts.layers.push_back(std::move(skeleton));
  }
  entry.commands->TrackFiles(std::make_unique<FileTracker>(std::move(parts)));
  return OkStatus();
}

void Sandboxes::FailCreation(SandboxEntry& entry, Error error) {
  if (entry.ending) return;
  Log(LogLevel::kWarning, "a sandbox could not be made",
      {{"sandbox", entry.facts.id}, {"error", error.ToString()}});
  entry.error = std::move(error);
  End(entry, MoveCause::kNotMade);
}

void Sandboxes::Abandon(const std::string& id) {
  SandboxEntry* entry = Living(id);
  if (entry == nullptr || entry->moments.state != SandboxState::kCreating) return;
  entry->created = nullptr;
  End(*entry, MoveCause::kAbandoned);
}

void Sandboxes::SchedulePrepare(const std::string& id) {
  parts_.loop.Post([this, id] {
    SandboxEntry* entry = Living(id);
    if (entry != nullptr && !entry->ending) entry->sandbox->Prepare();
  });
}

// Waits for a moment without requests, but not for ever.
// --- living

Result<oci::ProcessSpec> Sandboxes::SpecFor(const SandboxEntry& entry, const std::string& user) {
  oci::ProcessSpec spec = entry.facts.process;
  if (user.empty()) return spec;
  ResolvedUser resolved{.uid = 0, .gid = 0, .name = "root"};
  if (!IsRoot(user)) {
    ASSIGN_OR_RETURN(const rootfs::Image image, parts_.store.Resolve(entry.facts.image_id));
    ASSIGN_OR_RETURN(resolved, ResolveUserOf(image, user));
  }
  spec.user.uid = resolved.uid;
  spec.user.gid = resolved.gid;
  spec.user.additional_gids.clear();
  SetUserEnv(spec.env, resolved);
  return spec;
}

Result<oci::ProcessSpec> Sandboxes::SpecFor(const SandboxEntry& entry,
                                            const CommandFields& fields) {
  ASSIGN_OR_RETURN(oci::ProcessSpec spec, SpecFor(entry, fields.user));
  for (const auto& [name, value] : entry.facts.fields.remote_env) {
    if (value) SetEnv(spec.env, name, *value);
    if (!value) UnsetEnv(spec.env, name);
  }
  for (const auto& [name, value] : fields.env) SetEnv(spec.env, name, value);
  if (!fields.workdir.empty()) spec.cwd = fields.workdir;
  SetProxyEnv(entry.facts.fields.network, spec.env);
  spec.args = fields.args;
  return spec;
}

Result<std::shared_ptr<Exec>> Sandboxes::Run(SandboxEntry& entry, ExecFields fields,
                                             Exec::Done done, ExecSink sink) {
  ASSIGN_OR_RETURN(oci::ProcessSpec spec, SpecFor(entry, fields));
  Touch(entry, Activity::kCall);
  numbers_.RefreshBeforeCommand(entry);
  return entry.commands->Run(std::move(fields), std::move(spec),
                             parts_.config.max_commands_per_sandbox, std::move(done),
                             std::move(sink));
}

Status Sandboxes::SetLifecycle(SandboxEntry& entry, LifecycleFacts lifecycle) {
  entry.facts.lifecycle = std::move(lifecycle);
  return Save(entry);
}

void Sandboxes::SetNetwork(SandboxEntry& entry, network::Policy policy,
                           std::function<void(const Status&)> done) {
  if (parts_.networks == nullptr)
    return done(Error{.code = Code::kUnsupported, .what = "this daemon makes no networks"});
  SandboxFacts changed = entry.facts;
  changed.fields.network = policy;
  const Status rememberable = CheckRecord(SaveFacts(changed));
  if (!rememberable.has_value()) return done(rememberable);
  const auto kept = std::make_shared<network::Policy>(std::move(policy));
  parts_.networks->Apply(
      WhoIs(entry), *kept, [this, id = entry.facts.id, kept, done](const Status& status) {
        SandboxEntry* const living = Living(id);
        if (living == nullptr || living->ending) return done(status);
        living->facts.fields.network = status.has_value() ? *kept : network::Policy{};
        FaultPoint("network set");
        const Status saved = Save(*living);
        FaultPoint("network saved");
        done(status.has_value() ? saved : status);
      });
}

Status Sandboxes::Save(SandboxEntry& entry) {
  if (entry.sandbox == nullptr || entry.ending) return OkStatus();
  return SaveRecord(entry, entry.facts);
}

Status Sandboxes::SaveRecord(const SandboxEntry& entry, const SandboxFacts& facts) {
  const Status saved = parts_.runtime.SaveState(*entry.sandbox, SaveFacts(facts));
  if (!saved.has_value())
    Log(LogLevel::kError, "cannot save the state of a sandbox",
        {{"sandbox", entry.facts.id}, {"error", saved.error().ToString()}});
  else
    NoteActivity(entry);
  return saved;
}

std::string Sandboxes::ProcessDirectory(const std::string& id) const {
  return parts_.config.state_dir + "/processes/" + id;
}

Result<std::shared_ptr<BackgroundProcess>> Sandboxes::StartProcess(
    SandboxEntry& entry, ProcessFields fields, BackgroundProcess::Started started) {
  ASSIGN_OR_RETURN(oci::ProcessSpec spec, SpecFor(entry, fields));
  if (fields.terminal && !fields.env.contains("TERM")) SetEnv(spec.env, "TERM", "xterm-256color");
  Touch(entry, Activity::kCall);
  return entry.commands->StartBackground(std::move(fields), std::move(spec),
                                         parts_.config.max_commands_per_sandbox,
                                         ProcessDirectory(entry.facts.id), std::move(started));
}

Result<std::shared_ptr<ToolProcess>> Sandboxes::RunTool(SandboxEntry& entry, ToolSpec tool,
                                                        ToolProcess::Done done) {
  ASSIGN_OR_RETURN(oci::ProcessSpec spec, SpecFor(entry, tool.user));
  Touch(entry, Activity::kCall);
  return entry.commands->RunTool(std::move(tool), std::move(spec), std::move(done));
}

void Sandboxes::KillCommands() {
  for (const auto& [id, entry] : living_)
    if (entry->commands) entry->commands->KillAll();
}

size_t Sandboxes::commands_running() const {
  size_t count = 0;
  for (const auto& [id, entry] : living_) count += entry->commands ? entry->commands->running() : 0;
  return count;
}

size_t Sandboxes::ending() const {
  return static_cast<size_t>(std::count_if(living_.begin(), living_.end(), [](const auto& item) {
    return item.second->ending && !item.second->quarantined;
  }));
}

std::vector<std::string> Sandboxes::ImagesInUse() const {
  std::set<std::string> images;
  for (const auto& [id, entry] : living_) images.insert(entry->facts.image_id);
  for (const auto& [id, entry] : stops->stopped()) images.insert(entry->facts.image_id);
  return {images.begin(), images.end()};
}

std::vector<const SandboxEntry*> Sandboxes::Quarantined() const {
  std::vector<const SandboxEntry*> entries;
  for (const auto& [id, entry] : living_)
    if (entry->quarantined) entries.push_back(entry.get());
  return entries;
}

}  // namespace hutch::daemon
