#include "daemon/stream_copy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/http_head.h"

namespace hutch::daemon {
namespace {

// More than the default of 64 KiB: fewer turns for the same bytes. Bounded by the connections.
constexpr int kPipeBytes = 256 * 1024;
constexpr unsigned kSpliceFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;

Error ClientGone() {
  return Error{.code = Code::kUnavailable, .what = "the client closed the connection"};
}

bool Again(int sys) { return sys == EAGAIN || sys == EINTR; }

void PreparePipe(int pipe) {
  const int flags = ::fcntl(pipe, F_GETFL);
  // A descriptor that cannot be made non-blocking fails in its watch or with the first byte.
  if (flags >= 0) ::fcntl(pipe, F_SETFL, flags | O_NONBLOCK);
  // Where the user's pages for pipes are used up it stays as it is.
  ::fcntl(pipe, F_SETPIPE_SZ, kPipeBytes);
}

short Poll(int fd, short events) {
  struct pollfd one {
    .fd = fd, .events = events, .revents = 0
  };
  return ::poll(&one, 1, 0) > 0 ? one.revents : static_cast<short>(0);
}

Watch WatchPipe(const CopyPort& port, int pipe) {
  return port.loop.Add(pipe, [call = port.on_pipe_ready](Ready) { call(); });
}

}  // namespace

BodyReceiver::BodyReceiver(CopyPort port, HttpParser& parser, UniqueFd pipe)
    : port_(std::move(port)), parser_(parser), pipe_(std::move(pipe)) {
  PreparePipe(pipe_.get());
  watch_ = WatchPipe(port_, pipe_.get());
}

Result<CopyState> BodyReceiver::Run() {
  if (!watch_.active()) return SysError(EINVAL, "watch the pipe of a body");
  for (size_t turn = 0; turn < kReadPerTurnBytes;) {
    if (pending_.empty() && parser_.body_buffered()) RETURN_IF_ERROR(parser_.ReadBody(&pending_));
    if (pending_.empty() && parser_.body_done()) return CopyState::kDone;
    ASSIGN_OR_RETURN(const size_t count, pending_.empty() ? Fill() : Drain());
    if (count == 0) return Wait();
    turn += count;
  }
  return CopyState::kAgain;
}

Result<size_t> BodyReceiver::SpliceIn() {
  const size_t count =
      static_cast<size_t>(std::min<uint64_t>(*parser_.body_left(), kReadPerTurnBytes));
  const ssize_t done = ::splice(port_.socket, nullptr, pipe_.get(), nullptr, count, kSpliceFlags);
  if (done > 0) {
    parser_.SkipBody(static_cast<uint64_t>(done));
    moved_ += static_cast<uint64_t>(done);
    return static_cast<size_t>(done);
  }
  if (done == 0) return ClientGone();
  if (Again(errno)) return size_t{0};
  if (errno == ECONNRESET) return ClientGone();
  if (errno != EINVAL) return SysError(errno, "splice a body into its pipe");
  can_splice_ = false;
  return Fill();
}

Result<size_t> BodyReceiver::Fill() {
  if (can_splice_ && parser_.body_left()) return SpliceIn();
  const ssize_t count =
      ::recv(port_.socket, port_.scratch.data(), port_.scratch.size(), MSG_DONTWAIT);
  if (count < 0 && Again(errno)) return size_t{0};
  if (count <= 0) return ClientGone();
  parser_.Feed({port_.scratch.data(), static_cast<size_t>(count)});
  return static_cast<size_t>(count);
}

Result<size_t> BodyReceiver::Drain() {
  const ssize_t count =
      ::write(pipe_.get(), pending_.data() + pending_done_, pending_.size() - pending_done_);
  if (count < 0 && Again(errno)) return size_t{0};
  if (count < 0) return SysError(errno, "write a body into its pipe");
  moved_ += static_cast<uint64_t>(count);
  pending_done_ += static_cast<size_t>(count);
  if (pending_done_ == pending_.size()) {
    pending_.clear();
    pending_done_ = 0;
  }
  return static_cast<size_t>(count);
}

// splice(2) does not tell which side it would have to wait for.
Result<CopyState> BodyReceiver::Wait() {
  const short pipe = Poll(pipe_.get(), POLLOUT);
  if ((pipe & POLLERR) != 0) return SysError(EPIPE, "write a body into its pipe");
  if ((pipe & POLLOUT) == 0) {
    watch_.Arm(Ready::kWritable);
    return CopyState::kOnPipe;
  }
  watch_.Arm(Ready::kPriority);  // its reader going away while the client is silent
  return CopyState::kOnSocket;
}

BodySender::BodySender(CopyPort port, std::string head, std::optional<uint64_t> length,
                       CopyFraming framing, UniqueFd pipe)
    : port_(std::move(port)),
      pending_(std::move(head)),
      left_(length),
      framing_(framing),
      pipe_(std::move(pipe)),
      can_splice_(framing == CopyFraming::kPlain) {
  PreparePipe(pipe_.get());
  watch_ = WatchPipe(port_, pipe_.get());
}

Result<CopyState> BodySender::Run() {
  if (!watch_.active()) return SysError(EINVAL, "watch the pipe of an answer");
  for (size_t turn = 0; turn < kReadPerTurnBytes;) {
    if (left_ && *left_ == 0) ended_ = true;
    if (pending_.empty() && ended_) return CopyState::kDone;
    const bool drains = !pending_.empty();
    ASSIGN_OR_RETURN(const size_t count, drains ? Drain() : Fill());
    if (count == 0 && (drains || !ended_)) return Wait();
    turn += count;
  }
  return CopyState::kAgain;
}

Result<size_t> BodySender::Fill() {
  const size_t count =
      static_cast<size_t>(std::min<uint64_t>(left_.value_or(kReadPerTurnBytes), kReadPerTurnBytes));
  ssize_t done = -1;
  if (can_splice_) {
    done = ::splice(pipe_.get(), nullptr, port_.socket, nullptr, count, kSpliceFlags);
    if (done < 0 && errno == EINVAL) can_splice_ = false;
  }
  if (!can_splice_) return ReadPipe();
  if (done < 0 && Again(errno)) return size_t{0};
  if (done < 0 && (errno == EPIPE || errno == ECONNRESET)) return ClientGone();
  if (done < 0) return SysError(errno, "splice an answer out of its pipe");
  if (done == 0 && left_) return SysError(EPIPE, "the answer ended early");
  if (done == 0) ended_ = true;
  if (left_) *left_ -= static_cast<uint64_t>(done);
  moved_ += static_cast<uint64_t>(done);
  return static_cast<size_t>(done);
}

Result<size_t> BodySender::ReadPipe() {
  const size_t most =
      static_cast<size_t>(std::min<uint64_t>(left_.value_or(UINT64_MAX), port_.scratch.size()));
  const ssize_t count = ::read(pipe_.get(), port_.scratch.data(), most);
  if (count < 0 && Again(errno)) return size_t{0};
  if (count < 0) return SysError(errno, "read an answer from its pipe");
  if (count == 0 && left_) return SysError(EPIPE, "the answer ended early");
  const size_t size = static_cast<size_t>(count);
  if (left_) *left_ -= size;
  moved_ += size;
  ended_ = size == 0;
  const bool chunked = framing_ == CopyFraming::kChunked;
  if (chunked) pending_.append(ChunkSizeLine(size));  // of 0 at the end
  pending_.append(port_.scratch, 0, size);
  if (chunked) pending_.append("\r\n");
  return size;
}

Result<size_t> BodySender::Drain() {
  const ssize_t count = ::send(port_.socket, pending_.data() + pending_done_,
                               pending_.size() - pending_done_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0 && Again(errno)) return size_t{0};
  if (count < 0) return ClientGone();
  pending_done_ += static_cast<size_t>(count);
  if (pending_done_ == pending_.size()) {
    pending_.clear();
    pending_done_ = 0;
  }
  return static_cast<size_t>(count);
}

Result<CopyState> BodySender::Wait() {
  if (!pending_.empty() || (Poll(pipe_.get(), POLLIN) & (POLLIN | POLLHUP)) != 0)
    return CopyState::kOnSocket;
  watch_.Arm(Ready::kReadable);
  return CopyState::kOnPipe;
}

}  // namespace hutch::daemon
