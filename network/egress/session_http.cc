// Plain HTTP: each request is judged, each answer ends where its head says.
#include <algorithm>

#include "network/egress/client_hello.h"
#include "network/egress/session.h"

namespace hutch::network {
namespace {

constexpr uint16_t kHttpPort = 80;
constexpr int kSwitching = 101;

std::string AuthorityOf(const RequestHead& request, bool tls) {
  const std::string host =
      request.host.find(':') != std::string::npos ? "[" + request.host + "]" : request.host;
  // Where TLS is begun for it, the server is asked as it is known by.
  if (tls || request.port == kHttpPort) return host;
  return host + ":" + std::to_string(request.port);
}

}  // namespace

bool Session::Head() {
  answered_ = false;
  while (true) {
    if (!client_.in.empty() && LooksLikeTls(client_.in)) {
      front_ = Front::kReset;
      return Deny("tls", "its rules are for plain HTTP, and this is TLS");
    }
    const auto size = FindHeadEnd(client_.in);
    if (!size) return Malformed(size.error().what);
    if (*size > 0) return TakeRequest(*size);
    const bool empty = client_.in.empty();
    const Fill fill = FillIn(client_, kMaxHeadBytes);
    if (fill == Fill::kWait) return false;
    if (fill == Fill::kEnd) {
      Close();
      return false;
    }
    if (empty) StartDeadline(kHeadDeadline, "the request's head did not come whole in time");
  }
}

// Through a tunnel, or caught: the request must be for what was connected to.
bool Session::IsForTunnel(const RequestHead& request) {
  if (tunnel_ && tunnel_->address) return true;  // any name of that address
  if (tunnel_) return request.host == tunnel_->host && request.port == tunnel_->port;
  return request.port == asked_port_;
}

bool Session::TakeRequest(size_t head_bytes) {
  const bool proxied = !tunnel_ && !catch_names_host_;
  const uint16_t port = tunnel_ ? tunnel_->port : proxied ? kHttpPort : asked_port_;
  auto request = ReadRequest(std::string_view(client_.in).substr(0, head_bytes), port);
  client_.in.erase(0, head_bytes);
  if (!request) return Malformed(request.error().what);
  request_ = std::move(*request);
  verdict_ = RequestVerdict();
  deadline_.Cancel();
  const auto target = ReadTarget(request_->host, request_->port);
  if (!target) return Malformed("the host is no name: " + target.error().what);
  if (request_->method == "CONNECT") {
    if (!proxied) return Malformed("CONNECT within a connection");
    CloseUpstream();
    front_ = Front::kConnect;
    return OpenTunnel(*target);
  }
  if (proxied && !request_->absolute)
    return Malformed("this is a proxy: a request needs a whole http:// address");
  verdict_.asked = *target;
  if (!proxied && !IsForTunnel(*request_))
    return Deny("http", "Host is another one than was connected to");
  const bool literal = tunnel_ && tunnel_->address;
  verdict_ = JudgeRequest(tenant_.settings, *request_, literal ? *tunnel_ : *target);
  if (!verdict_.allowed) return Deny("http", verdict_.reason);
  if (verdict_.narrow) RemoveOverrides(&*request_);
  const bool same = upstream_ && upstream_target_ == verdict_.upstream &&
                    upstream_tls_ == verdict_.tls && upstream_->IsIdle() &&
                    UpstreamOpenNow(verdict_.asked.port);
  if (same) upstream_asked_port_ = verdict_.asked.port;
  return same ? StartExchange() : Connect(verdict_.upstream, verdict_.tls);
}

bool Session::StartExchange() {
  up_body_ = BodyReader(request_->body, request_->body_bytes);
  down_body_ = BodyReader(BodyKind::kUntilEnd, 0);
  up_ended_ = down_ended_ = false;
  answer_.reset();
  interims_ = 0;
  up_ = std::make_unique<Pump>(client_, *upstream_, tenant_, Direction::kSent, &up_body_);
  down_.reset();
  if (verdict_.secret) ++tenant_.counters().secrets_used;
  const std::string head =
      PrintRequest(*request_, AuthorityOf(*request_, verdict_.tls), verdict_.secret);
  tenant_.Count(Direction::kSent, head.size());
  up_->Put(head);
  return Go(State::kExchange);
}

bool Session::Exchange() {
  if (!up_ended_ && !(answer_ && answer_->status == kSwitching)) {
    const Pump::State state = up_->Run(services_.block);
    if (state == Pump::State::kBad && !answered_) return Malformed(up_body_.why());
    // A server may answer and close before it has read all: then its answer counts.
    if (state == Pump::State::kFailed) up_ended_ = true;
    if (state == Pump::State::kDone) up_ended_ = true;
    if (state == Pump::State::kPaused) Pause();
    if (state == Pump::State::kYield)
      services_.loop.Post([self = shared_from_this()] { self->Advance(); });
    if (state == Pump::State::kBad) return Reset();
    if (state == Pump::State::kSpent) {
      front_ = answered_ ? Front::kReset : front_;
      return Deny("tcp", "its traffic quota is used up");
    }
  }
  // A client that goes away while it waits takes its request with it.
  if (up_ended_ && client_.in.empty() && FillIn(client_, kMaxHeadBytes) == Fill::kEnd)
    return Reset();
  while (!answer_)
    if (!ReadAnswerHead()) return state_ != State::kExchange && state_ != State::kClosed;
  if (state_ != State::kExchange) return state_ != State::kClosed;
  if (!RunPump(*down_, &down_ended_)) return state_ == State::kDraining;
  return down_ended_ ? EndExchange() : false;
}

bool Session::NoAnswer(const std::string& reason) {
  Fail(502, reason);
  return false;
}

// True: there is a head, or another one to be read.
bool Session::ReadAnswerHead() {
  while (true) {
    if (tenant_.spent()) {
      front_ = answered_ ? Front::kReset : front_;
      Deny("tcp", "its traffic quota is used up");
      return false;
    }
    if (tenant_.Allowance(Direction::kReceived, 1) == 0) {
      Pause();
      return false;
    }
    const auto size = FindHeadEnd(upstream_->in);
    if (!size) return NoAnswer("the server's answer is no HTTP: " + size.error().what);
    if (*size == 0) {
      const Fill fill = FillIn(*upstream_, kMaxHeadBytes);
      if (fill == Fill::kWait) return false;
      if (fill != Fill::kMore) return NoAnswer("the server closed without an answer");
      continue;
    }
    auto answer = ReadResponse(std::string_view(upstream_->in).substr(0, *size), request_->method);
    upstream_->in.erase(0, *size);
    tenant_.Count(Direction::kReceived, *size);
    if (!answer) return NoAnswer(answer.error().what);
    if (!down_)
      down_ =
          std::make_unique<Pump>(*upstream_, client_, tenant_, Direction::kReceived, &down_body_);
    answered_ = true;
    if (answer->status == kSwitching) {
      const bool room = down_->Flush() == Pump::State::kYield;  // no interim half sent
      if (!request_->websocket || !room) return Reset();
      answer_ = std::move(*answer);
      StartRelay();
      down_->Put(PrintResponse(*answer_, Connection::kUpgrade));
      return true;
    }
    if (answer->status < 200) return Interim(*answer);  // the real one follows
    const bool keep = !request_->close && answer->body != BodyKind::kUntilEnd;
    down_body_ = BodyReader(answer->body, answer->body_bytes);
    down_->Put(PrintResponse(*answer, keep ? Connection::kKeep : Connection::kClose));
    answer_ = std::move(*answer);
    return true;
  }
}

// A client that does not read them gets fewer: they are not kept for it. Returns false, the next
// head has its turn later.
bool Session::Interim(const ResponseHead& interim) {
  if (++interims_ > kMaxInterims) return NoAnswer("the server's interim answers have no end");
  Pump::State state = down_->Flush();
  if (state == Pump::State::kYield && !request_->http10) {
    down_->Put(PrintResponse(interim, Connection::kKeep));
    state = down_->Flush();
  }
  if (state == Pump::State::kFailed) return Reset();
  services_.loop.Post([self = shared_from_this()] { self->Advance(); });
  return false;
}

bool Session::EndExchange() {
  const bool keep =
      !request_->close && answer_->body != BodyKind::kUntilEnd && up_ended_ && up_body_.done();
  if (!keep) return Go(State::kDraining);
  if (answer_->close) CloseUpstream();
  request_.reset();
  verdict_ = RequestVerdict();
  answer_.reset();
  up_.reset();
  down_.reset();
  StartDeadline(kKeepAlive, "no further request came");
  return Go(State::kHead);
}

}  // namespace hutch::network
