// The other side: its addresses, the connection, TLS that we begin.
#include <algorithm>

#include "network/egress/session.h"

namespace hutch::network {

bool Session::Connect(const Target& target, bool tls) {
  const uint32_t most = tenant_.settings.policy.limits.connections;
  if (tenant_.spent()) return Deny("tcp", "its traffic quota is used up");
  if (most != 0 && !connected_ && tenant_.connected >= most)
    return Deny("tcp", "it has " + std::to_string(most) + " connections open, its most");
  upstream_target_ = target;
  upstream_tls_ = tls;
  upstream_addresses_.clear();
  up_.reset();
  down_.reset();
  upstream_.reset();
  SetConnected(true);
  state_ = State::kConnecting;
  deadline_.Cancel();  // resolving and connecting have their own
  if (target.address) {
    ConnectTo({*target.address});
    return state_ != State::kConnecting;
  }
  tenant_.names.Lookup(target.host, [weak = weak_from_this()](const NameAnswer& answer) {
    const auto self = weak.lock();
    if (self == nullptr || self->state_ != State::kConnecting) return;
    self->OnResolved(answer);
  });
  return state_ != State::kConnecting;
}

void Session::OnResolved(const NameAnswer& answer) {
  bool advance = false;
  if (answer.state == NameAnswer::State::kTooMany) {
    advance = Deny("dns", "too many names at once");
  } else if (answer.state == NameAnswer::State::kMissing) {
    advance = Fail(502, "there is no such name");
  } else if (answer.state == NameAnswer::State::kFailed) {
    advance = Fail(502, "the name could not be resolved");
  } else {
    std::vector<Address> addresses = answer.addresses;
    // The one that was connected to comes first, if it is one of them.
    if (asked_) {
      const auto it = std::find(addresses.begin(), addresses.end(), *asked_);
      if (it != addresses.end()) std::rotate(addresses.begin(), it, it + 1);
    }
    return ConnectTo(addresses);
  }
  if (advance) services_.loop.Post([self = shared_from_this()] { self->Advance(); });
}

void Session::ConnectTo(const std::vector<Address>& addresses) {
  const uint16_t port = upstream_target_->port;
  // The rule names the port that was asked for, which TLS of ours may have changed.
  const uint16_t asked = request_ && verdict_.allowed ? verdict_.asked.port : port;
  std::string why;
  std::vector<Address> open = OpenNow(addresses, asked, &why);
  if (open.empty()) {
    if (Deny("tcp", why.empty() ? "the name has no address" : why))
      services_.loop.Post([self = shared_from_this()] { self->Advance(); });
    return;
  }
  upstream_asked_port_ = asked;
  upstream_addresses_ = open;
  connector_ = std::make_unique<Connector>(services_.loop, std::move(open), port,
                                           [this](Result<UniqueFd> fd, const Address& address) {
                                             const auto self = shared_from_this();
                                             upstream_addresses_ = {address};
                                             OnConnected(std::move(fd));
                                           });
}

// Those of them that a name may lead to, by the settings and the host's addresses as they are now.
std::vector<Address> Session::OpenNow(const std::vector<Address>& addresses, uint16_t asked,
                                      std::string* why) const {
  std::vector<Address> open = OpenAddresses(tenant_.settings, addresses, asked, why);
  std::erase_if(open, [&](const Address& address) {
    if (FindByAddress(tenant_.settings.policy, address, asked) != nullptr || !IsOwnAddress(address))
      return false;
    *why = "the name leads to " + address.ToString() + " (an address of the host itself)";
    return true;
  });
  return open;
}

bool Session::UpstreamOpenNow(uint16_t asked) const {
  std::string why;
  return OpenNow(upstream_addresses_, asked, &why).size() == upstream_addresses_.size();
}

void Session::DropUnusedUpstream() {
  if (state_ == State::kHead && upstream_ && !UpstreamOpenNow(upstream_asked_port_))
    CloseUpstream();
}

void Session::OnConnected(Result<UniqueFd> fd) {
  const std::unique_ptr<Connector> done = std::move(connector_);  // we are called from within it
  if (!fd) {
    Fail(fd.error().sys == ETIMEDOUT ? 504 : 502, fd.error().what);
    return Advance();
  }
  ++tenant_.counters().connections;
  if (std::exchange(half_open_, false)) --tenant_.half_open;
  upstream_ = std::make_unique<Stream>(services_.loop, std::move(*fd), [this] { Advance(); });
  if (upstream_tls_) {
    if (const Status begun = upstream_->StartTls(services_.tls, upstream_target_->host); !begun) {
      Fail(502, begun.error().what);
      return Advance();
    }
    StartDeadline(kConnectDeadline, "the server's TLS handshake took too long");
    state_ = State::kHandshake;
  } else if (request_ && verdict_.allowed) {
    StartExchange();
  } else {
    TunnelReady();
  }
  Advance();
}

bool Session::Handshake() {
  std::string why;
  const int rc = upstream_->Handshake(&why);
  if (rc == -EAGAIN) return false;
  deadline_.Cancel();
  return rc == 0 ? StartExchange() : Fail(502, why);
}

void Session::CloseUpstream() {
  up_.reset();
  down_.reset();
  connector_.reset();
  upstream_.reset();
  upstream_target_.reset();
  upstream_addresses_.clear();
}

void Session::SetConnected(bool connected) {
  if (connected == connected_) return;
  connected_ = connected;
  tenant_.connected += connected ? size_t{1} : static_cast<size_t>(-1);
}

}  // namespace hutch::network
