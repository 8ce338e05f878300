#include "daemon/byte_mover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr unsigned kSpliceFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
constexpr size_t kSpliceBytes = 64 * 1024;  // a pipe's capacity

bool Again(int sys) { return sys == EAGAIN || sys == EINTR; }

}  // namespace

bool ByteMover::AtBound() const {
  return ended_ || (left_ && *left_ == 0) || (chunks_ && chunks_->done());
}

Status ByteMover::Feed(std::string_view bytes) {
  size_t count = bytes.size();
  if (left_) {
    count = static_cast<size_t>(std::min<uint64_t>(*left_, count));
    *left_ -= count;
  }
  if (chunks_) {
    ASSIGN_OR_RETURN(count, chunks_->Take(bytes));
  }
  pending_.append(bytes.substr(0, count));
  return OkStatus();
}

MoveState ByteMover::Run(std::string& scratch) {
  const uint64_t before = moved_;
  while (moved_ - before < kReadPerTurnBytes) {
    MoveState state = MoveState::kAgain;
    if (!pending_.empty())
      state = Drain();
    else if (in_pipe_ > 0)
      state = DrainPipe();
    else if (AtBound())
      return MoveState::kEnded;
    else
      state = Fill(scratch);
    if (state != MoveState::kAgain) return state;
  }
  return MoveState::kAgain;
}

MoveState ByteMover::Drain() {
  const ssize_t count = ::send(to_, pending_.data() + pending_done_,
                               pending_.size() - pending_done_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0) return Again(errno) ? MoveState::kNeedsTo : MoveState::kToFailed;
  pending_done_ += static_cast<size_t>(count);
  moved_ += static_cast<uint64_t>(count);
  if (pending_done_ == pending_.size()) {
    pending_.clear();
    pending_done_ = 0;
  }
  return MoveState::kAgain;
}

MoveState ByteMover::DrainPipe() {
  const ssize_t count = ::splice(pipe_.read.get(), nullptr, to_, nullptr, in_pipe_, kSpliceFlags);
  if (count < 0) return Again(errno) ? MoveState::kNeedsTo : MoveState::kToFailed;
  in_pipe_ -= static_cast<size_t>(count);
  moved_ += static_cast<uint64_t>(count);
  return MoveState::kAgain;
}

MoveState ByteMover::SpliceIn() {
  const size_t count =
      static_cast<size_t>(std::min<uint64_t>(left_.value_or(kSpliceBytes), kSpliceBytes));
  // The pipe is empty: EAGAIN speaks of the source.
  const ssize_t done = ::splice(from_, nullptr, pipe_.write.get(), nullptr, count, kSpliceFlags);
  if (done < 0) return Again(errno) ? MoveState::kNeedsFrom : MoveState::kFromFailed;
  if (done == 0) {
    ended_ = true;
    return left_ ? MoveState::kFromFailed : MoveState::kAgain;
  }
  in_pipe_ = static_cast<size_t>(done);
  if (left_) *left_ -= in_pipe_;
  return MoveState::kAgain;
}

MoveState ByteMover::Fill(std::string& scratch) {
  if (!chunks_) {
    if (!pipe_.read.valid()) {
      Result<Pipe> made = MakePipe(O_NONBLOCK);
      if (!made.has_value()) return MoveState::kToFailed;
      pipe_ = std::move(*made);
    }
    return SpliceIn();
  }
  const ssize_t count = ::recv(from_, scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (count < 0 && Again(errno)) return MoveState::kNeedsFrom;
  if (count <= 0) return MoveState::kFromFailed;
  const Status fed = Feed({scratch.data(), static_cast<size_t>(count)});
  return fed.has_value() ? MoveState::kAgain : MoveState::kFromFailed;
}

}  // namespace hutch::daemon
