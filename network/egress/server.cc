#include "network/egress/server.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

namespace hutch::network {
namespace {

constexpr int kCommandsPerTurn = 64;
constexpr size_t kMaxQueuedEvents = 4096;  // denials beyond are counted only
constexpr Milliseconds kAcceptPause{100};  // when there is no descriptor left
constexpr std::chrono::seconds kStalePeriod{5};

bool UsesListener(const Policy& policy, ListenerKind kind) {
  const bool dns = kind == ListenerKind::kDnsUdp || kind == ListenerKind::kDnsTcp;
  if (policy.mode == Mode::kAllowlist) return true;
  return dns && (policy.mode == Mode::kOpen || !policy.join.empty());
}

}  // namespace

// One listening socket of a sandbox.
struct EgressServer::Door {
  Door(Services& s, Tenant& t, DnsConnection::Set& set, Listener listener)
      : services(s), tenant(t), askers(set), kind(listener.kind), pause(s.loop) {
    if (kind == ListenerKind::kDnsUdp) {
      dns = std::make_unique<DnsSocket>(s, t, std::move(listener.fd));
      return;
    }
    fd = std::move(listener.fd);
    watch = s.loop.Add(fd.get(), [this](Ready) { Accept(); });
    watch.Arm(Ready::kReadable);
  }

  void Accept() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      UniqueFd client(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          pause.Start(kAcceptPause, [this] { watch.Arm(Ready::kReadable); });
          return;
        }
        break;
      }
      if (kind == ListenerKind::kDnsTcp)
        DnsConnection::Start(services, tenant, std::move(client), askers);
      else
        Session::Start(services, tenant, std::move(client), kind);
    }
    watch.Arm(Ready::kReadable);
  }

  Services& services;
  Tenant& tenant;
  DnsConnection::Set& askers;
  const ListenerKind kind;
  UniqueFd fd;
  std::unique_ptr<DnsSocket> dns;
  Timer pause;
  Watch watch;
};

struct EgressServer::Guest {
  Guest(Services& services, std::string id, Denials::Tell tell)
      : tenant(services.loop, services.resolver, services.budget, std::move(id), std::move(tell)) {}
  ~Guest() {
    doors.clear();
    while (!askers.empty()) (*askers.begin())->Close();
    while (!tenant.sessions.empty()) (*tenant.sessions.begin())->Abort();
    WipeSecrets(&tenant.settings);
  }
  Tenant tenant;
  DnsConnection::Set askers;
  std::vector<std::unique_ptr<Door>> doors;
};

EgressServer::EgressServer(UniqueFd control) : control_(std::move(control)), block_(kBlockBytes) {}
EgressServer::~EgressServer() = default;

Result<std::unique_ptr<EgressServer>> EgressServer::Make(UniqueFd control) {
  std::unique_ptr<EgressServer> server(new EgressServer(std::move(control)));
  EgressServer* self = server.get();
  ASSIGN_OR_RETURN(server->resolver_, Resolver::Make(server->loop_));
  server->budget_.on_failed = [self] {
    if (Loop::Now() - self->last_stale_ < kStalePeriod) return;
    self->last_stale_ = Loop::Now();
    self->Send({ProgramEvent::Kind::kStale, {}});
  };
  // Two descriptors each when connected, more while several addresses are tried.
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return SysError(errno, "getrlimit");
  server->sessions_.most = std::min<size_t>(kMaxAllSessions, files.rlim_max / 6);
  server->services_ =
      std::make_unique<Services>(Services{server->loop_, *server->resolver_, server->budget_,
                                          server->sessions_, server->tls_, server->block_});
  server->control_watch_ =
      server->loop_.Add(server->control_.get(), [self](Ready ready) { self->OnControl(ready); });
  if (!server->control_watch_.active())
    return Error{.code = Code::kKernel, .what = "the control socket cannot be watched"};
  return Result<std::unique_ptr<EgressServer>>(std::move(server));
}

void EgressServer::SendReady() { Send({ProgramEvent::Kind::kReady, {}}); }

void EgressServer::SendFailed(const Error& error) {
  ProgramEvent event;
  event.event.kind = EgressEvent::Kind::kApplied;
  event.event.error = error;
  Send(event);
}

void EgressServer::Run() {
  control_watch_.Arm(Ready::kReadable);
  loop_.Run();
  control_watch_.Reset();
  guests_.clear();
  loop_.RunPending();  // what was closed is destroyed
}

void EgressServer::Send(const ProgramEvent& event) {
  const bool denial =
      event.kind == ProgramEvent::Kind::kEvent && event.event.kind == EgressEvent::Kind::kDenied;
  if (denial && events_.size() >= kMaxQueuedEvents) return;
  events_.push_back(PrintEvent(event));
  if (events_.size() == 1) FlushEvents();
}

void EgressServer::FlushEvents() {
  while (!events_.empty()) {
    const std::string_view parts[] = {events_.front()};
    const Status sent = SendMessage(control_.get(), parts, {});
    if (!sent && sent.error().code == Code::kUnavailable)
      return control_watch_.Arm(Ready::kWritable);
    if (!sent) return loop_.Stop();
    events_.pop_front();
  }
}

void EgressServer::OnControl(Ready ready) {
  if (ready == Ready::kWritable) return FlushEvents();
  for (int i = 0; i < kCommandsPerTurn; ++i) {
    auto message = ReceiveMessage(control_.get(), kMaxControlBytes, MSG_DONTWAIT);
    if (!message && message.error().code == Code::kUnavailable) break;
    if (!message || (message->bytes.empty() && message->fds.empty())) return loop_.Stop();
    auto command = ReadCommand(std::move(*message));
    // What cannot be understood may have meant to close something: nothing may go on after it.
    if (!command) return loop_.Stop();
    Handle(std::move(*command));
  }
  control_watch_.Arm(Ready::kReadable);
}

void EgressServer::Handle(Command command) {
  switch (command.kind) {
    case Command::Kind::kSet:
      return HandleSet(std::move(command));
    case Command::Kind::kForget:
      guests_.erase(command.forget.sandbox);
      return;
    case Command::Kind::kNames:
      return resolver_->Configure(command.names.resolv_conf, command.names.hosts);
  }
}

void EgressServer::HandleSet(Command command) {
  SetCommand& set = command.set;
  auto& guest = guests_[set.sandbox];
  if (guest == nullptr)
    guest = std::make_unique<Guest>(*services_, set.sandbox, [this](const Denial& denial) {
      ProgramEvent event;
      event.event.kind = EgressEvent::Kind::kDenied;
      event.event.sandbox = denial.sandbox;
      event.event.denial = denial;
      Send(event);
    });
  Tenant& tenant = guest->tenant;
  if (!command.error && set.counters.valid()) {
    auto file = CountersFile::Map(set.counters.get());
    if (file)
      tenant.file.emplace(std::move(*file));
    else
      command.error = file.error();
  }
  // Settings that cannot be used let nothing through.
  tenant.Apply(command.error ? EgressSettings() : std::move(set.settings));
  if (!set.listeners.empty()) OpenDoors(*guest, std::move(set.listeners));
  CloseUnusedDoors(*guest);
  CloseDisallowed(tenant);
  ProgramEvent event;
  event.event.kind = EgressEvent::Kind::kApplied;
  event.event.sandbox = set.sandbox;
  event.event.number = set.number;
  event.event.error = command.error;
  Send(event);
}

void EgressServer::OpenDoors(Guest& guest, std::vector<Listener> listeners) {
  guest.doors.clear();
  for (Listener& listener : listeners)
    guest.doors.push_back(
        std::make_unique<Door>(*services_, guest.tenant, guest.askers, std::move(listener)));
}

void EgressServer::CloseUnusedDoors(Guest& guest) {
  std::erase_if(guest.doors, [&](const std::unique_ptr<Door>& door) {
    return !UsesListener(guest.tenant.settings.policy, door->kind);
  });
}

void EgressServer::CloseDisallowed(Tenant& tenant) {
  const std::vector<std::shared_ptr<Session>> open(tenant.sessions.begin(), tenant.sessions.end());
  const uint32_t most = tenant.settings.policy.limits.connections;
  for (const auto& session : open) {
    session->DropUnusedUpstream();
    if (!session->StillAllowed())
      session->Refuse("its network settings have changed");
    else if (most != 0 && session->connected() && tenant.connected > most)
      session->Refuse("more connections are open than its network settings allow now");
  }
}

}  // namespace hutch::network
