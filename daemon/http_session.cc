#include "daemon/http_session.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/http_server.h"

namespace hutch::daemon {
namespace {

constexpr size_t kMaxDiscardBytes = 64 * 1024 * 1024;
constexpr Milliseconds kDiscardTime{5'000};
constexpr size_t kCompactBytes = 64 * 1024;

}  // namespace

HttpSession::HttpSession(HttpServer& server, UniqueFd socket, Peer peer)
    : server_(&server),
      socket_(std::move(socket)),
      peer_(peer),
      parser_(&server.budget_, &server.lookup_) {}

HttpSession::~HttpSession() = default;

void HttpSession::Start() {
  watch_ = server_->loop_.Add(socket_.get(), [this](Ready ready) {
    const auto self = shared_from_this();
    OnReady(ready);
  });
  if (!watch_.active()) return Close();
  RestartTimer();
  watch_.Arm(Ready::kReadable);
}

void HttpSession::Soon(void (HttpSession::*call)()) {
  server_->loop_.Post([weak = weak_from_this(), call] {
    const auto self = weak.lock();
    if (self != nullptr && self->state_ != State::kClosed) ((*self).*call)();
  });
}

void HttpSession::RestartTimer() {
  timer_.Start(server_->loop_, server_->options_.timeout, [this] {
    const auto self = shared_from_this();
    OnTimeout();
  });
}

void HttpSession::OnTimeout() {
  if (state_ == State::kWriting) return Close();  // an answer nobody fetches
  if (state_ == State::kSending)
    return FinishSender(
        Error{.code = Code::kUnavailable, .what = "the client does not fetch its answer"});
  if (state_ == State::kWebSocket) return Close();  // the client does not answer our close
  if (receiver_ != nullptr)
    return FinishReceiver(
        Error{.code = Code::kInvalidArgument, .what = "the body did not arrive in time"});
  if (state_ != State::kReading) return;
  if (parser_.idle()) return Close();  // silence between requests ends without a word
  CloseWithError(
      Error{.code = Code::kInvalidArgument, .what = "the request did not arrive in time"});
}

void HttpSession::CloseWithError(const Error& error) {
  close_after_ = true;
  Answer(ErrorReply(error));
}

void HttpSession::BeginRequest() {
  counted_ = true;
  ++server_->under_way_;
}

void HttpSession::EndRequest() {
  if (counted_) --server_->under_way_;
  counted_ = false;
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  EndRequest();
  state_ = State::kClosed;
  TellWebSocketClosed();
  receiver_.reset();
  sender_.reset();
  const Error gone{.code = Code::kUnavailable, .what = "the client closed the connection"};
  TellDone(&receiver_done_, gone);
  TellDone(&sender_done_, gone);
  on_drained_ = nullptr;
  watch_.Reset();
  timer_.Cancel();
  socket_.reset();
  server_->sessions_.erase(shared_from_this());
}

Result<TakenConnection> HttpSession::TakeOver() {
  if (state_ != State::kProcessing || receiver_ != nullptr || backlog() > 0)
    return Error{.code = Code::kUnavailable, .what = "the client closed the connection"};
  TakenConnection taken;
  taken.body_left = parser_.body_done() ? 0 : parser_.body_left().value_or(0);
  taken.chunked = !parser_.body_done() && !parser_.body_left();
  taken.http_1_0 = parser_.is_http_1_0();
  taken.buffered = parser_.TakeBuffered();
  watch_.Reset();  // before the descriptor goes
  taken.socket = std::move(socket_);
  on_hangup_ = nullptr;
  Close();
  return taken;
}

bool HttpSession::SomethingArrived() const {
  char byte;
  return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void HttpSession::CloseWhenIdle() {
  close_after_ = true;
  // One that has just connected, or whose request is on its way, is served and then closed.
  const bool expected = request_start_ == SteadyTime() || !parser_.idle() || SomethingArrived();
  if (state_ == State::kReading && !expected) return Close();
  if (state_ == State::kReading && parser_.idle())
    timer_.Start(server_->loop_, kLastRequestTime, [this] {
      const auto self = shared_from_this();
      OnTimeout();
    });
  if (state_ == State::kWebSocket) CloseWebSocket(kCloseGoingAway, "the daemon stops");
}

void HttpSession::OnReady(Ready ready) {
  switch (state_) {
    case State::kReading:
      if (ready == Ready::kReadable) ReadSome();
      break;
    case State::kProcessing:
    case State::kStreaming:
      if (ready == Ready::kPriority) HandleHangup();
      if (ready == Ready::kReadable) receiver_ != nullptr ? RunReceiver() : LookForHangup();
      if (ready == Ready::kWritable) Flush();
      break;
    case State::kSending:
      if (ready == Ready::kPriority) HandleHangup();
      if (ready == Ready::kReadable) LookForHangup();
      if (ready == Ready::kWritable) RunSender();
      break;
    case State::kWebSocket:
      if (ready == Ready::kPriority) HandleHangup();
      if (ready == Ready::kReadable) ReadFrames();
      if (ready == Ready::kWritable) Flush();
      break;
    case State::kWriting:
      if (ready == Ready::kWritable) Flush();
      break;
    case State::kDiscarding:
      if (ready == Ready::kReadable) Discard();
      break;
    case State::kClosed:
      break;
  }
}

void HttpSession::ReadSome() {
  std::string& scratch = server_->scratch_;
  const ssize_t count = ::recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return Close();
  if (count < 0) return watch_.Arm(Ready::kReadable);
  const bool first = parser_.idle();
  parser_.Feed({scratch.data(), static_cast<size_t>(count)});
  if (first) RestartTimer();  // from its first byte a request has the whole time
  Advance();
}

// Not recursive: an answer given inside HandRequestOn() comes back here by the loop.
void HttpSession::Advance() {
  if (in_advance_) return;
  in_advance_ = true;
  while (state_ == State::kReading) {
    const HttpParser::Progress progress = parser_.Parse();
    if (progress == HttpParser::Progress::kNeedMore) {
      watch_.Arm(Ready::kReadable);
      break;
    }
    if (progress == HttpParser::Progress::kSendContinue) {
      out_.append(kContinueHead);
      Flush();
    } else if (progress == HttpParser::Progress::kFailed) {
      CloseWithError(parser_.error());
    } else {
      HandRequestOn();
    }
  }
  in_advance_ = false;
}

void HttpSession::HandRequestOn() {
  Request request = parser_.Take();
  request.peer = peer_;
  if (server_->options_.log_requests) {
    request_line_ = request.method + " " + request.path;
    request_start_ = Loop::Now();
  }
  if (!parser_.keep_alive() || server_->stopping_) close_after_ = true;
  head_only_ = request.method == "HEAD";
  event_format_ = request.wants_ndjson ? EventFormat::kNdjson : EventFormat::kServerSent;
  websocket_accept_.reset();
  if (!request.Header("Upgrade").empty() && !parser_.is_http_1_0())
    websocket_accept_ = AcceptWebSocket(request);
  state_ = State::kProcessing;
  BeginRequest();
  server_->dispatch_(std::move(request), Responder(shared_from_this()));
  if (state_ == State::kProcessing || state_ == State::kStreaming || state_ == State::kSending)
    ExpectHangup();
}

void HttpSession::ExpectHangup() {
  watch_.Arm(Ready::kPriority);
  if (server_->options_.transport == HttpServer::Transport::kTcp) watch_.Arm(Ready::kReadable);
}

// The end of what a TCP client sends looks like something to read. A next request that is there
// already hides it: then only a reset tells.
void HttpSession::LookForHangup() {
  if (server_->options_.transport != HttpServer::Transport::kTcp) return;
  char byte = 0;
  const ssize_t count = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return ClientIsGone();
  if (count < 0) watch_.Arm(Ready::kReadable);
}

// Only a client that closed its socket has hung up. One that merely stopped sending (shutdown(2),
// SHUT_WR) waits for its answer.
bool HttpSession::HungUp() const {
  struct pollfd gone {
    .fd = socket_.get(), .events = 0, .revents = 0
  };
  return ::poll(&gone, 1, 0) > 0 && (gone.revents & (POLLHUP | POLLERR)) != 0;
}

void HttpSession::HandleHangup() {
  // What a client sent before it went is still to be read there.
  if (state_ == State::kWebSocket && ReadsFrames()) return ExpectFrames();
  if (HungUp()) return ClientIsGone();
  watch_.Arm(Ready::kPriority);
}

void HttpSession::ClientIsGone() {
  if (on_hangup_) TellHangup();
  Close();
}

// From the loop, before what Close() has told: whoever sends an event is not to be undone within.
// Dropped when the request was answered meanwhile, if in vain.
void HttpSession::TellHangup() {
  server_->loop_.Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    if (const auto handler = std::exchange(self->on_hangup_, nullptr)) handler();
  });
}

void HttpSession::SetHangupHandler(std::function<void()> handler) {
  if (state_ != State::kProcessing && state_ != State::kStreaming && state_ != State::kClosed)
    return;
  on_hangup_ = std::move(handler);
  if (state_ == State::kClosed) TellHangup();
}

std::string HttpSession::Head(int status, std::string_view content_type, const Headers* headers,
                              std::string framing) const {
  Connection connection = Connection::kDefault;
  if (close_after_)
    connection = Connection::kClose;
  else if (parser_.is_http_1_0())
    connection = Connection::kKeepAlive;
  return ResponseHead({.status = status,
                       .content_type = content_type,
                       .headers = headers,
                       .framing = std::move(framing),
                       .connection = connection});
}

void HttpSession::SendReply(Reply reply) {
  if (state_ == State::kClosed) on_hangup_ = nullptr;
  if (state_ == State::kStreaming) return EndEvents();  // a handler that gave up in mid-stream
  if (state_ == State::kWebSocket) return CloseWebSocket(kCloseInternal, "given up");
  if (state_ == State::kProcessing) Answer(std::move(reply));
}

void HttpSession::Answer(Reply reply) {
  if (state_ == State::kClosed) return;
  on_hangup_ = nullptr;
  LeaveBody();
  EndRequest();
  const bool has_body = reply.status != 204 && reply.status != 304;
  out_.reserve(256 + reply.body.size());
  out_.append(Head(reply.status, has_body ? reply.content_type : std::string_view(), &reply.headers,
                   has_body ? ContentLengthLine(reply.body.size()) : ""));
  if (has_body && !head_only_) out_.append(reply.body);
  if (!request_line_.empty()) LogRequest(reply.status);
  state_ = State::kWriting;
  Flush();
}

void HttpSession::LogRequest(int status) {
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(Loop::Now() - request_start_);
  Log(LogLevel::kDebug, "request",
      {{"line", request_line_},
       {"status", std::to_string(status)},
       {"us", std::to_string(took.count())},
       {"peer_uid", std::to_string(peer_.uid)}});
  request_line_.clear();
}

void HttpSession::Flush() {
  if (state_ == State::kWriting) FaultPoint("answer unsent");
  while (out_done_ < out_.size()) {
    const ssize_t count = ::send(socket_.get(), out_.data() + out_done_, out_.size() - out_done_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (state_ == State::kWriting) RestartTimer();
      watch_.Arm(Ready::kWritable);
      break;
    }
    if (count < 0) return ClientIsGone();
    out_done_ += static_cast<size_t>(count);
  }
  // A stream may never be quite empty: what is sent must not pile up.
  if (out_done_ == out_.size() || (out_done_ >= kCompactBytes && out_done_ >= out_.size() / 2)) {
    out_.erase(0, out_done_);
    out_done_ = 0;
  }
  TellDrained();
  if (state_ != State::kWriting || !out_.empty()) return;
  FaultPoint("answer sent");
  AnswerWritten();
}

void HttpSession::AnswerWritten() {
  head_only_ = false;
  if (!close_after_) {
    state_ = State::kReading;
    RestartTimer();
    // Not from within: whoever answered is not to meet the next request's handler.
    return Soon(&HttpSession::Advance);
  }
  ::shutdown(socket_.get(), SHUT_WR);
  state_ = State::kDiscarding;
  timer_.Start(server_->loop_, kDiscardTime, [this] { shared_from_this()->Close(); });
  watch_.Arm(Ready::kReadable);
}

void HttpSession::Discard() {
  std::string& scratch = server_->scratch_;
  const ssize_t count = ::recv(socket_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count > 0) discarded_ += static_cast<size_t>(count);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) ||
      discarded_ > kMaxDiscardBytes)
    return Close();
  watch_.Arm(Ready::kReadable);
}

}  // namespace hutch::daemon
