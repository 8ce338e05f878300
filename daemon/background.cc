#include "daemon/background.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/fault_point.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/process_pipes.h"

namespace hutch::daemon {
namespace {

constexpr char kRecordName[] = "/process.json";
constexpr size_t kMaxRecordBytes = 8 * 1024 * 1024;

// Where ProcessRequest::kept puts what a later hutchd needs. A terminal's master comes before it.
constexpr size_t kKeptMaster = 0, kKeptHopRead = 1, kKeptHopWrite = 2;  // with a terminal
constexpr size_t kKeptOut = 0, kKeptErr = 1;                            // without

// A descriptor of a pipe with flags of its own: those of one that is shared with the agent are the
// agent's to change, and hutchd must never block.
Result<UniqueFd> OwnEnd(const UniqueFd& shared, int access) {
  return Open("/proc/self/fd/" + std::to_string(shared.get()), access | O_NONBLOCK);
}

// What comes back from the agent: this end of a pipe and nothing else.
Result<UniqueFd> CheckPipe(Result<UniqueFd> fd, int access) {
  if (!fd) return fd;
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return SysError(errno, "fstat of a kept descriptor");
  if (!S_ISFIFO(status.st_mode))
    return Error{.code = Code::kInternal, .what = "a kept descriptor is not a pipe"};
  return OwnEnd(*fd, access);
}

bool SamePipe(const UniqueFd& a, const UniqueFd& b) {
  struct stat one {
  }, other{};
  return ::fstat(a.get(), &one) == 0 && ::fstat(b.get(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

BackgroundProcess::~BackgroundProcess() = default;

size_t BackgroundProcess::kept_input() const { return facts_.merge_output ? 1 : 2; }

Result<std::shared_ptr<BackgroundProcess>> BackgroundProcess::Start(ExecPlace& place,
                                                                    ProcessFields fields,
                                                                    oci::ProcessSpec spec,
                                                                    const std::string& directory,
                                                                    Started started) {
  const std::shared_ptr<BackgroundProcess> process(new BackgroundProcess(place, directory));
  process->started_ = std::move(started);
  RETURN_IF_ERROR(process->Launch(std::move(fields), std::move(spec)));
  return process;
}

Result<runtime::ProcessRequest> BackgroundProcess::OpenPipes(const ProcessFields& fields,
                                                             oci::ProcessSpec spec,
                                                             std::vector<UniqueFd>* childs) {
  const uint32_t host_id_start = place_.sandbox.host_id_start();
  runtime::ProcessRequest request{.spec = std::move(spec),
                                  .terminal = fields.terminal,
                                  .rows = fields.rows,
                                  .columns = fields.columns};
  const oci::User& user = request.spec.user;
  ASSIGN_OR_RETURN(Pipe out, MakeOutputPipe(host_id_start, user));
  out_.fd = std::move(out.read);
  if (fields.terminal) {
    hop_ = std::move(out.write);
    request.kept = {out_.fd.get(), hop_.get()};
    return request;
  }
  request.stdout_fd = request.stderr_fd = childs->emplace_back(std::move(out.write)).get();
  request.kept = {out_.fd.get()};
  if (!fields.merge_output) {
    ASSIGN_OR_RETURN(Pipe err, MakeOutputPipe(host_id_start, user));
    err_.fd = std::move(err.read);
    request.stderr_fd = childs->emplace_back(std::move(err.write)).get();
    request.kept.push_back(err_.fd.get());
  }
  if (fields.stdin_open) {
    ASSIGN_OR_RETURN(Pipe in, MakeInputPipe(host_id_start, user));
    stdin_ = std::move(in.write);
    request.stdin_fd = childs->emplace_back(std::move(in.read)).get();
    request.kept.push_back(stdin_.get());
  } else if (fields.has_stdin) {
    // All of it is there at once: no end of hutchd's can cut it.
    ASSIGN_OR_RETURN(UniqueFd whole, SealedMemfd("stdin", fields.stdin_bytes));
    if (::lseek(whole.get(), 0, SEEK_SET) != 0) return SysError(errno, "rewind of the input");
    request.stdin_fd = childs->emplace_back(std::move(whole)).get();
  }
  return request;
}

Status BackgroundProcess::Launch(ProcessFields fields, oci::ProcessSpec spec) {
  facts_.args = fields.args;
  facts_.workdir = spec.cwd;
  facts_.user = std::to_string(spec.user.uid) + ":" + std::to_string(spec.user.gid);
  facts_.terminal = fields.terminal;
  facts_.merge_output = fields.merge_output;
  facts_.stdin_open = fields.stdin_open;
  facts_.timeout_seconds = fields.timeout_seconds;
  facts_.log_bytes = fields.log_bytes;
  facts_.started_at = std::chrono::system_clock::now();
  facts_.before = place_.counters;
  facts_.paused_before_ms = place_.paused_ms;
  std::vector<UniqueFd> childs;
  ASSIGN_OR_RETURN(const runtime::ProcessRequest request,
                   OpenPipes(fields, std::move(spec), &childs));
  ASSIGN_OR_RETURN(facts_.number, place_.sandbox.StartProcess(request));
  directory_ += "/p" + std::to_string(facts_.number);
  Result<std::unique_ptr<ProcessLog>> log = ProcessLog::Open(directory_, facts_.log_bytes);
  Status status = log ? OwnAll() : std::move(log).error();
  if (status) status = AwaitExec();
  if (!status) {
    IgnoreError(place_.sandbox.KillProcess(facts_.number), "the registry does not know it");
    return status;
  }
  log_ = std::move(*log);
  if (fields.stdin_open && !fields.stdin_bytes.empty()) {
    pending_bytes_ += fields.stdin_bytes.size();
    pending_.push_back({std::move(fields.stdin_bytes), 0, nullptr});
  }
  ArmTimeout();
  return OkStatus();
}

// The agent has the others by now.
Status BackgroundProcess::OwnAll() {
  ASSIGN_OR_RETURN(out_.fd, OwnEnd(out_.fd, O_RDONLY));
  if (err_.fd.valid()) {
    ASSIGN_OR_RETURN(err_.fd, OwnEnd(err_.fd, O_RDONLY));
  }
  if (stdin_.valid()) {
    ASSIGN_OR_RETURN(stdin_, OwnEnd(stdin_, O_WRONLY));
  }
  if (hop_.valid()) {
    ASSIGN_OR_RETURN(hop_, OwnEnd(hop_, O_WRONLY));
  }
  return OkStatus();
}

// --- becoming a running process

// A copy of its own: the runtime closes its one when the process has ended.
Status BackgroundProcess::AwaitExec() {
  ASSIGN_OR_RETURN(report_, Duplicate(place_.sandbox.ReportFd(facts_.number)));
  report_watch_ = place_.loop.Add(report_.get(), [this](Ready) {
    const auto self = shared_from_this();
    struct pollfd report {
      .fd = report_.get(), .events = POLLIN, .revents = 0
    };
    if (::poll(&report, 1, 0) == 0) return report_watch_.Arm(Ready::kReadable);
    report_watch_.Reset();
    if ((report.revents & POLLIN) != 0) return;  // why not: kStartFailed says it
    report_closed_ = true;
    TryExecuted();
  });
  report_watch_.Arm(Ready::kReadable);
  return OkStatus();
}

void BackgroundProcess::TryExecuted() {
  if (executed_ || failed_ || !told_ || !report_closed_) return;
  executed_ = true;
  report_watch_.Reset();
  report_.reset();
  FaultPoint("process record unwritten");
  Status status = facts_.terminal ? TakeTerminal() : OkStatus();
  if (status)
    status = WriteFileAtomic(directory_ + kRecordName, SaveProcess(facts_), Durability::kMemory);
  if (!status) {
    Kill();
    return FailStart(std::move(status).error());
  }
  FaultPoint("process record written");
  WatchAll();
  FeedInput();
  if (const Started started = std::exchange(started_, nullptr)) started(OkStatus());
}

void BackgroundProcess::FailStart(Error error) {
  failed_ = true;
  timeout_.Cancel();
  report_watch_.Reset();
  FailInput(error);
  IgnoreError(RemoveFiles(), "an empty directory; the sandbox's end removes it");
  if (const Started started = std::exchange(started_, nullptr)) started(std::move(error));
}

Result<std::shared_ptr<BackgroundProcess>> BackgroundProcess::TakeUp(ExecPlace& place,
                                                                     const std::string& directory) {
  const std::shared_ptr<BackgroundProcess> process(new BackgroundProcess(place, directory));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(directory + kRecordName, kMaxRecordBytes));
  ASSIGN_OR_RETURN(process->facts_, LoadProcess(text));
  ASSIGN_OR_RETURN(process->log_, ProcessLog::Open(directory, process->facts_.log_bytes));
  process->taken_up_ = process->executed_ = true;
  const bool has_group = place.sandbox.ProcessCgroup(process->facts_.number) != nullptr;
  process->group_gone_ = !has_group;
  if (!has_group && !process->ended()) {
    // Its group goes only after its end was stored: somebody else removed it.
    process->facts_.end =
        ProcessEnd{.facts = {.kill_asked = true, .wait_status = SIGKILL}, .usage = {}};
    process->facts_.ended_at = std::chrono::system_clock::now();
  }
  if (process->group_gone_) process->log_->Seal();
  return process;
}

Status BackgroundProcess::TakeKept() {
  const uint32_t number = facts_.number;
  if (facts_.terminal) {
    ASSIGN_OR_RETURN(out_.fd, CheckPipe(place_.sandbox.KeptFd(number, kKeptHopRead), O_RDONLY));
    ASSIGN_OR_RETURN(hop_, CheckPipe(place_.sandbox.KeptFd(number, kKeptHopWrite), O_WRONLY));
    if (!SamePipe(out_.fd, hop_))
      return Error{.code = Code::kInternal, .what = "kept descriptors of two pipes"};
    return TakeTerminal();
  }
  ASSIGN_OR_RETURN(out_.fd, CheckPipe(place_.sandbox.KeptFd(number, kKeptOut), O_RDONLY));
  if (!facts_.merge_output) {
    ASSIGN_OR_RETURN(err_.fd, CheckPipe(place_.sandbox.KeptFd(number, kKeptErr), O_RDONLY));
  }
  if (!facts_.stdin_open) return OkStatus();
  Result<UniqueFd> input = CheckPipe(place_.sandbox.KeptFd(number, kept_input()), O_WRONLY);
  if (input) stdin_ = std::move(*input);  // closed by a client before, otherwise
  return OkStatus();
}

Status BackgroundProcess::TakeTerminal() {
  ASSIGN_OR_RETURN(UniqueFd master, place_.sandbox.KeptFd(facts_.number, kKeptMaster));
  int number = 0;
  if (::ioctl(master.get(), TIOCGPTN, &number) != 0)
    return SysError(errno, "a kept descriptor is not a terminal's master");
  ASSIGN_OR_RETURN(stdin_, Duplicate(master.get()));
  master_ = std::move(master);
  return OkStatus();
}

// --- output

void BackgroundProcess::WatchAll() {
  if (facts_.terminal) {
    terminal_watch_ = place_.loop.Add(master_.get(), [this](Ready) {
      RunPaced(place_, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->PumpTerminal(kPumpBytes);
        self->terminal_watch_.Arm(Ready::kReadable);
      });
    });
    return terminal_watch_.Arm(Ready::kReadable);
  }
  WatchStream(out_);
  if (err_.fd.valid()) WatchStream(err_);
}

void BackgroundProcess::WatchStream(Stream& stream) {
  stream.watch = place_.loop.Add(stream.fd.get(), [this, &stream](Ready) {
    RunPaced(place_, [weak = weak_from_this(), &stream] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->Pump(stream, kPumpBytes);
      stream.watch.Arm(Ready::kReadable);
    });
  });
  stream.watch.Arm(Ready::kReadable);
}

void BackgroundProcess::Pump(Stream& stream, size_t max_bytes) {
  if (!stream.fd.valid()) return;
  const uint64_t lost = log_->lost();
  bool at_end = false;
  if (log_->Pump(stream.fd.get(), stream.id, max_bytes, &at_end) > 0) Changed();
  if (lost == 0 && log_->lost() > 0)
    Log(LogLevel::kError, "output of a process is lost: its log cannot be written",
        {{"sandbox", place_.sandbox.id()}, {"log", directory_}});
  if (!at_end) return;
  stream.watch.Reset();
  stream.fd.reset();
}

// A terminal's master cannot be opened a second time: its flags stay shared with the agent. They
// are set, and it is asked, before each read.
bool BackgroundProcess::TerminalReady() const {
  if (::fcntl(master_.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0) return false;
  struct pollfd master {
    .fd = master_.get(), .events = POLLIN, .revents = 0
  };
  return ::poll(&master, 1, 0) > 0;
}

// From the master into the hop, from the hop into the log: at no instant are bytes in nobody's
// keeping.
void BackgroundProcess::PumpTerminal(size_t max_bytes) {
  if (!master_.valid()) return Pump(out_, max_bytes);
  for (size_t total = 0; total < max_bytes;) {
    if (!TerminalReady()) return Pump(out_, kPumpBytes);
    const ssize_t count = ::splice(master_.get(), nullptr, hop_.get(), nullptr, 16 * 1024,
                                   SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (count < 0 && errno == EINTR) continue;
    Pump(out_, kPumpBytes);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) break;  // EIO: nobody has the other side open
    total += static_cast<size_t>(count);
    if (total >= max_bytes) return;
  }
  terminal_watch_.Reset();
  master_.reset();
}

void BackgroundProcess::Changed() {
  if (change_posted_ || followers_.empty()) return;
  change_posted_ = true;
  place_.loop.Post([self = shared_from_this()] {
    self->change_posted_ = false;
    const auto followers = self->followers_;  // they may leave while they are told
    for (const auto& [id, changed] : followers)
      if (self->followers_.contains(id)) changed();
  });
}

Result<uint64_t> BackgroundProcess::Follow(std::function<void()> changed) {
  if (followers_.size() >= kMaxFollowers)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(followers_.size()) + " follow this process already"};
  followers_[next_follower_] = std::move(changed);
  return next_follower_++;
}

// --- input

Status BackgroundProcess::Write(std::string bytes, std::function<void(const Status&)> done) {
  if (ended() || !stdin_.valid() || close_wanted_)
    return Error{.code = Code::kBadState, .what = "the input of the process is closed"};
  if (pending_bytes_ + bytes.size() > kMaxPendingStdinBytes && pending_bytes_ > 0)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(pending_bytes_) + " bytes wait to be read already"};
  pending_bytes_ += bytes.size();
  pending_.push_back({std::move(bytes), 0, std::move(done)});
  FeedInput();
  return OkStatus();
}

Status BackgroundProcess::CloseInput() {
  if (facts_.terminal)
    return Error{.code = Code::kBadState,
                 .what = "a terminal's input cannot be closed",
                 .hint = "write its end-of-file character, \\u0004"};
  if (!stdin_.valid())
    return Error{.code = Code::kBadState, .what = "the input of the process is closed"};
  close_wanted_ = true;
  FeedInput();
  return OkStatus();
}

void BackgroundProcess::FeedInput() {
  if (!executed_ || !stdin_.valid()) return;
  const auto self = shared_from_this();
  while (!pending_.empty()) {
    Pending& next = pending_.front();
    const ssize_t count =
        ::write(stdin_.get(), next.bytes.data() + next.written, next.bytes.size() - next.written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (!input_watch_.active())
        input_watch_ = place_.loop.Add(stdin_.get(), [this](Ready) { FeedInput(); });
      return input_watch_.Arm(Ready::kWritable);
    }
    if (count < 0)
      return FailInput(Error{.code = Code::kBadState, .what = "the process has closed its input"});
    next.written += static_cast<size_t>(count);
    if (next.written < next.bytes.size()) continue;
    pending_bytes_ -= next.bytes.size();
    const auto done = std::move(next.done);
    pending_.pop_front();
    if (done) done(OkStatus());
  }
  if (!close_wanted_) return;
  FailInput(Error{.code = Code::kBadState, .what = "the input of the process is closed"});
  place_.sandbox.DropKeptFd(facts_.number, kept_input());
}

void BackgroundProcess::FailInput(const Error& error) {
  input_watch_.Reset();
  stdin_.reset();
  const std::deque<Pending> pending = std::move(pending_);
  pending_.clear();
  pending_bytes_ = 0;
  for (const Pending& one : pending)
    if (one.done) one.done(error);
}

Status BackgroundProcess::Resize(uint16_t rows, uint16_t columns) {
  if (!facts_.terminal)
    return Error{.code = Code::kBadState, .what = "the process has no terminal"};
  const struct winsize size { .ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0 };
  if (!master_.valid() || ::ioctl(master_.get(), TIOCSWINSZ, &size) != 0)
    return Error{.code = Code::kBadState, .what = "the terminal is closed"};
  return OkStatus();
}

// --- the end

Status BackgroundProcess::Signal(int signal, bool tree) {
  if (tree && signal == SIGKILL) {
    Kill();
    return OkStatus();
  }
  if (!tree && ended()) return Error{.code = Code::kBadState, .what = "the process has ended"};
  return tree ? place_.sandbox.SignalTree(facts_.number, signal)
              : place_.sandbox.SignalLeader(facts_.number, signal);
}

void BackgroundProcess::Kill() {
  if (group_gone_) return;  // its sandbox, too, may be gone
  if (!ended() && executed_) {
    facts_.kill_asked = true;
    Store();
  }
  const Status killed = place_.sandbox.KillProcess(facts_.number);
  if (!killed.has_value() && killed.error().code != Code::kNotFound)
    Log(LogLevel::kError, "cannot kill a process",
        {{"sandbox", place_.sandbox.id()}, {"error", killed.error().ToString()}});
}

void BackgroundProcess::ArmTimeout() {
  if (facts_.timeout_seconds <= 0 || place_.paused) return;
  const Milliseconds paused(place_.paused_ms - std::min(place_.paused_ms, facts_.paused_before_ms));
  const auto deadline =
      facts_.started_at + paused +
      std::chrono::microseconds(static_cast<int64_t>(facts_.timeout_seconds * 1e6));
  const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::system_clock::now());
  timeout_.Start(place_.loop, std::max(left, Milliseconds(0)), [this] {
    const auto self = shared_from_this();
    if (ended()) return;
    facts_.timed_out = true;
    Store();
    IgnoreError(place_.sandbox.KillProcess(facts_.number), "its exit tells");
  });
}

void BackgroundProcess::Store() {
  const Status stored =
      WriteFileAtomic(directory_ + kRecordName, SaveProcess(facts_), Durability::kMemory);
  stored_ = stored.has_value();
  if (!stored.has_value())
    Log(LogLevel::kError, "cannot store the record of a process",
        {{"sandbox", place_.sandbox.id()}, {"error", stored.error().ToString()}});
}

void BackgroundProcess::OnEvent(const runtime::AgentEvent& event) {
  using Kind = runtime::AgentEvent::Kind;
  const auto self = shared_from_this();
  if (event.kind == Kind::kStartFailed)
    return FailStart(event.error.value_or(
        Error{.code = Code::kInternal, .what = "the process could not be started"}));
  if (event.kind == Kind::kExited) return Exited(event);
  if (event.kind != Kind::kStarted || told_) return;
  told_ = true;
  if (!taken_up_) return TryExecuted();
  if (group_gone_) return;
  if (const Status kept = TakeKept(); !kept.has_value())
    Log(LogLevel::kError, "the output of a process cannot be taken up",
        {{"sandbox", place_.sandbox.id()}, {"error", kept.error().ToString()}});
  WatchAll();
  // Later than what the agent says next: its end may have come before the time was up.
  if (!ended())
    place_.loop.Post([weak = weak_from_this()] {
      if (const auto one = weak.lock(); one != nullptr && !one->ended()) one->ArmTimeout();
    });
}

// Its program ran: what could not run says so as kStartFailed.
void BackgroundProcess::Exited(const runtime::AgentEvent& event) {
  if (ended() || failed_) return;  // told again after a restart
  report_closed_ = true;
  TryExecuted();
  if (failed_) return;
  timeout_.Cancel();
  if (facts_.terminal)
    PumpTerminal(kDrainBytes);
  else
    Pump(out_, kDrainBytes);
  Pump(err_, kDrainBytes);
  ProcessEnd end{.facts = {.timed_out = facts_.timed_out,
                           .kill_asked = facts_.kill_asked,
                           .wait_status = event.wait_status},
                 .usage = {}};
  facts_.ended_at = std::chrono::system_clock::now();
  end.duration_ms =
      std::chrono::duration<double, std::milli>(facts_.ended_at - facts_.started_at).count();
  ReadEndCounts(place_, event, facts_.before, &end);
  facts_.end = end;
  FaultPoint("process end unwritten");
  Store();
  FaultPoint("process end written");
  FailInput(Error{.code = Code::kBadState, .what = "the process has ended"});
  // A child that reads on sees the end of file.
  if (facts_.stdin_open && !facts_.terminal) place_.sandbox.DropKeptFd(facts_.number, kept_input());
  Changed();
}

void BackgroundProcess::SandboxEnded() {
  const auto self = shared_from_this();
  timeout_.Cancel();
  if (!executed_) {
    FailStart(Error{.code = Code::kBadState, .what = "the sandbox has ended"});
    return GroupGone();
  }
  if (!ended()) {
    facts_.end = ProcessEnd{
        .facts = {.sandbox_ended = true, .timed_out = facts_.timed_out, .wait_status = SIGKILL},
        .usage = {}};
    facts_.ended_at = std::chrono::system_clock::now();
    FailInput(Error{.code = Code::kBadState, .what = "the sandbox has ended"});
  }
  GroupGone();
}

void BackgroundProcess::GroupGone() {
  if (group_gone_) return;
  if (!stored_ && ended()) Store();  // the disk may have room again
  if (log_) {
    if (facts_.terminal) PumpTerminal(kDrainBytes);
    Pump(out_, kDrainBytes);
    Pump(err_, kDrainBytes);
    log_->Seal();
  }
  group_gone_ = true;
  terminal_watch_.Reset();
  for (Stream* stream : {&out_, &err_}) {
    stream->watch.Reset();
    stream->fd.reset();
  }
  master_.reset();
  hop_.reset();
  Changed();
}

Status BackgroundProcess::RemoveFiles() { return RemoveTree(directory_); }

oci::Json BackgroundProcess::ToJson() const {
  oci::Json json = {{"id", "p" + std::to_string(facts_.number)},
                    {"command", facts_.args},
                    {"state", ended() ? "exited" : "running"},
                    {"workdir", facts_.workdir},
                    {"user", facts_.user},
                    {"terminal", facts_.terminal},
                    {"merge_output", facts_.merge_output},
                    {"stdin_open", stdin_.valid()},
                    {"timeout_seconds", facts_.timeout_seconds},
                    {"started_at", FormatRfc3339(facts_.started_at)},
                    {"ended_at", ended() ? oci::Json(FormatRfc3339(facts_.ended_at)) : oci::Json()},
                    {"streams_open", !group_gone_},
                    {"log_bytes", facts_.log_bytes},
                    {"stdout_bytes", log_->written(StreamId::kStdout)},
                    {"stderr_bytes", log_->written(StreamId::kStderr)},
                    {"output_begin", log_->begin()},
                    {"output_end", log_->end()},
                    {"output_lost_bytes", log_->lost()}};
  if (ended())
    AddEnd(*facts_.end, &json);
  else
    json["exit_code"] = nullptr;
  return json;
}

}  // namespace hutch::daemon
