// Bytes both ways, once what is spoken has been judged.
#include "network/egress/client_hello.h"
#include "network/egress/session.h"

namespace hutch::network {

bool Session::StartRelay() {
  deadline_.Cancel();
  answered_ = true;
  up_ended_ = down_ended_ = false;
  // Where a name allows any protocol, one that begins as TLS must name it; others cannot.
  sniffing_ = tunnel_ && !tunnel_->address && carrier_ == Carrier::kOpaque && !request_;
  up_ = std::make_unique<Pump>(client_, *upstream_, tenant_, Direction::kSent, nullptr);
  down_ = std::make_unique<Pump>(*upstream_, client_, tenant_, Direction::kReceived, nullptr);
  return Go(State::kRelay);
}

// Only what the client sends waits for this, so that servers which speak first can.
Session::Sniff Session::SniffTls() {
  while (LooksLikeTls(client_.in)) {
    if (!client_.in.empty()) {
      if (ReadClientHello(client_.in).state != ClientHello::State::kNeedMore) break;
      if (!deadline_.running())
        StartDeadline(kHeadDeadline, "the TLS ClientHello did not come whole in time");
    }
    const Fill fill = FillIn(client_, kMaxHelloBytes);
    if (fill == Fill::kWait) return Sniff::kWait;
    if (fill != Fill::kMore) break;
  }
  deadline_.Cancel();
  sniffing_ = false;
  if (client_.in.empty() || !LooksLikeTls(client_.in)) return Sniff::kPass;
  std::string name;
  const std::string why =
      JudgeHello(tenant_.settings, client_.in, tunnel_->host, tunnel_->port, &name);
  if (why.empty()) return Sniff::kPass;
  Deny("tls", why);
  return Sniff::kRefused;
}

// False: the connection is over.
bool Session::RunPump(Pump& pump, bool* ended) {
  if (*ended) return true;
  switch (pump.Run(services_.block)) {
    case Pump::State::kWaiting:
      return true;
    case Pump::State::kPaused:
      Pause();
      return true;
    case Pump::State::kYield:
      services_.loop.Post([self = shared_from_this()] { self->Advance(); });
      return true;
    case Pump::State::kDone:
    case Pump::State::kEnd:
      *ended = true;
      return true;
    case Pump::State::kSpent:
      front_ = answered_ ? Front::kReset : front_;
      Deny("tcp", "its traffic quota is used up");
      return false;
    case Pump::State::kBad:
    case Pump::State::kFailed:
      break;
  }
  Reset();
  return false;
}

bool Session::Relay() {
  if (sniffing_) {
    const Sniff sniff = SniffTls();
    if (sniff == Sniff::kRefused) return false;
  }
  const bool up_before = up_ended_, down_before = down_ended_;
  if (!sniffing_ && !RunPump(*up_, &up_ended_)) return false;
  if (up_ended_ && !up_before) upstream_->ShutdownWrite();
  if (!RunPump(*down_, &down_ended_)) return false;
  if (down_ended_ && !down_before) client_.ShutdownWrite();
  if (up_ended_ && down_ended_) Close();
  return false;
}

}  // namespace hutch::network
