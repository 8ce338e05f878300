#include "network/egress/loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace hutch::network {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;
using boost::system::error_code;

constexpr Descriptor::wait_type kWaits[] = {Descriptor::wait_read, Descriptor::wait_write};

}  // namespace

struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(asio::io_context& context, std::function<void(Ready)> f)
      : descriptor(context), callback(std::move(f)) {}

  void Arm(Ready ready) {
    const auto index = static_cast<size_t>(ready);
    if (!alive || armed[index]) return;
    armed[index] = true;
    descriptor.async_wait(kWaits[index],
                          [self = shared_from_this(), ready, index](const error_code& error) {
                            self->armed[index] = false;
                            if (!self->alive || error == asio::error::operation_aborted) return;
                            self->callback(ready);
                          });
  }

  Descriptor descriptor;
  std::function<void(Ready)> callback;
  bool alive = true;
  bool armed[2] = {};
};

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  state_ = std::move(other.state_);
  return *this;
}

void Watch::Arm(Ready ready) {
  if (state_ != nullptr) state_->Arm(ready);
}

void Watch::Reset() {
  if (state_ == nullptr) return;
  const std::shared_ptr<State> state = std::move(state_);
  state_ = nullptr;
  state->alive = false;
  if (state->descriptor.is_open()) state->descriptor.release();  // borrowed: never closed here
}

struct Loop::Impl {
  Impl() : context(1), work(asio::make_work_guard(context)) {}
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work;
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

Watch Loop::Add(int fd, std::function<void(Ready)> callback) {
  auto state = std::make_shared<Watch::State>(impl_->context, std::move(callback));
  error_code error;
  state->descriptor.assign(fd, error);
  if (error) return Watch();
  return Watch(std::move(state));
}

void Loop::Post(std::function<void()> task) { asio::post(impl_->context, std::move(task)); }
void Loop::Run() {
  impl_->context.restart();
  impl_->context.run();
}
void Loop::RunPending() {
  impl_->context.restart();
  impl_->context.poll();
}
void Loop::Stop() { impl_->context.stop(); }

struct Timer::State {
  explicit State(asio::io_context& context) : timer(context) {}
  asio::steady_timer timer;
};

void Timer::Start(Milliseconds delay, std::function<void()> callback) {
  Cancel();
  state_ = std::make_shared<State>(loop_.impl_->context);
  state_->timer.expires_after(delay);
  state_->timer.async_wait([this, weak = std::weak_ptr<State>(state_),
                            f = std::move(callback)](const error_code& error) {
    if (error || weak.expired()) return;  // cancelled: this timer may be gone as well
    state_ = nullptr;                     // first: the callback may start or destroy it
    f();
  });
}

void Timer::Cancel() { state_ = nullptr; }

}  // namespace hutch::network
