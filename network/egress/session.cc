#include "network/egress/session.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace hutch::network {
namespace {

constexpr size_t kReadAhead = 16384;
constexpr size_t kMaxDrainBytes = 1 << 20;
constexpr Milliseconds kDrainTime{2000};

}  // namespace

const Session::StepRow Session::kSteps[] = {
    {State::kFirstBytes, &Session::FirstBytes},
    {State::kCatch, &Session::Catch},
    {State::kSocksGreeting, &Session::SocksGreeting},
    {State::kSocksRequest, &Session::SocksRequest},
    {State::kHead, &Session::Head},
    {State::kHello, &Session::Hello},
    {State::kConnecting, &Session::Waiting},
    {State::kHandshake, &Session::Handshake},
    {State::kRelay, &Session::Relay},
    {State::kExchange, &Session::Exchange},
    {State::kDraining, &Session::Drain},
    {State::kClosed, &Session::Waiting},
};

void Session::Start(Services& services, Tenant& tenant, UniqueFd fd, ListenerKind kind) {
  const bool own = tenant.sessions.size() < kMaxSessions && tenant.half_open < kMaxHalfOpen;
  if (!own || !services.sessions.Admits(tenant.sessions.size())) {
    tenant.Deny(
        "tcp", "", "", 0,
        own ? "too many connections of all sandboxes together" : "too many connections at once");
    const linger now{1, 0};
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now) != 0) fd.reset();
    return;
  }
  const int on = 1;
  if (::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) != 0)
    return;  // gone already
  const auto session = std::make_shared<Session>(services, tenant, std::move(fd), kind);
  tenant.sessions.insert(session);
  session->StartDeadline(kHeadDeadline, "nothing was asked for in time");
  session->Advance();
}

Session::Session(Services& services, Tenant& tenant, UniqueFd fd, ListenerKind kind)
    : services_(services),
      tenant_(tenant),
      kind_(kind),
      state_(kind == ListenerKind::kCatch ? State::kCatch : State::kFirstBytes),
      client_(services.loop, std::move(fd), [this] { Advance(); }),
      deadline_(services.loop),
      pause_(services.loop) {
  ++tenant_.half_open;
  ++services_.sessions.open;
}

Session::~Session() { Close(); }

void Session::Advance() {
  const auto self = shared_from_this();
  while (true) {
    const auto row = std::find_if(std::begin(kSteps), std::end(kSteps),
                                  [&](const StepRow& r) { return r.state == state_; });
    if (!(this->*row->run)()) return;
  }
}

bool Session::Go(State state) {
  state_ = state;
  return true;
}

void Session::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  SetConnected(false);
  --services_.sessions.open;
  if (std::exchange(half_open_, false)) --tenant_.half_open;
  deadline_.Cancel();
  pause_.Cancel();
  connector_.reset();
  // The last owner may be the set: what is destroyed then is not touched any more.
  if (const auto self = weak_from_this().lock()) {
    services_.loop.Post([self] {});
    tenant_.sessions.erase(self);
  }
}

bool Session::Reset() {
  client_.ResetOnClose();
  if (upstream_) upstream_->ResetOnClose();
  Close();
  return false;
}

Session::Fill Session::FillIn(Stream& stream, size_t max_bytes) {
  if (stream.in.size() >= max_bytes) return Fill::kFull;
  std::array<char, kReadAhead> bytes;
  const size_t want = std::min(bytes.size(), max_bytes - stream.in.size());
  const ssize_t n = stream.Read(bytes.data(), want);
  if (n == -EAGAIN) return Fill::kWait;
  if (n <= 0) return Fill::kEnd;
  stream.in.append(bytes.data(), static_cast<size_t>(n));
  return Fill::kMore;
}

void Session::StartDeadline(Milliseconds delay, const char* reason) {
  deadline_.Start(delay, [this, reason] {
    const auto self = shared_from_this();
    // Nobody was kept from anything: it is a failure, not a denial.
    Fail(408, reason);
    Advance();
  });
}

void Session::Pause() {
  if (!pause_.running()) pause_.Start(kMeterPause, [this] { Advance(); });
}

bool Session::Deny(const char* protocol, const std::string& reason) {
  const Target* target = tunnel_ ? &*tunnel_ : nullptr;
  Target asked;
  if (request_ && verdict_.asked.port != 0) {
    asked = verdict_.asked;
    target = &asked;
  } else if (target == nullptr && asked_) {
    asked.address = asked_;
    asked.port = asked_port_;
    target = &asked;
  }
  std::string address;
  if (target != nullptr && target->address) address = target->address->ToString();
  if (address.empty() && asked_) address = asked_->ToString();
  tenant_.Deny(protocol, target != nullptr ? target->host : "", address,
               target != nullptr ? target->port : 0, reason);
  const std::string shown = target != nullptr ? target->shown() : "this connection";
  if (front_ == Front::kSocks) {
    constexpr char kNotAllowed[] = "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00";
    client_.Write(kNotAllowed, 10);
    return Go(State::kDraining);
  }
  if (front_ == Front::kHttp || front_ == Front::kConnect)
    return Answer(403, DenialText(tenant_.id, shown, reason));
  return Reset();
}

bool Session::Malformed(const std::string& reason) {
  tenant_.Deny("http", "", asked_ ? asked_->ToString() : "", asked_port_, reason);
  if (front_ == Front::kHttp || front_ == Front::kConnect)
    return Answer(400, DenialText(tenant_.id, "this request", reason));
  return Reset();
}

bool Session::Fail(int http_status, const std::string& reason) {
  ++tenant_.counters().failed;
  if (front_ == Front::kSocks) {
    constexpr char kUnreachable[] = "\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00";
    client_.Write(kUnreachable, 10);
    return Go(State::kDraining);
  }
  const bool sayable = (front_ == Front::kHttp && !answered_) || front_ == Front::kConnect;
  if (!sayable) return Reset();
  const std::string shown = upstream_target_ ? upstream_target_->shown() + ": " : "";
  return Answer(http_status, "hutch: " + shown + reason + "\n");
}

// Ends the connection with this.
bool Session::Answer(int http_status, const std::string& text) {
  const char* phrase = http_status == 403   ? "Forbidden"
                       : http_status == 400 ? "Bad Request"
                       : http_status == 408 ? "Request Timeout"
                       : http_status == 504 ? "Gateway Timeout"
                                            : "Bad Gateway";
  const std::string message = "HTTP/1.1 " + std::to_string(http_status) + " " + phrase +
                              "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " +
                              std::to_string(text.size()) +
                              "\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n";
  const bool head_only = request_ && request_->method == "HEAD";
  const std::string all = head_only ? message : message + text;
  // An answer of a few hundred bytes fits into any socket's buffer, unless the client does not
  // read: then it gets less.
  client_.Write(all.data(), all.size());
  return Go(State::kDraining);
}

// What the client still sends is thrown away for a moment: closing at once would reset the
// connection, and the answer with it.
bool Session::Drain() {
  if (drained_ == 0) {
    ++drained_;
    CloseUpstream();
    SetConnected(false);
    client_.ShutdownWrite();
    deadline_.Start(kDrainTime, [this] { Close(); });
  }
  while (true) {
    const ssize_t n = client_.Read(services_.block.data(), services_.block.size());
    if (n == -EAGAIN) return false;
    if (n > 0) drained_ += static_cast<size_t>(n);
    if (n <= 0 || drained_ > kMaxDrainBytes) {
      Close();
      return false;
    }
  }
}

bool Session::StillAllowed() const {
  if (state_ == State::kClosed || state_ == State::kDraining) return true;
  const EgressSettings& settings = tenant_.settings;
  if (settings.policy.mode != Mode::kAllowlist) return false;
  if (tunnel_ && !catch_names_host_) {
    const Verdict verdict = JudgeTarget(settings, *tunnel_);
    if (!verdict.allowed || verdict.carrier != carrier_) return false;
  }
  // A name's address that only a range opened. One kept for further requests is just dropped.
  if (state_ != State::kHead && !UpstreamOpenNow(upstream_asked_port_)) return false;
  if (tunnel_ && catch_names_host_ && !JudgeTarget(settings, *tunnel_).allowed) return false;
  if (request_ && verdict_.allowed) {
    const RequestVerdict now = JudgeRequest(settings, *request_, verdict_.asked);
    return now.allowed && now.tls == verdict_.tls;
  }
  return true;
}

void Session::Refuse(const std::string& reason) {
  const auto self = shared_from_this();
  if (answered_ || state_ == State::kRelay) front_ = Front::kReset;
  Deny("tcp", reason);
  if (state_ == State::kDraining) Advance();
}

}  // namespace hutch::network
