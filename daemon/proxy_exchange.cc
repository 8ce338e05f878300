#include "daemon/proxy_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include "daemon/http_head.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr int kBadGateway = 502, kGatewayTimeout = 504;
constexpr int kMaxInterims = 16;  // 1xx before the answer
constexpr size_t kMaxDrainedBytes = 64 * 1024 * 1024;
constexpr Milliseconds kDrainTime{5'000};

bool Again(int sys) { return sys == EAGAIN || sys == EINTR; }

bool HungUp(int fd) {
  struct pollfd one {
    .fd = fd, .events = 0, .revents = 0
  };
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

ProxyExchange::ProxyExchange(RelayThread& thread, RelayGroup& group, ProxyRequest request,
                             std::shared_ptr<PortCounters> counters)
    : thread_(thread),
      group_(group),
      request_(std::move(request)),
      counters_(std::move(counters)) {}

void ProxyExchange::Start() {
  const auto self = shared_from_this();
  group_.Insert(self);
  client_watch_ = thread_.loop().Add(request_.connection.socket.get(), [this](Ready ready) {
    const auto held = shared_from_this();
    OnClient(ready);
  });
  if (!client_watch_.active()) return Over();
  client_watch_.Arm(Ready::kPriority);
  dialer_ = std::make_unique<Dialer>(thread_.loop(), request_.port,
                                     [weak = weak_from_this()](Result<UniqueFd> inside) {
                                       if (const auto held = weak.lock())
                                         held->Dialed(std::move(inside));
                                     });
  dialer_->Start(group_.init());
}

void ProxyExchange::Dialed(Result<UniqueFd> inside) {
  if (state_ != State::kDialing) return;
  if (!inside.has_value()) {
    Error error = std::move(inside).error();
    error.code = Code::kUnavailable;
    return Answer(kBadGateway, std::move(error));
  }
  inside_ = std::move(*inside);
  inside_watch_ = thread_.loop().Add(inside_.get(), [this](Ready ready) {
    const auto held = shared_from_this();
    OnInside(ready);
  });
  if (!inside_watch_.active()) return Over();
  state_ = State::kHead;
  TakenConnection& client = request_.connection;
  up_.emplace(client.socket.get(), inside_.get());
  up_->Prepend(request_.head);
  if (request_.framing == BodyFraming::kChunked) up_->BoundChunks();
  if (request_.framing != BodyFraming::kChunked) up_->BoundBytes(client.body_left);
  if (request_.framing != BodyFraming::kNone && !up_->Feed(client.buffered).has_value())
    return Answer(400, Error{.code = Code::kInvalidArgument, .what = "malformed HTTP body"});
  RestartTimer();
  inside_watch_.Arm(Ready::kReadable);
  Soon(&ProxyExchange::RunUp);
}

void ProxyExchange::Soon(void (ProxyExchange::*call)()) {
  thread_.loop().Post([weak = weak_from_this(), call] {
    const auto self = weak.lock();
    if (self != nullptr && self->state_ != State::kOver) ((*self).*call)();
  });
}

void ProxyExchange::OnClient(Ready ready) {
  if (state_ == State::kOver) return;
  if (ready == Ready::kPriority) {
    if (HungUp(request_.connection.socket.get())) return Over();
    return client_watch_.Arm(Ready::kPriority);
  }
  if (ready == Ready::kWritable) return RunDown();
  return state_ == State::kDraining ? Drain() : RunUp();
}

void ProxyExchange::OnInside(Ready ready) {
  if (state_ == State::kOver || !inside_.valid()) return;
  if (ready == Ready::kWritable) return RunUp();
  return state_ == State::kHead ? ReadHead() : RunDown();
}

void ProxyExchange::RunUp() {
  if (up_done_ || !up_ || !inside_.valid()) return;
  const uint64_t before = up_->moved();
  const MoveState state = up_->Run(thread_.scratch());
  if (up_->moved() != before && state_ == State::kHead) RestartTimer();
  Tell();
  switch (state) {
    case MoveState::kNeedsFrom:
      return client_watch_.Arm(Ready::kReadable);
    case MoveState::kNeedsTo:
      return inside_watch_.Arm(Ready::kWritable);
    case MoveState::kAgain:
      return Soon(&ProxyExchange::RunUp);
    case MoveState::kEnded:
    case MoveState::kToFailed:  // it reads no more; what it answered may be there
      up_done_ = true;
      return;
    case MoveState::kFromFailed:
      if (state_ != State::kHead || HungUp(request_.connection.socket.get())) return Over();
      return Answer(400, Error{.code = Code::kInvalidArgument,
                               .what = "the body is malformed or ended early"});
  }
}

void ProxyExchange::ReadHead() {
  std::string& scratch = thread_.scratch();
  const ssize_t count = ::recv(inside_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count < 0 && Again(errno)) return inside_watch_.Arm(Ready::kReadable);
  if (count <= 0)
    return Answer(kBadGateway, Error{.code = Code::kUnavailable,
                                     .what = "port " + std::to_string(request_.port) +
                                             " closed the connection without an answer"});
  head_.append(scratch, 0, static_cast<size_t>(count));
  TakeHead();
}

void ProxyExchange::TakeHead() {
  while (state_ == State::kHead) {
    Result<std::optional<AnswerHead>> read = ReadAnswerHead(head_, request_.ask);
    if (!read.has_value())
      return Answer(kBadGateway, Error{.code = Code::kUnavailable,
                                       .what = "port " + std::to_string(request_.port) + ": " +
                                               read.error().what});
    if (!*read) return inside_watch_.Arm(Ready::kReadable);
    AnswerHead& head = **read;
    head_.erase(0, head.size);
    if (head.status == 101) return BecomeRelay(std::move(head));
    if (head.status >= 200) return BeginBody(std::move(head));
    if (++interims_ > kMaxInterims)
      return Answer(kBadGateway, Error{.code = Code::kUnavailable,
                                       .what = "port " + std::to_string(request_.port) +
                                               " puts off its answer for ever"});
    if (!request_.ask.http_1_0) PassInterim(head.text);
  }
}

// Nobody has to have a 1xx: one that does not fit is left out, but not in the middle.
void ProxyExchange::PassInterim(const std::string& text) {
  if (!interim_.empty()) return;
  const ssize_t count = ::send(request_.connection.socket.get(), text.data(), text.size(),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count > 0) interim_ = text.substr(static_cast<size_t>(count));
}

void ProxyExchange::BeginBody(AnswerHead head) {
  timer_.Cancel();
  state_ = State::kBody;
  down_.emplace(inside_.get(), request_.connection.socket.get());
  down_->Prepend(interim_ + head.text);
  if (head.framing == BodyFraming::kNone) down_->BoundBytes(0);
  if (head.framing == BodyFraming::kLength) down_->BoundBytes(head.length);
  if (head.framing == BodyFraming::kChunked) down_->BoundChunks();
  // The head was sound: it goes out even when the first bytes of its body are not.
  if (!down_->Feed(head_).has_value()) return Over();
  RunDown();
}

void ProxyExchange::BecomeRelay(AnswerHead head) {
  if (!up_done_)
    return Answer(kBadGateway, Error{.code = Code::kUnavailable,
                                     .what = "it changes the protocol before it was asked"});
  timer_.Cancel();
  client_watch_.Reset();
  inside_watch_.Reset();
  const auto slot = std::make_shared<std::weak_ptr<Relay>>();
  auto relay = std::make_shared<Relay>(
      thread_, Relay::Ends{.client = std::move(request_.connection.socket),
                           .inside = std::move(inside_),
                           .to_client = interim_ + head.text + head_,
                           .to_inside = std::move(request_.connection.buffered),
                           .moved =
                               [counters = counters_](uint64_t up, uint64_t down) {
                                 counters->sent += up;
                                 counters->received += down;
                               },
                           .ended =
                               [&group = group_, slot, counters = counters_] {
                                 --counters->open;
                                 if (const auto self = slot->lock()) group.Erase(self);
                               }});
  *slot = relay;
  ++counters_->open;  // Over() takes this one's own away
  group_.Insert(relay);
  relay->Start();
  Over();
}

void ProxyExchange::RunDown() {
  if (!down_ || state_ != State::kBody) return;
  const uint64_t before = down_->moved();
  const MoveState state = down_->Run(thread_.scratch());
  const bool moved = down_->moved() != before;
  Tell();
  if (state != MoveState::kNeedsTo) timer_.Cancel();
  switch (state) {
    case MoveState::kNeedsFrom:
      return inside_watch_.Arm(Ready::kReadable);
    case MoveState::kNeedsTo:
      if (moved || !timer_.running()) RestartTimer();
      return client_watch_.Arm(Ready::kWritable);
    case MoveState::kAgain:
      return Soon(&ProxyExchange::RunDown);
    case MoveState::kEnded:
      return BeginDraining();
    case MoveState::kFromFailed:  // the client sees that it is cut
    case MoveState::kToFailed:
      return Over();
  }
}

void ProxyExchange::Answer(int status, Error error) {
  Reply reply = JsonReply(status, ErrorJson(error));
  std::string text = ResponseHead({.status = reply.status,
                                   .content_type = reply.content_type,
                                   .framing = ContentLengthLine(reply.body.size()),
                                   .connection = Connection::kClose});
  if (!request_.ask.head_only) text.append(reply.body);
  AnswerText(std::move(text));
}

void ProxyExchange::AnswerText(std::string text) {
  timer_.Cancel();
  inside_watch_.Reset();
  inside_.reset();
  state_ = State::kBody;
  down_.emplace(-1, request_.connection.socket.get());
  down_->Prepend(interim_ + text);
  down_->BoundBytes(0);
  RunDown();
}

// What the client still sends is thrown away, so that it gets to read the answer.
void ProxyExchange::BeginDraining() {
  inside_watch_.Reset();
  inside_.reset();
  state_ = State::kDraining;
  ::shutdown(request_.connection.socket.get(), SHUT_WR);
  timer_.Start(thread_.loop(), kDrainTime, [this] {
    const auto held = shared_from_this();
    Over();
  });
  client_watch_.Arm(Ready::kReadable);
}

void ProxyExchange::Drain() {
  std::string& scratch = thread_.scratch();
  const ssize_t count =
      ::recv(request_.connection.socket.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count > 0) drained_ += static_cast<size_t>(count);
  if (count == 0 || (count < 0 && !Again(errno)) || drained_ > kMaxDrainedBytes) return Over();
  client_watch_.Arm(Ready::kReadable);
}

void ProxyExchange::RestartTimer() {
  timer_.Start(thread_.loop(), request_.patience, [this] {
    const auto held = shared_from_this();
    OnTimeout();
  });
}

void ProxyExchange::OnTimeout() {
  if (state_ != State::kHead) return Over();  // an answer nobody fetches
  Answer(kGatewayTimeout,
         Error{.code = Code::kUnavailable,
               .what = "port " + std::to_string(request_.port) + " did not answer in time"});
}

void ProxyExchange::Tell() {
  if (up_) counters_->sent += up_->moved() - std::exchange(up_told_, up_->moved());
  if (down_) counters_->received += down_->moved() - std::exchange(down_told_, down_->moved());
}

void ProxyExchange::Release() {
  state_ = State::kOver;
  dialer_.reset();
  timer_.Cancel();
  client_watch_.Reset();
  inside_watch_.Reset();
  inside_.reset();
  request_.connection.socket.reset();
  --counters_->open;
}

void ProxyExchange::Abort() {
  if (state_ != State::kOver) Release();
}

void ProxyExchange::Over() {
  if (state_ == State::kOver) return;
  const auto self = shared_from_this();
  Release();
  group_.Erase(self);
}

}  // namespace hutch::daemon
