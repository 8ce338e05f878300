#include "daemon/sandbox_networks.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/sandbox_networks_state.h"
#include "daemon/secrets.h"
#include "network/inside.h"
#include "network/rule_text.h"

namespace hutch::daemon {
namespace {

using network::ListenerKind;
using network::Mode;
using network::Policy;

constexpr Milliseconds kEgressPause{100};  // before a program that ended is started again
constexpr Milliseconds kRestorePause{50};  // while an earlier program's sockets are still there
constexpr Milliseconds kRestorePauseLater{1000};
constexpr int kQuickRestores = 100;
constexpr Milliseconds kListenPause{5};
constexpr int kMaxListenTries = 200;
constexpr Milliseconds kEgressPatience{10'000};
constexpr Milliseconds kMaxEgressPause{10'000};
constexpr Milliseconds kDetachPause{200};
constexpr int kMaxDetachTries = 50;
constexpr char kCountersName[] = "network.counters";

std::vector<ListenerKind> KindsOf(const Policy& policy) {
  if (policy.mode == Mode::kAllowlist)
    return {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp, ListenerKind::kProxy,
            ListenerKind::kCatch};
  if (IsClosed(policy)) return {};
  return {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp};
}

Error Gone() { return Error{.code = Code::kBadState, .what = "the sandbox ended meanwhile"}; }

}  // namespace

SandboxNetworks::SandboxNetworks(const Parts& parts)
    : parts_(parts), egress_pause_(kEgressPause), open_(std::make_shared<OpenMode>()) {
  const NetworkConfig& config = parts.config.network;
  // CheckConfig() has seen that they are ranges.
  open_->mark = OpenMark();
  open_->config.pool_v4 = *network::ParseRuleCidr(config.pool_v4);
  open_->config.pool_v6 = *network::ParseRuleCidr(config.pool_v6);
  for (const std::string& range : config.reachable)
    open_->config.reachable.push_back(*network::ParseRuleCidr(range));
  parts_.workspaces.OnHostsChanged([this](const std::set<std::string>& ids) { TellHosts(ids); });
}

SandboxNetworks::~SandboxNetworks() = default;

bool SandboxNetworks::Lives(const NetPtr& net) const {
  const auto it = nets_.find(net->id);
  return it != nets_.end() && it->second == net;
}

void SandboxNetworks::Apply(const Who& who, const Policy& policy, Done done) {
  Start(who, policy, std::move(done), false);
}

void SandboxNetworks::Restore(const Who& who, const Policy& policy) {
  const Done nobody = [](const Status&) {};
  Start(who, policy, nobody, true);
}

void SandboxNetworks::Start(const Who& who, const Policy& policy, Done done, bool restoring) {
  auto it = nets_.find(who.id);
  if (it == nets_.end()) {
    if (IsClosed(policy)) return done(OkStatus());
    const auto net = std::make_shared<Net>();
    net->id = who.id;
    net->name = who.name;
    Result<UniqueFd> target = Duplicate(who.init.fd());
    if (!target.has_value()) return done(target.error());
    net->target = std::move(*target);
    net->restoring = restoring;
    it = nets_.emplace(who.id, net).first;
  }
  const NetPtr net = it->second;
  if (net->phase == Net::Phase::kRetrying) {  // what cannot be had is wanted no more
    net->retry.Cancel();
    net->restoring = false;
    net->done = nullptr;
  }
  if (net->done) return net->later.emplace_back(policy, std::move(done)), void();
  Begin(net, policy, std::move(done));
}

// --- one change: what the new policy lacks goes first, then the kernel's part, then what it adds

void SandboxNetworks::Begin(const NetPtr& net, const Policy& policy, Done done) {
  net->wanted = policy;
  net->done = std::move(done);
  net->open_settled = false;
  net->listen_tries = 0;
  net->phase = Net::Phase::kClosing;
  if (net->listens.empty() || net->listens == KindsOf(policy)) return Closed(net);
  // Not Forget: that is not answered.
  const Result<uint64_t> number = egress_->Set(net->id, {}, {}, net->counters.get());
  Await(net, number.has_value() ? *number : UINT64_MAX);
  if (!number.has_value()) EndEgressSoon();
}

// Everything that went through the egress program is closed, or goes on in the same mode.
void SandboxNetworks::Closed(const NetPtr& net) {
  if (net->listens != KindsOf(net->wanted)) ForgetListeners(*net);
  net->phase = Net::Phase::kLinks;
  CloseCatchOf(*net);
  Continue(net);
}

void SandboxNetworks::ForgetListeners(Net& net) {
  if (net.listens.empty()) return;
  net.listens.clear();
  // One that does not listen to this may go on with what it had: it must end.
  if (egress_ != nullptr && !egress_->Forget(net.id).has_value()) EndEgressSoon();
}

void SandboxNetworks::CloseCatchOf(Net& net) {
  if (!net.caught || net.wanted.mode == Mode::kAllowlist) return;
  net.caught = false;
  const Status closed = network::CloseCatch(net.target.get());
  if (!closed.has_value())
    Log(LogLevel::kWarning, "a catch could not be closed",
        {{"sandbox", net.id}, {"error", closed.error().ToString()}});
}

// A program that does not answer is ended, and with it all that it may have let through.
void SandboxNetworks::Await(const NetPtr& net, uint64_t number) {
  net->awaited = number;
  net->await_timer.Start(parts_.loop, kEgressPatience, [this] {
    Log(LogLevel::kError, "hutch-egress does not answer", {});
    EndEgressSoon();
  });
}

// One thing after the other, until everything is as it is wanted.
void SandboxNetworks::Continue(const NetPtr& net) {
  if (!Lives(net)) return;
  const std::vector<std::string>& wanted = net->wanted.join;
  const auto wants = [&](const std::string& name) {
    return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  for (const std::string& name : net->joined)
    if (!wants(name)) return Leave(net, name);
  if (!net->open_settled && (net->leased || net->wanted.mode == Mode::kOpen))
    return SettleOpen(net);
  for (const std::string& name : wanted)
    if (!net->joined.contains(name)) return Join(net, name);
  const Result<uint64_t> number = Widen(*net);
  const Status status = number.has_value() ? OkStatus() : Status(number.error());
  if (SocketsLinger(*net, status)) return;
  net->phase = Net::Phase::kOpening;
  if (!status.has_value() || *number == 0) return Finish(net, status);
  Await(net, *number);
}

// Sockets of the mode before are closed by another process, which takes a moment. A program inside
// that has the port is an error, of its owner's making.
bool SandboxNetworks::SocketsLinger(Net& net, const Status& status) {
  if (status.has_value() || status.error().code != Code::kBadState) return false;
  if (++net.listen_tries > kMaxListenTries) return false;
  net.retry.Start(parts_.loop, kListenPause, [this, id = net.id] {
    const auto it = nets_.find(id);
    if (it != nets_.end() && it->second->phase == Net::Phase::kLinks) Continue(NetPtr(it->second));
  });
  return true;
}

void SandboxNetworks::Leave(const NetPtr& net, const std::string& name) {
  parts_.workspaces.Leave(name, net->id, net->target.get(), [this, net, name](const Status& left) {
    if (!Lives(net)) return;
    if (!left.has_value()) return Finish(net, left);
    net->joined.erase(name);
    Continue(net);
  });
}

void SandboxNetworks::Join(const NetPtr& net, const std::string& name) {
  parts_.workspaces.Join(name, net->id, net->name, net->target.get(),
                         [this, net, name](const Status& joined) {
                           if (!Lives(net)) return;
                           if (!joined.has_value()) return Finish(net, joined);
                           net->joined.insert(name);
                           Continue(net);
                         });
}

// Mode "open", on the worker: the loop does not touch the lease meanwhile.
void SandboxNetworks::SettleOpen(const NetPtr& net) {
  net->in_kernel = true;
  const Status begun =
      parts_.worker.Submit([this, net, open = open_, wanted = net->wanted, &loop = parts_.loop] {
        const auto status = std::make_shared<Status>(open->Settle(*net, wanted, false));
        loop.Post([this, net, status] {
          net->in_kernel = false;
          if (!Lives(net)) return DetachLater(net);
          net->open_settled = true;
          if (!status->has_value()) return Finish(net, *status);
          Continue(net);
        });
      });
  if (begun.has_value()) return;
  net->in_kernel = false;
  Finish(net, begun);
}

void SandboxNetworks::PrepareLink(UniqueFd target, Done done) {
  const auto netns = std::make_shared<UniqueFd>(std::move(target));
  const Status begun = parts_.worker.Submit([netns, done, open = open_, &loop = parts_.loop] {
    const Result<network::OpenNetwork*> network = open->Get();
    const Status status =
        network.has_value() ? (*network)->Prepare(netns->get()) : Status(network.error());
    loop.Post([done, status] { done(status); });
  });
  if (!begun.has_value()) done(begun);
}

// The number of the settings to wait for; 0: there is nothing to wait for.
Result<uint64_t> SandboxNetworks::Widen(Net& net) {
  if (net.wanted.mode == Mode::kAllowlist && !net.caught) {
    RETURN_IF_ERROR(network::OpenCatch(net.target.get()));
    net.caught = true;
  }
  if (KindsOf(net.wanted).empty()) return uint64_t{0};
  if (egress_ == nullptr) RETURN_IF_ERROR(StartEgress());
  return net.listens.empty() ? Listen(net) : SendSettings(net, {});
}

Result<uint64_t> SandboxNetworks::Listen(Net& net) {
  if (!net.counters.valid()) {
    const std::string path = parts_.config.run_dir + "/sandboxes/" + net.id + "/" + kCountersName;
    ASSIGN_OR_RETURN(net.counters, Open(path, O_RDWR | O_CREAT, 0600));
  }
  const std::vector<ListenerKind> kinds = KindsOf(net.wanted);
  ASSIGN_OR_RETURN(const std::vector<network::Listener> listeners,
                   network::MakeListeners(net.target.get(), kinds));
  ASSIGN_OR_RETURN(const uint64_t number, SendSettings(net, listeners));
  net.listens = kinds;
  return number;
}

Result<uint64_t> SandboxNetworks::SendSettings(Net& net,
                                               const std::vector<network::Listener>& listeners) {
  network::EgressSettings settings{.policy = net.wanted, .hosts = {}, .secrets = {}};
  settings.hosts = parts_.workspaces.HostsFor(net.id);
  for (const network::Rule& rule : net.wanted.allow) {
    if (rule.secret.empty() || settings.secrets.contains(rule.secret)) continue;
    ASSIGN_OR_RETURN(settings.secrets[rule.secret],
                     LoadSecret(parts_.config.network.secrets_dir, rule.secret));
  }
  return egress_->Set(net.id, settings, listeners, net.counters.get());
}

// What was made by then stays, and is closed: the egress program has no settings for it.
void SandboxNetworks::TryAgain(const NetPtr& net) {
  net->phase = Net::Phase::kRetrying;
  const bool quick = ++net->restores < kQuickRestores;
  net->retry.Start(parts_.loop, quick ? kRestorePause : kRestorePauseLater, [this, net] {
    if (!Lives(net) || net->phase != Net::Phase::kRetrying) return;
    Begin(net, Policy(net->wanted), std::exchange(net->done, nullptr));
  });
}

void SandboxNetworks::Finish(const NetPtr& net, Status status) {
  net->awaited = 0;
  net->await_timer.Cancel();
  net->phase = Net::Phase::kIdle;
  if (!status.has_value() && net->restoring && net->later.empty()) return TryAgain(net);
  net->restoring = false;
  if (!status.has_value()) {
    Log(LogLevel::kWarning, "a network could not be set up",
        {{"sandbox", net->id}, {"error", status.error().ToString()}});
    CloseAll(net);
  }
  const Done done = std::exchange(net->done, nullptr);
  if (done) done(status);
  if (!Lives(net) || net->done || net->later.empty()) return;
  auto [policy, next] = std::move(net->later.front());
  net->later.pop_front();
  Begin(net, policy, std::move(next));
}

// Nothing is open for it any more; what the kernel still has of it goes behind.
void SandboxNetworks::CloseAll(const NetPtr& net) {
  net->wanted = Policy{};
  ForgetListeners(*net);
  CloseCatchOf(*net);
  LeaveLater(net);
  DetachLater(net);
}

// Every network that is not wanted; tried until it is left, here or by the next change.
void SandboxNetworks::LeaveLater(const NetPtr& net) {
  for (const std::string& name : std::set<std::string>(net->joined)) {
    if (std::ranges::find(net->wanted.join, name) != net->wanted.join.end()) continue;
    net->joined.erase(name);
    const auto done = [this, net, name](const Status& left) {
      if (left.has_value() || !Lives(net)) return;
      Log(LogLevel::kError, "a network could not be left yet",
          {{"sandbox", net->id}, {"network", name}, {"error", left.error().ToString()}});
      net->joined.insert(name);
      net->leave_retry.Start(parts_.loop, kEgressPause, [this, net] {
        if (Lives(net) && !net->done) LeaveLater(net);
      });
    };
    parts_.workspaces.Leave(name, net->id, net->target.get(), done);
  }
}

void SandboxNetworks::DetachLater(const NetPtr& net) {
  if (net->in_kernel || !net->leased) return;  // the end of what is under way comes here again
  net->in_kernel = true;
  const Status begun =
      parts_.worker.Submit([this, net, gone = !Lives(net), open = open_, &loop = parts_.loop] {
        const auto status = std::make_shared<Status>(open->Settle(*net, Policy{}, gone));
        loop.Post([this, net, status] { Detached(net, *status); });
      });
  if (!begun.has_value()) Detached(net, begun);
}

void SandboxNetworks::Detached(const NetPtr& net, const Status& status) {
  net->in_kernel = false;
  if (status.has_value()) return;
  if (++net->detach_tries == kMaxDetachTries)
    return Log(LogLevel::kError, "a network could not be taken down",
               {{"sandbox", net->id}, {"error", status.error().ToString()}});
  net->detach_timer.Start(parts_.loop, kDetachPause, [this, net] {
    if (net->wanted.mode != Mode::kOpen) DetachLater(net);
  });
}

void SandboxNetworks::Forget(const std::string& id) {
  const auto it = nets_.find(id);
  if (it == nets_.end()) return;
  const NetPtr net = it->second;
  nets_.erase(it);
  ForgetListeners(*net);
  net->wanted = Policy{};
  net->awaited = 0;
  net->await_timer.Cancel();
  net->retry.Cancel();
  net->leave_retry.Cancel();
  const Done done = std::exchange(net->done, nullptr);
  const auto later = std::exchange(net->later, {});
  parts_.workspaces.Forget(id);
  DetachLater(net);
  if (done) done(Gone());
  for (const auto& [policy, next] : later) next(Gone());
}

// Those that are being changed get them with the change, unless that is on its way already.
void SandboxNetworks::TellHosts(const std::set<std::string>& ids) {
  for (const auto& [id, net] : nets_) {
    const bool sent_before = net->phase == Net::Phase::kIdle || net->phase == Net::Phase::kOpening;
    if (!ids.contains(id) || net->listens.empty() || !sent_before) continue;
    const Result<uint64_t> sent = SendSettings(*net, {});
    if (!sent.has_value())
      Log(LogLevel::kWarning, "the names of a network could not be told",
          {{"sandbox", id}, {"error", sent.error().ToString()}});
  }
}

Status SandboxNetworks::Recover(const std::set<std::string>& living,
                                const std::set<std::string>& open) {
  RETURN_IF_ERROR(parts_.workspaces.Recover(living));
  if (open.empty() && !PathExists(OpenMark())) return OkStatus();
  return parts_.worker.Submit([open, mode = open_] {
    const Result<network::OpenNetwork*> network = mode->Get();
    if (!network.has_value()) return;  // said where a sandbox needs it
    const auto lost = (*network)->Recover(open);
    if (!lost.has_value())
      Log(LogLevel::kError, "what an earlier daemon left of open networks cannot be cleared",
          {{"error", lost.error().ToString()}});
  });
}

// --- the egress program

Status SandboxNetworks::StartEgress() {
  ASSIGN_OR_RETURN(egress_, network::EgressClient::Start(parts_.egress_program));
  ++egress_number_;
  egress_watch_ = parts_.loop.Add(egress_->fd(), [this](Ready) { OnEgress(); });
  egress_watch_.Arm(Ready::kReadable);
  return OkStatus();
}

void SandboxNetworks::OnEgress() {
  for (network::EgressEvent& event : egress_->Read()) {
    if (event.kind == network::EgressEvent::Kind::kEnded) return EndEgress();
    OnEgressEvent(event);
  }
  if (egress_ != nullptr) egress_watch_.Arm(Ready::kReadable);
}

void SandboxNetworks::OnEgressEvent(network::EgressEvent& event) {
  const bool denied = event.kind == network::EgressEvent::Kind::kDenied;
  const auto it = nets_.find(denied ? event.denial.sandbox : event.sandbox);
  if (it == nets_.end()) return;
  const NetPtr net = it->second;
  if (denied) return RecordDenial(*net, event.denial);
  egress_pause_ = kEgressPause;
  if (net->awaited == 0 || event.number != net->awaited) return;
  net->awaited = 0;
  net->await_timer.Cancel();
  if (net->phase == Net::Phase::kClosing) return Closed(net);
  Finish(net, event.error ? Status(*event.error) : OkStatus());
}

void SandboxNetworks::RecordDenial(Net& net, const network::Denial& denial) {
  oci::Json json = {{"protocol", denial.protocol}, {"host", denial.host},
                    {"address", denial.address},   {"port", denial.port},
                    {"reason", denial.reason},     {"times", denial.times}};
  if (parts_.audit != nullptr)
    parts_.audit->Record({.kind = AuditKind::kNetworkDenied,
                          .sandbox = net.id,
                          .outcome = "denied",
                          .detail = json});
  json["at"] = FormatRfc3339(std::chrono::system_clock::now());
  if (on_denied_) on_denied_(net.id, json);
  net.denials.push_back(std::move(json));
  if (net.denials.size() > kKeptDenials) net.denials.pop_front();
}

void SandboxNetworks::EndEgressSoon() {
  parts_.loop.Post([this, number = egress_number_] {
    if (egress_ != nullptr && number == egress_number_) EndEgress();
  });
}

// Its sockets go with it: nothing gets out until another has everything again.
void SandboxNetworks::EndEgress() {
  Log(LogLevel::kError, "hutch-egress ended and is started again", {});
  egress_watch_.Reset();
  egress_.reset();
  egress_timer_.Start(parts_.loop, egress_pause_, [this] { ReviveEgress(); });
  egress_pause_ = std::min(2 * egress_pause_, kMaxEgressPause);
  std::vector<NetPtr> closed;
  for (const auto& [id, net] : nets_) {
    net->listens.clear();
    if (net->phase == Net::Phase::kClosing && net->awaited != 0) closed.push_back(net);
  }
  for (const NetPtr& net : closed) {
    net->awaited = 0;
    net->await_timer.Cancel();
    if (Lives(net)) Closed(net);
  }
}

void SandboxNetworks::ReviveEgress() {
  const Status started = egress_ == nullptr ? StartEgress() : OkStatus();
  if (!started.has_value()) {
    Log(LogLevel::kError, "hutch-egress cannot be started",
        {{"error", started.error().ToString()}});
    return egress_timer_.Start(parts_.loop, kMaxEgressPause, [this] { ReviveEgress(); });
  }
  bool again = false;
  for (const auto& [id, net] : std::map(nets_)) {
    const bool opening = net->phase == Net::Phase::kOpening && net->awaited != 0;
    const bool idle = net->phase == Net::Phase::kIdle;
    if (!Lives(net) || !net->listens.empty() || KindsOf(net->wanted).empty()) continue;
    if (!opening && !idle) continue;  // what is done to it comes here by itself
    if (egress_ == nullptr) return;   // it ended meanwhile
    const Result<uint64_t> number = Listen(*net);
    if (number.has_value() && opening) Await(net, *number);
    if (number.has_value()) continue;
    if (opening) {
      Finish(net, number.error());
      continue;
    }
    again = true;
    Log(LogLevel::kWarning, "a network is closed until it can be listened for again",
        {{"sandbox", id}, {"error", number.error().ToString()}});
  }
  if (again) egress_timer_.Start(parts_.loop, kRestorePauseLater, [this] { ReviveEgress(); });
}

}  // namespace hutch::daemon
