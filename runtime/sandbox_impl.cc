#include "runtime/sandbox_impl.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "runtime/agent_messages.h"

namespace hutch::runtime {
namespace {

constexpr int kMaxErrno = 4096;
constexpr int kMessagesPerTurn = 256;  // of an agent that would talk without end

std::string ProcessName(uint32_t process) { return "p" + std::to_string(process); }

// One /dev/null for every process that gets no stdin.
int NullFd() {
  static const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  return fd;
}

}  // namespace

SandboxImpl::SandboxImpl(std::unique_ptr<Shell> shell, bool from_pool)
    : shell_(std::move(shell)), from_pool_(from_pool) {}

SandboxImpl::~SandboxImpl() {
  if (on_destroy != nullptr) on_destroy(owner, this);
}

std::vector<AgentEvent> SandboxImpl::ReadAgent() {
  std::vector<AgentEvent> events;
  FlushOwed();
  for (int turn = 0; turn < kMessagesPerTurn && !closed_ && shell_->conn.valid(); ++turn) {
    alignas(8) std::array<char, kMaxReplyBytes + 1> buffer;  // one more: a longer message shows
    // No room for descriptors: any that come along are dropped by the kernel.
    const ssize_t n = ::recv(shell_->conn.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return events;
    auto event = n > 0 ? Interpret({buffer.data(), static_cast<size_t>(n)})
                       : std::optional<AgentEvent>({.kind = AgentEvent::Kind::kClosed});
    if (!event) continue;
    closed_ = event->kind == AgentEvent::Kind::kClosed;
    events.push_back(std::move(*event));
  }
  return events;
}

std::optional<AgentEvent> SandboxImpl::Interpret(std::string_view bytes) {
  auto reply = ParseAgentReply(bytes);
  if (!reply)
    return AgentEvent{.kind = AgentEvent::Kind::kClosed, .error = std::move(reply).error()};
  switch (reply->type) {
    case AgentMessage::kReady:
      if (ready_) break;  // said twice: not our agent's behaviour
      ready_ = true;
      for (const RlimitNote& note : reply->notes) reported_.push_back(NoteText(note));
      return AgentEvent{.kind = AgentEvent::Kind::kReady};
    case AgentMessage::kFailed:
      return AgentEvent{.kind = AgentEvent::Kind::kFailed, .error = std::move(reply->error)};
    case AgentMessage::kStarted:
      Started(*reply);
      return AgentEvent{
          .kind = AgentEvent::Kind::kStarted, .process = reply->process, .pid = reply->pid};
    case AgentMessage::kStartFailed:
      if (!processes_.contains(reply->process)) break;
      return AgentEvent{.kind = AgentEvent::Kind::kStartFailed,
                        .process = reply->process,
                        .error = std::move(reply->error)};
    case AgentMessage::kExited:
      return Exited(*reply);
    default:
      return std::nullopt;  // blank, hello: nothing to pass on
  }
  return AgentEvent{
      .kind = AgentEvent::Kind::kClosed,
      .error = Error{.code = Code::kInternal, .what = "the agent broke its protocol"}};
}

// A kill finds only who is in the group: one that came before the clone has found nobody.
void SandboxImpl::Started(AgentReply& reply) {
  const auto it = processes_.find(reply.process);
  if (it == processes_.end()) return;
  it->second.kept = std::move(reply.kept);
  if (!it->second.killed) return;
  const Status killed = it->second.group.Kill();
  if (!killed.has_value())
    Log(LogLevel::kError, "cannot kill a process that was not to start",
        {{"sandbox", id()}, {"error", killed.error().ToString()}});
}

// A process that could not execute left a report; reading it never blocks, since its writer is
// gone.
AgentEvent SandboxImpl::Exited(const AgentReply& reply) {
  AgentEvent event{.kind = AgentEvent::Kind::kExited,
                   .process = reply.process,
                   .wait_status = reply.wait_status,
                   .usage = reply.usage};
  const auto it = processes_.find(reply.process);
  if (it == processes_.end() || !it->second.report.valid()) return event;
  StartReport report;
  if (::read(it->second.report.get(), &report, sizeof report) ==
          static_cast<ssize_t>(sizeof report) &&
      report.error > 0 && report.error < kMaxErrno && strerrordesc_np(report.error) != nullptr) {
    event.kind = AgentEvent::Kind::kStartFailed;
    event.error = StartReportError(report.step, report.error, it->second.spec);
    AcknowledgeExit(reply.process);
  }
  it->second.report.reset();
  return event;
}

// Messages that must not be lost: one that finds the socket full goes later, in its order.
void SandboxImpl::SendSurely(std::string message) {
  owed_.push_back(std::move(message));
  FlushOwed();
}

void SandboxImpl::FlushOwed() {
  while (!owed_.empty() && shell_->conn.valid()) {
    const std::string_view bytes(owed_.front());
    const Status sent = SendMessage(shell_->conn.get(), {&bytes, 1}, {});
    if (!sent && (sent.error().sys == EAGAIN || sent.error().sys == ENOBUFS)) return;
    owed_.pop_front();  // sent, or the agent is lost: noticed when read
  }
}

void SandboxImpl::AcknowledgeExit(uint32_t process) {
  const AgentHeader header{kAgentMagic, kAgentVersion, AgentMessage::kForget, sizeof header,
                           process};
  SendSurely({reinterpret_cast<const char*>(&header), sizeof header});
}

Result<cgroups::ProcessGroup> SandboxImpl::TakeGroup(uint32_t number) {
  if (prepared_.valid()) return std::exchange(prepared_, cgroups::ProcessGroup());
  return shell_->group.CreateProcess(ProcessName(number));
}

Status SandboxImpl::SendStart(uint32_t number, const ProcessRequest& request, int group_fd,
                              int report_fd) {
  const bool hybrid = shell_->workshop->tree->mode() == cgroups::Mode::kHybrid;
  const StartOptions options{.flags = (hybrid ? uint32_t{kRaiseOomScore} : 0) |
                                      (request.program_fd >= 0 ? uint32_t{kHasProgram} : 0) |
                                      (request.terminal ? uint32_t{kTerminal} : 0),
                             .kept_count = static_cast<uint32_t>(request.kept.size()),
                             .rows = request.rows,
                             .columns = request.columns};
  ASSIGN_OR_RETURN(const std::string message, PrintStart(number, request.spec, options));
  std::vector<int> fds(kStartFdCount);
  fds[kStartCgroupFd] = group_fd;
  fds[kStartStdinFd] = request.stdin_fd >= 0 ? request.stdin_fd : NullFd();
  fds[kStartStdoutFd] = request.stdout_fd >= 0 ? request.stdout_fd : NullFd();
  fds[kStartStderrFd] = request.stderr_fd >= 0 ? request.stderr_fd : NullFd();
  fds[kStartReportFd] = report_fd;
  if (request.program_fd >= 0) fds.push_back(request.program_fd);
  fds.insert(fds.end(), request.kept.begin(), request.kept.end());
  const std::string_view bytes(message);
  return SendMessage(shell_->conn.get(), {&bytes, 1}, fds);
}

Result<uint32_t> SandboxImpl::StartProcess(const ProcessRequest& request) {
  if (!ready_ || closed_)
    return Error{.code = Code::kBadState, .what = "sandbox " + id() + " is not ready"};
  const uint32_t number = next_process_;
  ASSIGN_OR_RETURN(Pipe report, MakePipe(O_NONBLOCK));
  ASSIGN_OR_RETURN(cgroups::ProcessGroup group, TakeGroup(number));
  if (Status sent = SendStart(number, request, group.fd(), report.write.get()); !sent) {
    // Too long or malformed, mostly: the group serves the next one.
    prepared_ = std::move(group);
    return std::move(sent).error();
  }
  ++next_process_;
  ProcessRecord record{std::move(group), std::move(report.read), {}, {}};
  record.spec.args = {request.spec.args[0]};
  record.spec.cwd = request.spec.cwd;
  processes_.emplace(number, std::move(record));
  return number;
}

const cgroups::ProcessGroup* SandboxImpl::ProcessCgroup(uint32_t process) const {
  const auto it = processes_.find(process);
  return it == processes_.end() ? nullptr : &it->second.group;
}

Status SandboxImpl::KillProcess(uint32_t process) {
  const auto it = processes_.find(process);
  if (it == processes_.end())
    return Error{.code = Code::kNotFound, .what = "process " + ProcessName(process)};
  it->second.killed = true;
  return it->second.group.Kill();
}

Status SandboxImpl::SignalTree(uint32_t process, int signal) {
  const auto* group = ProcessCgroup(process);
  if (group == nullptr)
    return Error{.code = Code::kNotFound, .what = "process " + ProcessName(process)};
  return group->Signal(signal);
}

Status SandboxImpl::SignalLeader(uint32_t process, int signal) {
  const auto* group = ProcessCgroup(process);
  if (group == nullptr)
    return Error{.code = Code::kNotFound, .what = "process " + ProcessName(process)};
  const SignalMessage message{
      {kAgentMagic, kAgentVersion, AgentMessage::kSignal, sizeof message, process}, signal};
  const std::string_view bytes(reinterpret_cast<const char*>(&message), sizeof message);
  return SendMessage(shell_->conn.get(), {&bytes, 1}, {});
}

Result<UniqueFd> SandboxImpl::KeptFd(uint32_t process, size_t index) {
  const auto it = processes_.find(process);
  if (it == processes_.end() || index >= it->second.kept.size() || it->second.kept[index] < 0)
    return Error{.code = Code::kNotFound, .what = "process " + ProcessName(process)};
  const int fd = sys::PidfdGetfd(shell_->init.fd(), it->second.kept[index]);
  if (fd < 0) return SysError(-fd, "pidfd_getfd of the agent");
  return UniqueFd(fd);
}

int SandboxImpl::ReportFd(uint32_t process) const {
  const auto it = processes_.find(process);
  return it == processes_.end() ? -1 : it->second.report.get();
}

void SandboxImpl::DropKeptFd(uint32_t process, size_t index) {
  const auto it = processes_.find(process);
  if (it == processes_.end() || index >= it->second.kept.size()) return;
  it->second.kept[index] = -1;
  const DropMessage message{
      {kAgentMagic, kAgentVersion, AgentMessage::kDrop, sizeof message, process},
      static_cast<uint32_t>(index)};
  SendSurely({reinterpret_cast<const char*>(&message), sizeof message});
}

void SandboxImpl::SkipProcessNumbers(uint32_t last) {
  if (next_process_ > last) return;
  if (prepared_.valid())
    IgnoreError(std::exchange(prepared_, cgroups::ProcessGroup()).Remove(),
                "an empty group; the sandbox's end removes it");
  next_process_ = last + 1;
}

Status SandboxImpl::ForgetProcess(uint32_t process) {
  const auto it = processes_.find(process);
  if (it == processes_.end()) return OkStatus();
  RETURN_IF_ERROR(it->second.group.Remove());
  processes_.erase(it);
  return OkStatus();
}

std::vector<uint32_t> SandboxImpl::Processes() const {
  std::vector<uint32_t> numbers;
  for (const auto& [number, record] : processes_) numbers.push_back(number);
  return numbers;
}

void SandboxImpl::Prepare() {
  if (prepared_.valid() || !ready_) return;
  if (auto group = shell_->group.CreateProcess(ProcessName(next_process_)))
    prepared_ = std::move(*group);
}

Status SandboxImpl::Kill() { return shell_->group.Kill(); }

Status SandboxImpl::TakeUpProcesses() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, shell_->group.ListProcesses());
  for (const std::string& name : names) {
    const auto number =
        name.starts_with("p") ? ParseUint(name.substr(1), UINT32_MAX) : ParseUint("");
    if (!number) continue;
    ASSIGN_OR_RETURN(cgroups::ProcessGroup group, shell_->group.OpenProcess(name));
    const auto process = static_cast<uint32_t>(*number);
    processes_.emplace(process, ProcessRecord{std::move(group), UniqueFd(), {}, {}});
    next_process_ = std::max(next_process_, process + 1);
  }
  ready_ = true;
  return OkStatus();
}

}  // namespace hutch::runtime
