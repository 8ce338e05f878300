#include "runtime/runtime_impl.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/text.h"
#include "runtime/agent_messages.h"

namespace hutch::runtime {
namespace {

constexpr size_t kIdCharacters = 16;
constexpr size_t kMaxInitBytes = 32u << 20;
constexpr int kTakeDownAttempts = 2000;  // of 5 ms each: a busy host is slow to kill
constexpr auto kTakeDownPause = std::chrono::milliseconds(5);
constexpr int kSelfTestMs = 10000;

// Undoes a shell completely, waiting briefly for its processes to go. For shells nobody waits for.
Status TakeDown(Shell& shell) {
  Status status = OkStatus();
  for (int i = 0; i < kTakeDownAttempts; ++i) {
    status = UndoSteps(ShellSteps(), shell);
    if (status || status.error().code != Code::kBadState) return status;
    std::this_thread::sleep_for(kTakeDownPause);
  }
  return status;
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::Start(const RuntimeConfig& config,
                                                const cgroups::Tree& tree) {
  ASSIGN_OR_RETURN(const std::string init, ReadFile(config.init_path, kMaxInitBytes));
  ASSIGN_OR_RETURN(UniqueFd init_memfd, SealedMemfd("hutch-init", init));
  // Ours alone: templates are attached here and nowhere else, and go with us.
  if (::unshare(CLONE_NEWNS) != 0) return SysError(errno, "unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return SysError(errno, "make mounts slaves");
  Workshop workshop;
  workshop.sandboxes_dir = config.run_dir + "/sandboxes";
  workshop.stage_dir = config.run_dir + "/stage";
  RETURN_IF_ERROR(MakeDirectories(workshop.sandboxes_dir, 0700));
  RETURN_IF_ERROR(MakeDirectories(workshop.stage_dir, 0700));
  RETURN_IF_ERROR(MakeDirectories(config.state_dir, 0700));
  workshop.tree = &tree;
  ASSIGN_OR_RETURN(workshop.spawner, Spawner::Start(init_memfd.get(), tree));
  ASSIGN_OR_RETURN(workshop.templates, rootfs::Templates::Make(config.run_dir + "/templates",
                                                               config.state_dir + "/skeleton"));
  workshop.layer_passing = rootfs::ProbeLayerPassing();
  workshop.host_ids = HostIds(config.host_id_start, config.host_id_ranges);
  workshop.netns_pool =
      network::NetnsPool::Start(config.pools == Pools::kOn ? 2 * config.blanks : 0);
  RETURN_IF_ERROR(seccomp::DefaultFilters());
  auto runtime = std::make_unique<RuntimeImpl>(config, std::move(init_memfd), std::move(workshop));
  RETURN_IF_ERROR(runtime->SelfTest());
  return std::unique_ptr<Runtime>(std::move(runtime));
}

RuntimeImpl::RuntimeImpl(RuntimeConfig config, UniqueFd init_memfd, Workshop workshop)
    : config_(std::move(config)),
      init_memfd_(std::move(init_memfd)),
      workshop_(std::move(workshop)) {}

RuntimeImpl::~RuntimeImpl() {
  for (auto& [number, flight] : in_flight_)
    if (flight.shell) doomed_.push_back(std::move(flight.shell));
  for (auto& blank : blanks_) doomed_.push_back(std::move(blank));
  for (auto& blank : linked_) doomed_.push_back(std::move(blank));
  for (auto& [id, blank] : linking_) doomed_.push_back(std::move(blank));
  for (auto& [pid, sandbox] : living_) sandbox->on_destroy = nullptr;
  for (auto& [number, flight] : in_flight_)
    if (flight.sandbox != nullptr) flight.sandbox->on_destroy = nullptr;
  for (auto& shell : doomed_) IgnoreError(TakeDown(*shell), "the next start removes what is left");
}

Status RuntimeImpl::SelfTest() {
  ASSIGN_OR_RETURN(std::unique_ptr<Shell> shell, StartShell());
  const int conn = shell->conn.get();
  pollfd polls[2] = {{workshop_.spawner.fd(), POLLIN, 0}, {conn, POLLIN, 0}};
  Error error{.code = Code::kInternal, .step = "self-test", .what = "the agent did not answer"};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kSelfTestMs);
  bool well = false;
  while (!well && std::chrono::steady_clock::now() < deadline && ::poll(polls, 2, 100) >= 0) {
    for (SpawnOutcome& outcome : workshop_.spawner.Receive()) {
      if (outcome.error) error = *outcome.error;
      if (outcome.kind == SpawnOutcome::Kind::kExited)
        error.what = "the agent ended with wait status " + std::to_string(outcome.wait_status);
    }
    auto message = ReceiveMessage(conn, kMaxReplyBytes, MSG_DONTWAIT);
    if (!message || message->bytes.empty()) continue;
    ASSIGN_OR_RETURN(AgentReply reply, ParseAgentReply(message->bytes));
    if (reply.error) error = std::move(*reply.error);
    if (reply.error || reply.type != AgentMessage::kBlank) break;
    well = true;
  }
  const Status down = TakeDown(*shell);
  if (!well) return error;
  return down;
}

Result<std::unique_ptr<Shell>> RuntimeImpl::StartShell(const std::string& id) {
  auto shell = std::make_unique<Shell>();
  shell->workshop = &workshop_;
  shell->id = id.empty() ? "sb-" + RandomBase32(kIdCharacters) : id;
  RETURN_IF_ERROR(RunSteps(ShellSteps(), *shell, &shell->timings));
  return shell;
}

void RuntimeImpl::Discard(std::unique_ptr<Shell> shell) {
  if (Status status = UndoSteps(ShellSteps(), *shell); !status) doomed_.push_back(std::move(shell));
}

void RuntimeImpl::OnSandboxDestroyed(void* owner, SandboxImpl* sandbox) {
  auto* self = static_cast<RuntimeImpl*>(owner);
  std::erase_if(self->living_, [&](const auto& entry) { return entry.second == sandbox; });
  std::erase_if(self->in_flight_,
                [&](const auto& entry) { return entry.second.sandbox == sandbox; });
}

std::unique_ptr<Shell> RuntimeImpl::TakeBlank(bool wants_link) {
  auto& pool = wants_link && !linked_.empty() ? linked_ : blanks_;
  if (pool.empty()) return nullptr;
  std::unique_ptr<Shell> shell = std::move(pool.front());
  pool.pop_front();
  shell->timings.clear();  // spent before the request came
  return shell;
}

std::optional<Runtime::BlankToLink> RuntimeImpl::TakeToLink() {
  if (blanks_.empty()) return std::nullopt;
  auto init = Duplicate(blanks_.front()->init.fd());
  if (!init) return std::nullopt;
  std::unique_ptr<Shell> shell = std::move(blanks_.front());
  blanks_.pop_front();
  BlankToLink blank{shell->id, std::move(*init)};
  linking_[blank.id] = std::move(shell);
  return blank;
}

void RuntimeImpl::Linked(const std::string& id, bool well) {
  auto node = linking_.extract(id);
  if (node.empty()) return;  // it ended meanwhile
  if (well) return linked_.push_back(std::move(node.mapped()));
  Discard(std::move(node.mapped()));
}

Result<std::unique_ptr<Sandbox>> RuntimeImpl::Begin(CreateRequest request) {
  auto creation = std::make_unique<Creation>();
  creation->request = std::move(request);
  RETURN_IF_ERROR(CheckSpec(*creation));
  const std::string& id = creation->request.id;
  std::unique_ptr<Shell> shell = id.empty() ? TakeBlank(creation->request.wants_link) : nullptr;
  const bool from_pool = shell != nullptr;
  if (!from_pool) {
    ASSIGN_OR_RETURN(shell, StartShell(id));
  }
  creation->shell = shell.get();
  const uint64_t number = shell->spawn_number;
  auto sandbox = std::make_unique<SandboxImpl>(std::move(shell), from_pool);
  sandbox->on_destroy = OnSandboxDestroyed;
  sandbox->owner = this;
  sandbox->pending = std::move(creation);
  if (!from_pool) {
    in_flight_[number] = {nullptr, sandbox.get()};
    return std::unique_ptr<Sandbox>(std::move(sandbox));
  }
  living_[sandbox->pid()] = sandbox.get();
  if (Status status = Continue(*sandbox); !status) {
    IgnoreError(TakeDown(sandbox->shell()), "the first error is the one to report");
    return std::move(status).error();
  }
  return std::unique_ptr<Sandbox>(std::move(sandbox));
}

// With files to put back it stops before the rows that show them; Filled() runs those.
Status RuntimeImpl::Continue(SandboxImpl& sandbox) {
  const bool fills = sandbox.pending->request.fill != nullptr;
  if (fills) {
    Creation& creation = *sandbox.pending;
    return RunSteps(CreateSteps().first(kStepsUpToFill), creation, &sandbox.shell().timings);
  }
  const std::unique_ptr<Creation> creation = std::move(sandbox.pending);
  return RunSteps(CreateSteps(), *creation, &sandbox.shell().timings);
}

Status RuntimeImpl::Filled(Sandbox& sandbox) {
  auto& impl = static_cast<SandboxImpl&>(sandbox);
  const std::unique_ptr<Creation> creation = std::move(impl.pending);
  if (creation == nullptr)
    return Error{.code = Code::kBadState, .what = "nothing was to be filled"};
  return RunSteps(CreateSteps().subspan(kStepsUpToFill), *creation, &impl.shell().timings);
}

std::vector<RuntimeEvent> RuntimeImpl::Dispatch() {
  std::vector<RuntimeEvent> events;
  for (SpawnOutcome& outcome : workshop_.spawner.Receive()) {
    switch (outcome.kind) {
      case SpawnOutcome::Kind::kSpawned:
        HandleSpawned(std::move(outcome), events);
        break;
      case SpawnOutcome::Kind::kFailed:
        HandleFailed(outcome, events);
        break;
      case SpawnOutcome::Kind::kExited:
        HandleExited(outcome, events);
        break;
      case SpawnOutcome::Kind::kServerEnded:
        HandleServerEnded(outcome, events);
        break;
    }
  }
  return events;
}

void RuntimeImpl::HandleSpawned(SpawnOutcome outcome, std::vector<RuntimeEvent>& events) {
  auto node = in_flight_.extract(outcome.number);
  if (node.empty()) return;  // given up meanwhile: its cgroup was killed
  InFlight flight = std::move(node.mapped());
  Shell& shell = flight.shell ? *flight.shell : flight.sandbox->shell();
  shell.init = std::move(outcome.pidfd);
  shell.userns = std::move(outcome.userns);
  if (flight.shell) return blanks_.push_back(std::move(flight.shell));
  living_[outcome.pid] = flight.sandbox;
  Status status = Continue(*flight.sandbox);
  RuntimeEvent event{.kind = RuntimeEvent::Kind::kSpawned, .id = shell.id};
  if (!status)
    event.kind = RuntimeEvent::Kind::kSpawnFailed, event.error = std::move(status).error();
  events.push_back(std::move(event));
}

void RuntimeImpl::HandleFailed(const SpawnOutcome& outcome, std::vector<RuntimeEvent>& events) {
  auto node = in_flight_.extract(outcome.number);
  if (node.empty()) return;
  if (node.mapped().shell) {
    refill_failed_ = true;
    return Discard(std::move(node.mapped().shell));
  }
  events.push_back({.kind = RuntimeEvent::Kind::kSpawnFailed,
                    .id = node.mapped().sandbox->id(),
                    .error = outcome.error});
}

std::unique_ptr<Shell> RuntimeImpl::ExtractBlank(pid_t pid) {
  std::unique_ptr<Shell> found;
  for (auto* pool : {&blanks_, &linked_}) {
    const auto blank = std::find_if(pool->begin(), pool->end(),
                                    [&](const auto& shell) { return shell->init.pid() == pid; });
    if (blank == pool->end()) continue;
    found = std::move(*blank);
    pool->erase(blank);
    return found;
  }
  for (auto& [id, shell] : linking_) {
    if (shell->init.pid() != pid) continue;
    found = std::move(shell);
    linking_.erase(found->id);
    return found;
  }
  return found;
}

void RuntimeImpl::HandleExited(const SpawnOutcome& outcome, std::vector<RuntimeEvent>& events) {
  if (const auto it = living_.find(outcome.pid); it != living_.end()) {
    events.push_back({.kind = RuntimeEvent::Kind::kInitExited,
                      .id = it->second->id(),
                      .wait_status = outcome.wait_status});
    living_.erase(it);
    return;
  }
  std::unique_ptr<Shell> shell = ExtractBlank(outcome.pid);
  if (shell == nullptr) return;
  refill_failed_ = true;
  Discard(std::move(shell));
}

void RuntimeImpl::HandleServerEnded(const SpawnOutcome& outcome,
                                    std::vector<RuntimeEvent>& events) {
  for (auto& [number, flight] : in_flight_) {
    if (flight.shell)
      Discard(std::move(flight.shell));
    else
      events.push_back({.kind = RuntimeEvent::Kind::kSpawnFailed,
                        .id = flight.sandbox->id(),
                        .error = outcome.error});
  }
  in_flight_.clear();
  RuntimeEvent event{.kind = RuntimeEvent::Kind::kSpawnerDied, .error = outcome.error};
  auto spawner = Spawner::Start(init_memfd_.get(), *workshop_.tree);
  if (spawner)
    workshop_.spawner = std::move(*spawner);
  else
    event.error = std::move(spawner).error();
  events.push_back(std::move(event));
}

Status RuntimeImpl::Remove(Sandbox& sandbox) {
  auto& impl = static_cast<SandboxImpl&>(sandbox);
  // Not spawned yet: what the spawn server makes of it is killed with its cgroup, or finds that
  // gone.
  std::erase_if(in_flight_, [&](const auto& entry) { return entry.second.sandbox == &impl; });
  std::erase_if(living_,
                [&](const auto& entry) { return entry.second == &impl && impl.init().HasEnded(); });
  return UndoSteps(ShellSteps(), impl.shell());
}

void RuntimeImpl::Refill() {
  std::erase_if(doomed_,
                [](const auto& shell) { return UndoSteps(ShellSteps(), *shell).has_value(); });
  if (config_.pools == Pools::kOff || std::exchange(refill_failed_, false)) return;
  size_t coming = 0;
  for (const auto& [number, flight] : in_flight_) coming += flight.shell ? 1 : 0;
  while (blanks_.size() + coming < config_.blanks) {
    auto shell = StartShell();
    if (!shell) return;  // a create will meet the same error and report it
    const uint64_t number = (*shell)->spawn_number;
    in_flight_[number] = {std::move(*shell), nullptr};
    ++coming;
  }
}

Runtime::PoolState RuntimeImpl::pool_state() const {
  size_t coming = 0;
  for (const auto& [number, flight] : in_flight_) coming += flight.shell ? 1 : 0;
  return {.blanks_ready = blanks_.size(),
          .blanks_wanted = config_.pools == Pools::kOn ? config_.blanks : 0,
          .blanks_in_flight = coming,
          .links_ready = linked_.size(),
          .links_in_flight = linking_.size()};
}

}  // namespace hutch::runtime
