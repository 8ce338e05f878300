#include "daemon/relay_group.h"

#include <sys/socket.h>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr Milliseconds kAcceptPause{100};

}  // namespace

// A client that waits for the connection inside.
struct ForwardListener::Connecting final : Relayed {
  void Abort() override {
    dialer.reset();
    if (client.valid()) ResetOnClose(client.get());
    client.reset();
  }
  UniqueFd client;
  std::unique_ptr<Dialer> dialer;
};

ForwardListener::ForwardListener(RelayThread& thread, RelayGroup& group, ReservedPort port,
                                 std::shared_ptr<PortCounters> counters)
    : thread_(thread),
      group_(group),
      port_(port.facts.port),
      listener_(std::move(port.listener)),
      counters_(std::move(counters)) {}

ForwardListener::~ForwardListener() {
  watch_.Reset();
  for (const auto& relayed : relayed_) relayed->Abort();
  counters_->open -= relayed_.size();
}

void ForwardListener::Start() {
  watch_ = thread_.loop().Add(listener_.get(), [this](Ready) { AcceptSome(); });
  watch_.Arm(Ready::kReadable);
}

void ForwardListener::AcceptSome() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    // Those beyond the bound wait in the backlog.
    paused_ = relayed_.size() >= kMaxForwardConnections;
    if (paused_) return;
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) {
      Accept(std::move(client));
      continue;
    }
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) break;
    again_.Start(thread_.loop(), kAcceptPause, [this] { AcceptSome(); });
    return;
  }
  watch_.Arm(Ready::kReadable);
}

void ForwardListener::Accept(UniqueFd client) {
  PrepareTcp(client.get());
  auto connecting = std::make_shared<Connecting>();
  connecting->client = std::move(client);
  relayed_.insert(connecting);
  ++counters_->open;
  ++counters_->connections;
  connecting->dialer = std::make_unique<Dialer>(
      thread_.loop(), port_,
      [this, weak = std::weak_ptr<Connecting>(connecting)](Result<UniqueFd> inside) {
        if (const auto held = weak.lock()) Connected(held, std::move(inside));
      });
  connecting->dialer->Start(group_.init());
}

void ForwardListener::Connected(const std::shared_ptr<Connecting>& connecting,
                                Result<UniqueFd> inside) {
  if (!inside.has_value()) {
    connecting->Abort();
    return Ended(connecting);
  }
  const auto slot = std::make_shared<std::weak_ptr<Relay>>();
  auto relay = std::make_shared<Relay>(
      thread_, Relay::Ends{.client = std::move(connecting->client),
                           .inside = std::move(*inside),
                           .moved =
                               [counters = counters_](uint64_t up, uint64_t down) {
                                 counters->sent += up;
                                 counters->received += down;
                               },
                           .ended =
                               [this, slot] {
                                 if (const auto self = slot->lock()) Ended(self);
                               }});
  *slot = relay;
  relayed_.erase(connecting);
  relayed_.insert(relay);
  relay->Start();
}

void ForwardListener::Ended(const std::shared_ptr<Relayed>& relayed) {
  if (relayed_.erase(relayed) == 0) return;
  --counters_->open;
  if (std::exchange(paused_, false)) watch_.Arm(Ready::kReadable);
}

void RelayGroup::AddListener(uint64_t number, std::unique_ptr<ForwardListener> listener) {
  if (closed_) return;
  listener->Start();
  listeners_[number] = std::move(listener);
}

void RelayGroup::Close() {
  closed_ = true;
  listeners_.clear();
  const auto relayed = std::exchange(relayed_, {});
  for (const auto& one : relayed) one->Abort();
}

}  // namespace hutch::daemon
