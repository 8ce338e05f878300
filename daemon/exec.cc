#include "daemon/exec.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "daemon/limits.h"
#include "daemon/process_pipes.h"

namespace hutch::daemon {
namespace {

// One buffer for all reads of the loop's thread.
char* ReadBuffer() {
  static const std::unique_ptr<char[]> buffer(new char[kReadChunkBytes]);
  return buffer.get();
}

}  // namespace

Exec::Exec(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec, Done done, ExecSink sink)
    : place_(place),
      done_(std::move(done)),
      sink_(std::move(sink)),
      encoding_(fields.encoding),
      out_(StreamId::kStdout, sink_.on_output ? 0 : fields.max_output_bytes),
      err_(StreamId::kStderr, sink_.on_output ? 0 : fields.max_output_bytes),
      spec_(std::move(spec)),
      timeout_seconds_(fields.timeout_seconds),
      merge_output_(fields.merge_output),
      stdin_bytes_(std::move(fields.stdin_bytes)) {}

Status Exec::OpenPipes(const oci::User& user, bool merge, Pipe* in, Pipe* out, Pipe* err) {
  const uint32_t host_id_start = place_.sandbox.host_id_start();
  ASSIGN_OR_RETURN(*out, MakeOutputPipe(host_id_start, user));
  if (!merge) {
    ASSIGN_OR_RETURN(*err, MakeOutputPipe(host_id_start, user));
  }
  if (stdin_bytes_.empty()) return OkStatus();
  ASSIGN_OR_RETURN(*in, MakeInputPipe(host_id_start, user));
  return OkStatus();
}

std::shared_ptr<Exec> Exec::Make(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec,
                                 Done done, ExecSink sink) {
  return std::shared_ptr<Exec>(
      new Exec(place, std::move(fields), std::move(spec), std::move(done), std::move(sink)));
}

Status Exec::Launch() {
  Pipe in, out, err;
  RETURN_IF_ERROR(OpenPipes(spec_.user, merge_output_, &in, &out, &err));
  const runtime::ProcessRequest request{
      .spec = std::move(spec_),
      .stdin_fd = in.read.get(),
      .stdout_fd = out.write.get(),
      .stderr_fd = merge_output_ ? out.write.get() : err.write.get()};
  before_ = place_.counters;
  start_ = Loop::Now();
  ASSIGN_OR_RETURN(process_, place_.sandbox.StartProcess(request));
  if (sink_.on_started) sink_.on_started(process_);
  out_.fd = std::move(out.read);
  err_.fd = std::move(err.read);
  stdin_fd_ = std::move(in.write);
  WatchOutput(out_);
  if (err_.fd.valid()) WatchOutput(err_);
  if (timeout_seconds_ > 0)
    WatchDeadline(Milliseconds(static_cast<int64_t>(timeout_seconds_ * 1000)));
  if (stdin_fd_.valid()) FeedStdin();
  return OkStatus();
}

void Exec::Fail(Error error) {
  timer_.Cancel();
  const Done done = std::exchange(done_, nullptr);
  if (done) done(std::move(error));
}

void Exec::WatchOutput(Stream& stream) {
  stream.watch = place_.loop.Add(stream.fd.get(), [this, &stream](Ready) {
    RunPaced(place_, [weak = weak_from_this(), &stream] {
      const auto self = weak.lock();
      if (self == nullptr || self->exited_) return;
      self->ReadOutput(stream, kReadPerTurnBytes);
      if (!self->exited_ && !self->congested()) stream.watch.Arm(Ready::kReadable);
    });
  });
  stream.watch.Arm(Ready::kReadable);
}

void Exec::WatchDeadline(Milliseconds left) {
  if (place_.paused) {
    left_ = left;
    return;
  }
  deadline_ = Loop::Now() + left;
  timer_.StartAt(place_.loop, *deadline_, [this] {
    const auto self = shared_from_this();
    TimeOut();
  });
}

// One that is being killed ends all the same: that is waited for as ever.
void Exec::Paused() {
  if (!deadline_ || answered() || exited_ || end_.facts.timed_out || end_.facts.kill_asked) return;
  timer_.Cancel();
  left_ = std::max(std::chrono::ceil<Milliseconds>(*deadline_ - Loop::Now()), Milliseconds(0));
}

void Exec::Continued() {
  if (!left_) return;
  const Milliseconds left = *std::exchange(left_, std::nullopt);
  if (answered() || exited_ || end_.facts.timed_out || end_.facts.kill_asked) return;
  WatchDeadline(left);
}

void Exec::Resume() {
  const auto self = shared_from_this();
  if (answered() || congested()) return;
  if (exited_) {
    Drain();
    if (answered() && place_.finished) place_.finished(process_);
    return;
  }
  for (Stream* stream : {&out_, &err_})
    if (stream->fd.valid()) stream->watch.Arm(Ready::kReadable);
}

// Until it is empty, at its end, max_bytes have been read, or the sink is behind.
void Exec::ReadOutput(Stream& stream, size_t max_bytes) {
  size_t total = 0;
  while (stream.fd.valid() && total < max_bytes && !congested()) {
    const ssize_t count = ::read(stream.fd.get(), ReadBuffer(), kReadChunkBytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      stream.watch.Reset();
      stream.fd.reset();
      return;
    }
    stream.buffer.Append({ReadBuffer(), static_cast<size_t>(count)});
    if (sink_.on_output) sink_.on_output(stream.id, {ReadBuffer(), static_cast<size_t>(count)});
    total += static_cast<size_t>(count);
    if (static_cast<size_t>(count) < kReadChunkBytes)
      return;  // it was empty then; whatever follows wakes the watch
  }
}

// The command may close its input early (EPIPE): its business.
void Exec::FeedStdin() {
  while (stdin_done_ < stdin_bytes_.size()) {
    const ssize_t count = ::write(stdin_fd_.get(), stdin_bytes_.data() + stdin_done_,
                                  stdin_bytes_.size() - stdin_done_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (!stdin_watch_.active())
        stdin_watch_ = place_.loop.Add(stdin_fd_.get(), [this](Ready) {
          const auto self = shared_from_this();
          FeedStdin();
        });
      return stdin_watch_.Arm(Ready::kWritable);
    }
    if (count < 0) break;
    stdin_done_ += static_cast<size_t>(count);
  }
  stdin_watch_.Reset();
  stdin_fd_.reset();
}

void Exec::TimeOut() {
  if (answered() || exited_) return;
  if (end_.facts.timed_out || end_.facts.kill_asked) {
    // Killed long ago and still not gone: in the kernel, waiting for something. The answer does not
    // wait with it.
    Log(LogLevel::kWarning, "a killed command does not end",
        {{"sandbox", place_.sandbox.id()}, {"process", std::to_string(process_)}});
    runtime::AgentEvent event{.kind = runtime::AgentEvent::Kind::kExited, .process = process_};
    event.wait_status = SIGKILL;
    return Exited(event);
  }
  end_.facts.timed_out = true;
  SendKill();
}

void Exec::Kill() {
  if (answered() || exited_ || end_.facts.timed_out || end_.facts.kill_asked) return;
  end_.facts.kill_asked = true;
  if (process_ == 0)
    return Fail(Error{.code = Code::kUnavailable, .what = "it was killed before it started"});
  SendKill();
}

void Exec::SendKill() {
  const Status killed = place_.sandbox.KillProcess(process_);
  if (!killed.has_value())
    Log(LogLevel::kError, "cannot kill a command",
        {{"sandbox", place_.sandbox.id()}, {"error", killed.error().ToString()}});
  timer_.Start(place_.loop, kKillDeadline, [this] {
    const auto self = shared_from_this();
    TimeOut();
  });
}

void Exec::OnEvent(const runtime::AgentEvent& event) {
  if (answered()) return;
  switch (event.kind) {
    case runtime::AgentEvent::Kind::kExited:
      return Exited(event);
    case runtime::AgentEvent::Kind::kStartFailed:
      return Fail(event.error.value_or(
          Error{.code = Code::kInternal, .what = "the command could not be started"}));
    default:
      return;
  }
}

void Exec::Exited(const runtime::AgentEvent& event) {
  if (exited_) return;
  exited_ = true;
  timer_.Cancel();
  stdin_watch_.Reset();
  stdin_fd_.reset();
  end_.facts.wait_status = event.wait_status;
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Loop::Now() - start_);
  end_.duration_ms = static_cast<double>(took.count()) / 1000;
  ReadEndCounts(place_, event, before_, &end_);
  Drain();
}

// What is in the pipes now was written before the end, or by children that outlive it: no waiting
// for their end of file.
void Exec::Drain() {
  ReadOutput(out_, kDrainBytes);
  ReadOutput(err_, kDrainBytes);
  if (!congested() || end_.facts.sandbox_ended) Finish();
}

void Exec::SandboxEnded() {
  if (answered()) return;
  end_.facts.sandbox_ended = true;
  if (exited_) return Finish();
  if (process_ == 0) return Fail(Error{.code = Code::kBadState, .what = "the sandbox ended"});
  runtime::AgentEvent event{.kind = runtime::AgentEvent::Kind::kExited, .process = process_};
  event.wait_status = SIGKILL;
  Exited(event);
}

void Exec::Finish() {
  ExecResult result{.end = end_,
                    .out = out_.buffer.Take(encoding_),
                    .err = err_.buffer.Take(encoding_),
                    .process = process_,
                    .files = {}};
  Done done = std::exchange(done_, nullptr);
  const auto before = std::exchange(files_before_, nullptr);
  if (before == nullptr || place_.tracker == nullptr) return done(std::move(result));
  const auto shared = std::make_shared<ExecResult>(std::move(result));
  place_.tracker->End(before, place_.others(process_),
                      [shared, done = std::move(done)](std::optional<rootfs::ChangeSet> files) {
                        shared->files = std::move(files);
                        done(std::move(*shared));
                      });
}

std::vector<UniqueFd> Exec::TakePipes() {
  std::vector<UniqueFd> pipes;
  for (Stream* stream : {&out_, &err_}) {
    stream->watch.Reset();
    if (stream->fd.valid()) pipes.push_back(std::move(stream->fd));
  }
  return pipes;
}

}  // namespace hutch::daemon
