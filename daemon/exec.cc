#include "daemon/exec.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

double Milli(const struct timeval& time) {
  return static_cast<double>(time.tv_sec) * 1000 + static_cast<double>(time.tv_usec) / 1000;
}

// One buffer for all reads of the loop's thread.
char* ReadBuffer() {
  static const std::unique_ptr<char[]> buffer(new char[kReadChunkBytes]);
  return buffer.get();
}

Status GiveTo(const Pipe& pipe, uint32_t host_id_start, const oci::User& user) {
  // Both ends share one inode. Owned by the command's user, /dev/stdout can be opened again inside.
  if (::fchown(pipe.write.get(), host_id_start + user.uid, host_id_start + user.gid) != 0)
    return SysError(errno, "chown of a pipe");
  return OkStatus();
}

Status SetNonBlocking(int fd) {
  if (::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return SysError(errno, "fcntl of a pipe");
  return OkStatus();
}

}  // namespace

SandboxCounters ReadCounters(const runtime::Sandbox& sandbox) {
  const cgroups::Events events = sandbox.group().ReadEvents();
  return SandboxCounters{.oom_kills = events.oom_kills, .pids_limit_hits = events.pids_limit_hits};
}

Exec::Exec(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec, Done done)
    : place_(place),
      done_(std::move(done)),
      out_(fields.max_output_bytes),
      err_(fields.max_output_bytes),
      spec_(std::move(spec)),
      timeout_seconds_(fields.timeout_seconds),
      stdin_bytes_(std::move(fields.stdin_bytes)) {}

Status Exec::OpenPipes(const oci::User& user, Pipe* in, Pipe* out, Pipe* err) {
  const uint32_t host_id_start = place_.sandbox.host_id_start();
  for (Pipe* pipe : {out, err}) {
    ASSIGN_OR_RETURN(*pipe, MakePipe());
    RETURN_IF_ERROR(GiveTo(*pipe, host_id_start, user));
    RETURN_IF_ERROR(SetNonBlocking(pipe->read.get()));
  }
  if (stdin_bytes_.empty()) return OkStatus();
  ASSIGN_OR_RETURN(*in, MakePipe());
  RETURN_IF_ERROR(GiveTo(*in, host_id_start, user));
  return SetNonBlocking(in->write.get());
}

std::shared_ptr<Exec> Exec::Make(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec,
                                 Done done) {
  return std::shared_ptr<Exec>(
      new Exec(place, std::move(fields), std::move(spec), std::move(done)));
}

Result<std::shared_ptr<Exec>> Exec::Start(ExecPlace& place, ExecFields fields,
                                          oci::ProcessSpec spec, Done done) {
  std::shared_ptr<Exec> exec = Make(place, std::move(fields), std::move(spec), std::move(done));
  RETURN_IF_ERROR(exec->Launch());
  return exec;
}

Status Exec::Launch() {
  Pipe in, out, err;
  RETURN_IF_ERROR(OpenPipes(spec_.user, &in, &out, &err));
  runtime::ProcessRequest request{.spec = std::move(spec_),
                                  .stdin_fd = in.read.get(),
                                  .stdout_fd = out.write.get(),
                                  .stderr_fd = err.write.get()};
  before_ = place_.counters;
  start_ = Loop::Now();
  ASSIGN_OR_RETURN(process_, place_.sandbox.StartProcess(request));
  out_.fd = std::move(out.read);
  err_.fd = std::move(err.read);
  stdin_fd_ = std::move(in.write);
  WatchOutput(out_);
  WatchOutput(err_);
  WatchDeadline(timeout_seconds_);
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
    const auto self = shared_from_this();
    ReadOutput(stream, kReadPerTurnBytes);
    stream.watch.Arm(Ready::kReadable);
  });
  stream.watch.Arm(Ready::kReadable);
}

void Exec::WatchDeadline(double timeout_seconds) {
  if (timeout_seconds <= 0) return;
  const auto delay = Milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  timer_.Start(place_.loop, delay, [this] {
    const auto self = shared_from_this();
    TimeOut();
  });
}

// Until it is empty, at its end, or max_bytes have been read.
void Exec::ReadOutput(Stream& stream, size_t max_bytes) {
  size_t total = 0;
  while (stream.fd.valid() && total < max_bytes) {
    const ssize_t count = ::read(stream.fd.get(), ReadBuffer(), kReadChunkBytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      stream.watch.Reset();
      stream.fd.reset();
      return;
    }
    stream.buffer.Append({ReadBuffer(), static_cast<size_t>(count)});
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
  if (answered()) return;
  if (facts_.timed_out || facts_.kill_asked) {
    // Killed long ago and still not gone: in the kernel, waiting for something. The answer does not
    // wait with it.
    Log(LogLevel::kWarning, "a killed command does not end",
        {{"sandbox", place_.sandbox.id()}, {"process", std::to_string(process_)}});
    runtime::AgentEvent event{.kind = runtime::AgentEvent::Kind::kExited, .process = process_};
    event.wait_status = SIGKILL;
    return Exited(event);
  }
  facts_.timed_out = true;
  SendKill();
}

void Exec::Kill() {
  if (answered() || facts_.timed_out || facts_.kill_asked) return;
  facts_.kill_asked = true;
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
  facts_.wait_status = event.wait_status;
  ExecResult result;
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Loop::Now() - start_);
  result.duration_ms = static_cast<double>(took.count()) / 1000;
  // What is in the pipes now was written before the end, or by children that outlive it: no waiting
  // for their end of file.
  ReadOutput(out_, kDrainBytes);
  ReadOutput(err_, kDrainBytes);
  ReadStats(event, &result);
  Finish(std::move(result));
}

void Exec::ReadStats(const runtime::AgentEvent& event, ExecResult* result) {
  result->usage = {
      .memory_peak_bytes = static_cast<uint64_t>(std::max(0L, event.usage.ru_maxrss)) * 1024,
      .cpu_user_ms = Milli(event.usage.ru_utime),
      .cpu_system_ms = Milli(event.usage.ru_stime)};
  if (place_.mode == cgroups::Mode::kHybrid) {
    place_.counters = ReadCounters(place_.sandbox);
    facts_.oom_killed = place_.counters.oom_kills > before_.oom_kills;
    result->pids_limit_hit = place_.counters.pids_limit_hits > before_.pids_limit_hits;
    return;
  }
  const cgroups::ProcessGroup* group = place_.sandbox.ProcessCgroup(process_);
  if (group == nullptr) return;
  const cgroups::Events events = group->ReadEvents();
  const cgroups::Stats stats = group->ReadUsage();
  facts_.oom_killed = events.oom_kills > 0;
  // Since Linux 6.11 a refused fork counts where the limit is, which is the sandbox's group.
  place_.counters = ReadCounters(place_.sandbox);
  result->pids_limit_hit =
      events.pids_limit_hits > 0 || place_.counters.pids_limit_hits > before_.pids_limit_hits;
  Usage& usage = result->usage;
  if (stats.memory_peak_bytes) usage.memory_peak_bytes = *stats.memory_peak_bytes;
  if (stats.cpu_user_us) usage.cpu_user_ms = static_cast<double>(*stats.cpu_user_us) / 1000;
  if (stats.cpu_system_us) usage.cpu_system_ms = static_cast<double>(*stats.cpu_system_us) / 1000;
}

void Exec::SandboxEnded() {
  if (answered()) return;
  facts_.sandbox_ended = true;
  if (process_ == 0) return Fail(Error{.code = Code::kBadState, .what = "the sandbox ended"});
  runtime::AgentEvent event{.kind = runtime::AgentEvent::Kind::kExited, .process = process_};
  event.wait_status = SIGKILL;
  Exited(event);
}

void Exec::Finish(ExecResult result) {
  timer_.Cancel();
  stdin_watch_.Reset();
  stdin_fd_.reset();
  result.facts = facts_;
  result.process = process_;
  result.out = out_.buffer.Take();
  result.err = err_.buffer.Take();
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
