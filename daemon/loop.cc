#include "daemon/loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace hutch::daemon {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;
using boost::system::error_code;

struct WaitRow {
  Ready ready;
  Descriptor::wait_type type;
};
constexpr WaitRow kWaits[] = {
    {Ready::kReadable, Descriptor::wait_read},
    {Ready::kWritable, Descriptor::wait_write},
    {Ready::kPriority, Descriptor::wait_error},
};

}  // namespace

struct Watch::State : std::enable_shared_from_this<Watch::State> {
  State(asio::io_context& context, std::function<void(Ready)> f)
      : descriptor(context), callback(std::move(f)) {}

  void Arm(Ready ready) {
    const auto index = static_cast<size_t>(ready);
    if (!alive || armed[index]) return;
    armed[index] = true;
    descriptor.async_wait(kWaits[index].type,
                          [self = shared_from_this(), index](const error_code& error) {
                            self->armed[index] = false;
                            if (!self->alive || error == asio::error::operation_aborted) return;
                            self->callback(kWaits[index].ready);
                          });
  }

  Descriptor descriptor;
  std::function<void(Ready)> callback;
  bool alive = true;
  bool armed[3] = {};
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
  // The hint 1 promises one running thread; posting from workers stays safe.
  Impl() : context(1), timer(context), work(asio::make_work_guard(context)) {}

  // The one system timer is moved forward only, so that short-lived deadlines cost nothing; it may
  // fire for a cancelled one.
  void Rearm() {
    const std::optional<SteadyTime> next = timers.NextDeadline();
    if (!next || running_due || (armed_for && *armed_for <= *next)) return;
    armed_for = *next;
    timer.expires_at(*next);
    timer.async_wait([this](const error_code& error) {
      if (error == asio::error::operation_aborted) return;
      armed_for.reset();
      running_due = true;
      timers.RunDue(Now());
      running_due = false;
      Rearm();
    });
  }

  asio::io_context context;
  Timers timers;
  asio::steady_timer timer;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::optional<SteadyTime> armed_for;
  bool running_due = false;
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
void Loop::Stop() { impl_->context.stop(); }
void Loop::RunPending() {
  impl_->context.restart();
  impl_->context.poll();
}
asio::io_context& Loop::context() { return impl_->context; }

Timers::Id Loop::AddTimer(SteadyTime deadline, std::function<void()> callback) {
  const Timers::Id id = impl_->timers.Add(deadline, std::move(callback));
  impl_->Rearm();
  return id;
}

void Loop::CancelTimer(const Timers::Id& id) { impl_->timers.Cancel(id); }

void Timer::Start(Loop& loop, Milliseconds delay, std::function<void()> callback) {
  StartAt(loop, Loop::Now() + delay, std::move(callback));
}

void Timer::StartAt(Loop& loop, SteadyTime deadline, std::function<void()> callback) {
  Cancel();
  loop_ = &loop;
  id_ = loop.AddTimer(deadline, [this, f = std::move(callback)] {
    loop_ = nullptr;  // first: the callback may start or destroy this timer
    f();
  });
}

void Timer::Cancel() {
  if (loop_ == nullptr) return;
  loop_->CancelTimer(id_);
  loop_ = nullptr;
}

}  // namespace hutch::daemon
