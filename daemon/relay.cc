#include "daemon/relay.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "daemon/limits.h"
#include "network/inside.h"

namespace hutch::daemon {
namespace {

constexpr size_t kScratchBytes = 64 * 1024;
constexpr int kKeepAliveSeconds = 60;

void SetOption(int fd, int level, int option, int value) {
  // A socket that refuses an option works without it.
  ::setsockopt(fd, level, option, &value, sizeof value);
}

bool Gone(int fd) {
  struct pollfd one {
    .fd = fd, .events = 0, .revents = 0
  };
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

RelayThread::RelayThread() : scratch_(kScratchBytes, '\0'), thread_([this] { loop_.Run(); }) {}

void RelayThread::Stop() {
  if (!thread_.joinable()) return;
  loop_.Post([this] { loop_.Stop(); });  // not at once: the thread may be about to begin
  thread_.join();
}

void PrepareTcp(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds / 4);
}

void ResetOnClose(int fd) {
  const struct linger now { .l_onoff = 1, .l_linger = 0 };
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);  // else it is a FIN
}

Relay::Relay(RelayThread& thread, Ends ends)
    : thread_(thread),
      ends_(std::move(ends)),
      up_{.mover = ByteMover(ends_.client.get(), ends_.inside.get()),
          .from = client_watch_,
          .to = inside_watch_,
          .to_fd = ends_.inside.get()},
      down_{.mover = ByteMover(ends_.inside.get(), ends_.client.get()),
            .from = inside_watch_,
            .to = client_watch_,
            .to_fd = ends_.client.get()} {
  up_.mover.Prepend(ends_.to_inside);
  down_.mover.Prepend(ends_.to_client);
}

void Relay::Start() {
  const auto watch = [this](int fd, Watch& one, Way& reads, Way& writes) {
    one = thread_.loop().Add(fd, [this, fd, &one, &reads, &writes](Ready ready) {
      const auto self = shared_from_this();
      OnReady(ready, one, fd, reads, writes);
    });
    one.Arm(Ready::kPriority);
    return one.active();
  };
  if (!watch(ends_.client.get(), client_watch_, up_, down_) ||
      !watch(ends_.inside.get(), inside_watch_, down_, up_)) {
    ResetOnClose(ends_.client.get());
    return Finish();
  }
  RunSoon(up_);
  RunSoon(down_);
}

void Relay::OnReady(Ready ready, Watch& watch, int fd, Way& reads, Way& writes) {
  if (over_) return;
  if (ready == Ready::kReadable) return Run(reads);
  if (ready == Ready::kWritable) return Run(writes);
  if (!Gone(fd)) return watch.Arm(Ready::kPriority);
  // What it sent before it went is still to be passed on.
  Run(reads);
  if (!over_ && reads.done) Finish();
}

void Relay::RunSoon(Way& way) {
  thread_.loop().Post([weak = weak_from_this(), &way] {
    if (const auto self = weak.lock()) self->Run(way);
  });
}

void Relay::Run(Way& way) {
  if (over_ || way.done) return;
  const MoveState state = way.mover.Run(thread_.scratch());
  Tell();
  switch (state) {
    case MoveState::kNeedsFrom:
      return way.from.Arm(Ready::kReadable);
    case MoveState::kNeedsTo:
      return way.to.Arm(Ready::kWritable);
    case MoveState::kAgain:
      return RunSoon(way);
    case MoveState::kFromFailed:
    case MoveState::kToFailed:
      Abort();
      if (const auto ended = std::exchange(ends_.ended, nullptr)) ended();
      return;
    case MoveState::kEnded:
      way.done = true;
      ::shutdown(way.to_fd, SHUT_WR);  // fails only where the other side is gone: noticed there
      if (up_.done && down_.done) Finish();
      return;
  }
}

void Relay::Tell() {
  if (!ends_.moved) return;
  const uint64_t up = up_.mover.moved() - std::exchange(up_.told, up_.mover.moved());
  const uint64_t down = down_.mover.moved() - std::exchange(down_.told, down_.mover.moved());
  if (up + down > 0) ends_.moved(up, down);
}

void Relay::Abort() {
  if (over_) return;
  ResetOnClose(ends_.client.get());
  ResetOnClose(ends_.inside.get());
  over_ = true;
  client_watch_.Reset();
  inside_watch_.Reset();
  ends_.client.reset();
  ends_.inside.reset();
}

void Relay::Finish() {
  over_ = true;
  client_watch_.Reset();
  inside_watch_.Reset();
  ends_.client.reset();
  ends_.inside.reset();
  if (const auto ended = std::exchange(ends_.ended, nullptr)) ended();
}

Dialer::Dialer(Loop& loop, uint16_t port, Done done)
    : loop_(loop), port_(port), done_(std::move(done)) {}

void Dialer::Start(int target) {
  target_ = target;
  timer_.Start(loop_, kConnectInsideTime, [this] {
    Finish(Error{.code = Code::kUnavailable,
                 .what = "port " + std::to_string(port_) + " does not accept connections"});
  });
  TryNext();
}

void Dialer::TryNext() {
  watch_.Reset();
  current_.reset();
  const Error nobody{.code = Code::kNotFound,
                     .what = "nobody listens on port " + std::to_string(port_)};
  if (++attempts_ > 2) return Finish(nobody);
  const int family = attempts_ == 1 ? AF_INET : AF_INET6;
  Result<UniqueFd> made = network::SocketIn(target_, family, SOCK_STREAM | SOCK_NONBLOCK);
  if (!made.has_value() && attempts_ > 1) return Finish(nobody);  // a host may have no IPv6
  if (!made.has_value())
    return Finish(Error{.code = Code::kUnavailable, .what = "the sandbox is gone"});
  current_ = std::move(*made);
  struct sockaddr_in v4 {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port_);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct sockaddr_in6 v6 {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port_);
  v6.sin6_addr = in6addr_loopback;
  const auto* address = attempts_ == 1 ? reinterpret_cast<const struct sockaddr*>(&v4)
                                       : reinterpret_cast<const struct sockaddr*>(&v6);
  const socklen_t size = attempts_ == 1 ? sizeof v4 : sizeof v6;
  if (::connect(current_.get(), address, size) == 0) return Finish(std::move(current_));
  if (errno != EINPROGRESS) return TryNext();
  watch_ = loop_.Add(current_.get(), [this](Ready) { OnReady(); });
  if (!watch_.active()) return TryNext();
  watch_.Arm(Ready::kWritable);
}

void Dialer::OnReady() {
  struct pollfd one {
    .fd = current_.get(), .events = POLLOUT, .revents = 0
  };
  if (::poll(&one, 1, 0) == 0) return watch_.Arm(Ready::kWritable);
  int error = 0;
  socklen_t size = sizeof error;
  const bool asked = ::getsockopt(current_.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0;
  if (!asked || error != 0) return TryNext();
  watch_.Reset();
  Finish(std::move(current_));
}

void Dialer::Finish(Result<UniqueFd> result) {
  timer_.Cancel();
  watch_.Reset();
  if (result.has_value()) PrepareTcp(result->get());
  if (const Done done = std::exchange(done_, nullptr)) done(std::move(result));
}

}  // namespace hutch::daemon
