#include "network/egress/pump.h"

#include <algorithm>

namespace hutch::network {

Pump::State Pump::Flush() {
  while (!pending_.empty()) {
    const ssize_t n = to_.Write(pending_.data(), pending_.size());
    if (n == -EAGAIN) return State::kWaiting;
    if (n <= 0) return State::kFailed;
    pending_.erase(0, static_cast<size_t>(n));
  }
  if (body_ != nullptr && body_->done()) return State::kDone;
  return ended_ ? State::kEnd : State::kYield;
}

// Bytes of the source that are counted already: writes what it can, keeps the rest.
Pump::State Pump::Pass(std::string_view bytes) {
  tenant_.Count(direction_, bytes.size());
  const ssize_t n = to_.Write(bytes.data(), bytes.size());
  if (n < 0 && n != -EAGAIN) return State::kFailed;
  pending_ = std::string(bytes.substr(n > 0 ? static_cast<size_t>(n) : 0));
  return State::kYield;
}

Pump::State Pump::Move(std::span<char> block) {
  const size_t wanted = std::min(block.size(), from_.in.empty() ? block.size() : from_.in.size());
  const size_t allowed = tenant_.Allowance(direction_, wanted);
  if (allowed == 0) return tenant_.spent() ? State::kSpent : State::kPaused;
  size_t size = 0;
  if (!from_.in.empty()) {
    size = from_.in.copy(block.data(), allowed);
    from_.in.erase(0, size);
  } else {
    const ssize_t n = from_.Read(block.data(), allowed);
    if (n == -EAGAIN) return State::kWaiting;
    if (n < 0) return State::kFailed;
    if (n == 0) {
      if (body_ != nullptr && !body_->until_end()) return State::kFailed;
      ended_ = true;
      return Flush();
    }
    size = static_cast<size_t>(n);
  }
  const std::string_view bytes(block.data(), size);
  if (body_ == nullptr) return Pass(bytes);
  const size_t taken = body_->Take(bytes);
  if (body_->bad()) return State::kBad;
  from_.in.insert(0, bytes.substr(taken));
  return Pass(bytes.substr(0, taken));
}

Pump::State Pump::Run(std::span<char> block) {
  for (int i = 0; i < kBlocksPerTurn; ++i) {
    State state = Flush();
    if (state != State::kYield) return state;
    state = Move(block);
    if (state != State::kYield) return state;
  }
  const State state = Flush();
  return state;
}

}  // namespace hutch::network
