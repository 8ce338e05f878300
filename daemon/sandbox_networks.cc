#include "daemon/sandbox_networks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/network_request.h"
#include "daemon/secrets.h"
#include "network/counters.h"
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
constexpr char kCountersName[] = "network.counters";

std::vector<ListenerKind> KindsOf(const Policy& policy) {
  if (policy.mode == Mode::kAllowlist)
    return {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp, ListenerKind::kProxy,
            ListenerKind::kCatch};
  if (IsClosed(policy)) return {};
  return {ListenerKind::kDnsUdp, ListenerKind::kDnsTcp};
}

// All zero without a file. Read, not mapped: whoever has the file, too, could cut it under a
// mapping.
oci::Json CountersJson(int fd) {
  // In the order of network::Counters, its version first.
  static constexpr const char* kNames[] = {nullptr,        "sent_bytes", "received_bytes",
                                           "connections",  "denied",     "names_answered",
                                           "names_denied", "failed",     "secrets_used"};
  uint64_t numbers[std::size(kNames)] = {};
  static_assert(sizeof numbers == sizeof(network::Counters));
  if (fd >= 0 && ::pread(fd, numbers, sizeof numbers, 0) != static_cast<ssize_t>(sizeof numbers))
    std::fill(std::begin(numbers), std::end(numbers), 0);
  oci::Json json = {{"refused_packets", 0}};
  for (size_t i = 1; i < std::size(kNames); ++i) json[kNames[i]] = numbers[i];
  return json;
}

void AddAddresses(oci::Json& json, const oci::Json& network, const network::Address& v4,
                  const network::Address& v6) {
  for (const network::Address& address : {v4, v6})
    json["addresses"].push_back({{"network", network}, {"address", address.ToString()}});
}

// Its addresses in a network that it joined.
void AddMember(oci::Json& json, const Result<oci::Json>& network, const std::string& id) {
  if (!network.has_value()) return;
  for (const oci::Json& member : (*network)["members"])
    if (member["id"] == id)
      for (const char* address : {"address_v4", "address_v6"})
        json["addresses"].push_back(
            {{"network", (*network)["name"]}, {"address", member[address]}});
}

Error Gone() { return Error{.code = Code::kBadState, .what = "the sandbox ended meanwhile"}; }

}  // namespace

struct SandboxNetworks::Net {
  std::string id, name;
  UniqueFd target;    // a pidfd of its first process
  UniqueFd counters;  // the file, on the run directory's tmpfs

  // What is there.
  std::vector<ListenerKind> listens;
  bool caught = false, leased = false;
  bool in_kernel = false;  // the worker has it
  std::optional<network::OpenLease> lease;
  std::set<std::string> joined;  // networks

  // What is being done.
  Policy wanted;
  Done done;             // of the change under way; empty: none is
  uint64_t awaited = 0;  // number of the settings the egress program has not applied yet
  std::deque<std::pair<Policy, Done>> later;
  bool open_settled = false;
  int listen_tries = 0;
  bool restoring = false;
  int restores = 0;
  Timer retry;

  std::deque<oci::Json> denials;  // the latest, newest last
};

// The worker's alone, and there as long as it may have a job with it.
struct SandboxNetworks::OpenMode {
  network::OpenConfig config;
  std::string mark;  // a file that tells a later daemon to look for what is left
  std::unique_ptr<network::OpenNetwork> network;

  Result<network::OpenNetwork*> Get() {
    if (network == nullptr) {
      RETURN_IF_ERROR(WriteFileAtomic(mark, "", Durability::kMemory));
      ASSIGN_OR_RETURN(network, network::OpenNetwork::Start(config));
    }
    return network.get();
  }
  Status Settle(Net& net, const Policy& wanted, bool gone) {
    ASSIGN_OR_RETURN(network::OpenNetwork* const open, Get());
    if (wanted.mode != Mode::kOpen) {
      // Its link inside goes now where it lives on, else with its namespace.
      RETURN_IF_ERROR(gone ? open->Detach(net.id) : open->Withdraw(net.id, net.target.get()));
      net.leased = false;
      net.lease.reset();
      return OkStatus();
    }
    if (net.leased) return open->Change(net.id, wanted);
    ASSIGN_OR_RETURN(net.lease, open->Attach(net.id, net.target.get(), wanted));
    net.leased = true;
    return OkStatus();
  }
};

SandboxNetworks::SandboxNetworks(const Parts& parts)
    : parts_(parts), open_(std::make_shared<OpenMode>()) {
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
  if (net->done) return net->later.emplace_back(policy, std::move(done)), void();
  Begin(net, policy, std::move(done));
}

// --- one change: what the new policy lacks goes first, then the kernel's part, then what it adds

void SandboxNetworks::Begin(const NetPtr& net, const Policy& policy, Done done) {
  net->wanted = policy;
  net->done = std::move(done);
  Narrow(*net);
  net->open_settled = false;
  net->listen_tries = 0;
  Continue(net);
}

void SandboxNetworks::Narrow(Net& net) {
  if (!net.listens.empty() && net.listens != KindsOf(net.wanted)) {
    if (egress_ != nullptr) IgnoreError(egress_->Forget(net.id), "it ends, and all of it with it");
    net.listens.clear();
  }
  if (net.caught && net.wanted.mode != Mode::kAllowlist) {
    const Status closed = network::CloseCatch(net.target.get());
    if (!closed.has_value())
      Log(LogLevel::kWarning, "a catch could not be closed",
          {{"sandbox", net.id}, {"error", closed.error().ToString()}});
    net.caught = false;
  }
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
  const Status status = Widen(*net);
  if (SocketsLinger(*net, status)) return;
  if (!status.has_value() || net->awaited == 0) Finish(net, status);
}

// Sockets of the mode before are closed by another process, which takes a moment. A program inside
// that has the port is an error, of its owner's making.
bool SandboxNetworks::SocketsLinger(Net& net, const Status& status) {
  if (status.has_value() || status.error().code != Code::kBadState) return false;
  if (++net.listen_tries > kMaxListenTries) return false;
  net.retry.Start(parts_.loop, kListenPause, [this, id = net.id] {
    const auto it = nets_.find(id);
    if (it != nets_.end() && it->second->done) Continue(NetPtr(it->second));
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

Status SandboxNetworks::Widen(Net& net) {
  if (net.wanted.mode == Mode::kAllowlist && !net.caught) {
    RETURN_IF_ERROR(network::OpenCatch(net.target.get()));
    net.caught = true;
  }
  if (KindsOf(net.wanted).empty()) return OkStatus();
  if (egress_ == nullptr) RETURN_IF_ERROR(StartEgress());
  return net.listens.empty() ? Listen(net) : SendSettings(net, {});
}

Status SandboxNetworks::Listen(Net& net) {
  if (!net.counters.valid()) {
    const std::string path = parts_.config.run_dir + "/sandboxes/" + net.id + "/" + kCountersName;
    ASSIGN_OR_RETURN(net.counters, Open(path, O_RDWR | O_CREAT, 0600));
  }
  const std::vector<ListenerKind> kinds = KindsOf(net.wanted);
  ASSIGN_OR_RETURN(const std::vector<network::Listener> listeners,
                   network::MakeListeners(net.target.get(), kinds));
  RETURN_IF_ERROR(SendSettings(net, listeners));
  net.listens = kinds;
  return OkStatus();
}

Status SandboxNetworks::SendSettings(Net& net, const std::vector<network::Listener>& listeners) {
  network::EgressSettings settings{.policy = net.wanted, .hosts = {}, .secrets = {}};
  settings.hosts = parts_.workspaces.HostsFor(net.id);
  for (const network::Rule& rule : net.wanted.allow) {
    if (rule.secret.empty() || settings.secrets.contains(rule.secret)) continue;
    ASSIGN_OR_RETURN(settings.secrets[rule.secret],
                     LoadSecret(parts_.config.network.secrets_dir, rule.secret));
  }
  ASSIGN_OR_RETURN(net.awaited, egress_->Set(net.id, settings, listeners, net.counters.get()));
  return OkStatus();
}

// What was made by then stays, and is closed: the egress program has no settings for it.
void SandboxNetworks::TryAgain(const NetPtr& net) {
  const bool quick = ++net->restores < kQuickRestores;
  net->retry.Start(parts_.loop, quick ? kRestorePause : kRestorePauseLater, [this, net] {
    if (!Lives(net) || !net->done) return;
    Begin(net, Policy(net->wanted), std::exchange(net->done, nullptr));
  });
}

void SandboxNetworks::Finish(const NetPtr& net, Status status) {
  net->awaited = 0;
  if (!status.has_value() && net->restoring && Lives(net)) return TryAgain(net);
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
  Narrow(*net);
  for (const std::string& name : std::exchange(net->joined, {}))
    parts_.workspaces.Leave(name, net->id, net->target.get(), [](const Status&) {});
  DetachLater(net);
}

void SandboxNetworks::DetachLater(const NetPtr& net) {
  if (net->in_kernel || !net->leased) return;  // the end of what is under way comes here again
  net->in_kernel = true;
  const Status begun =
      parts_.worker.Submit([net, gone = !Lives(net), open = open_, &loop = parts_.loop] {
        const auto status = std::make_shared<Status>(open->Settle(*net, Policy{}, gone));
        loop.Post([net, status] {
          net->in_kernel = false;
          if (!status->has_value())
            Log(LogLevel::kError, "a network could not be taken down",
                {{"sandbox", net->id}, {"error", status->error().ToString()}});
        });
      });
  if (begun.has_value()) return;
  net->in_kernel = false;
  net->retry.Start(parts_.loop, kEgressPause, [this, net] { DetachLater(net); });
}

void SandboxNetworks::Forget(const std::string& id) {
  const auto it = nets_.find(id);
  if (it == nets_.end()) return;
  const NetPtr net = it->second;
  nets_.erase(it);
  if (egress_ != nullptr && !net->listens.empty())
    IgnoreError(egress_->Forget(id), "it ends, and all of it with it");
  net->awaited = 0;
  net->retry.Cancel();
  const Done done = std::exchange(net->done, nullptr);
  const auto later = std::exchange(net->later, {});
  if (!net->joined.empty() || !net->wanted.join.empty()) parts_.workspaces.Forget(id);
  DetachLater(net);
  if (done) done(Gone());
  for (const auto& [policy, next] : later) next(Gone());
}

void SandboxNetworks::TellHosts(const std::set<std::string>& ids) {
  for (const auto& [id, net] : nets_) {
    if (!ids.contains(id) || net->listens.empty() || egress_ == nullptr) continue;
    const uint64_t awaited = net->awaited;
    const Status sent = SendSettings(*net, {});
    if (awaited == 0) net->awaited = 0;  // nobody waits for these
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
  egress_watch_ = parts_.loop.Add(egress_->fd(), [this](Ready) { OnEgress(); });
  egress_watch_.Arm(Ready::kReadable);
  return OkStatus();
}

void SandboxNetworks::OnEgress() {
  for (network::EgressEvent& event : egress_->Read()) {
    if (event.kind == network::EgressEvent::Kind::kEnded) return OnEgressEnd();
    OnEgressEvent(event);
  }
  egress_watch_.Arm(Ready::kReadable);
}

void SandboxNetworks::OnEgressEvent(network::EgressEvent& event) {
  const bool denied = event.kind == network::EgressEvent::Kind::kDenied;
  const auto it = nets_.find(denied ? event.denial.sandbox : event.sandbox);
  if (it == nets_.end()) return;
  const NetPtr net = it->second;
  if (denied) return RecordDenial(*net, event.denial);
  if (net->awaited == 0 || event.number != net->awaited) return;
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
  if (net.denials.size() > kMaxKeptDenials) net.denials.pop_front();
}

// Its sockets went with it: nothing gets out until another has everything again.
void SandboxNetworks::OnEgressEnd() {
  Log(LogLevel::kError, "hutch-egress ended and is started again", {});
  egress_watch_.Reset();
  egress_.reset();
  egress_timer_.Start(parts_.loop, kEgressPause, [this] { ReviveEgress(); });
}

void SandboxNetworks::ReviveEgress() {
  const Status started = egress_ == nullptr ? StartEgress() : OkStatus();
  if (!started.has_value()) {
    Log(LogLevel::kError, "hutch-egress cannot be started",
        {{"error", started.error().ToString()}});
    return egress_timer_.Start(parts_.loop, Milliseconds(1000), [this] { ReviveEgress(); });
  }
  bool again = false;
  for (const auto& [id, net] : nets_) {
    if (net->listens.empty() && !(net->awaited != 0 && net->done)) continue;
    net->listens.clear();
    const bool waited = net->done != nullptr && !net->in_kernel;
    const Status listened = Listen(*net);
    if (!waited) net->awaited = 0;
    if (listened.has_value()) continue;
    net->listens = KindsOf(net->wanted);
    again = true;
    Log(LogLevel::kWarning, "a network is closed until it can be listened for again",
        {{"sandbox", id}, {"error", listened.error().ToString()}});
  }
  if (again) egress_timer_.Start(parts_.loop, Milliseconds(1000), [this] { ReviveEgress(); });
}

// --- looking at it

void SandboxNetworks::Describe(const std::string& id, const Policy& policy,
                               std::function<void(oci::Json)> told) {
  oci::Json json = network::PolicyJson(policy);
  json["presets"] = policy.presets;
  json["addresses"] = oci::Json::array();
  json["denied"] = oci::Json::array();
  json["counters"] = CountersJson(-1);
  const auto it = nets_.find(id);
  if (it == nets_.end()) return told(std::move(json));
  const NetPtr net = it->second;
  json["denied"] = net->denials;
  json["counters"] = CountersJson(net->counters.get());
  if (net->caught)
    if (const auto caught = network::ReadCatch(net->target.get()); caught.has_value())
      json["counters"]["refused_packets"] = caught->refused_packets;
  if (net->in_kernel) return told(std::move(json));  // being changed
  for (const std::string& name : net->joined) AddMember(json, parts_.workspaces.ToJson(name), id);
  if (!net->leased) return told(std::move(json));
  AddAddresses(json, nullptr, net->lease->v4, net->lease->v6);
  CountOpen(net, std::move(json), std::move(told));
}

oci::Json SandboxNetworks::Counted(const std::string& id) const {
  const auto it = nets_.find(id);
  if (it == nets_.end() || it->second->leased) return nullptr;
  return CountersJson(it->second->counters.get());
}

// The kernel counts what goes around the egress program.
void SandboxNetworks::CountOpen(const NetPtr& net, oci::Json json,
                                std::function<void(oci::Json)> told) {
  const auto shared = std::make_shared<oci::Json>(std::move(json));
  const auto reply = [shared, told] { told(std::move(*shared)); };
  const Status begun =
      parts_.worker.Submit([mode = open_, id = net->id, shared, reply, &loop = parts_.loop] {
        const Result<network::OpenNetwork*> open = mode->Get();
        const Result<network::OpenCounters> counted =
            open.has_value() ? (*open)->Count(id) : Result<network::OpenCounters>(open.error());
        if (counted.has_value()) {
          oci::Json& counters = (*shared)["counters"];
          counters["sent_bytes"] = counters["sent_bytes"].get<uint64_t>() + counted->sent_bytes;
          counters["received_bytes"] =
              counters["received_bytes"].get<uint64_t>() + counted->received_bytes;
          counters["refused_packets"] =
              counters["refused_packets"].get<uint64_t>() + counted->denied_packets;
        }
        loop.Post(reply);
      });
  if (!begun.has_value()) reply();
}

}  // namespace hutch::daemon
