#include "runtime/sandbox_impl.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/text.h"
#include "runtime/agent_messages.h"

namespace hutch::runtime {
namespace {

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
  while (!closed_ && shell_->conn.valid()) {
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

// A process that could not execute left a report; reading it never blocks, since its writer is
// gone.
AgentEvent SandboxImpl::Exited(const AgentReply& reply) {
  Forget(reply.process);
  AgentEvent event{.kind = AgentEvent::Kind::kExited,
                   .process = reply.process,
                   .wait_status = reply.wait_status,
                   .usage = reply.usage};
  const auto it = processes_.find(reply.process);
  if (it == processes_.end() || !it->second.report.valid()) return event;
  StartReport report;
  if (::read(it->second.report.get(), &report, sizeof report) ==
      static_cast<ssize_t>(sizeof report)) {
    event.kind = AgentEvent::Kind::kStartFailed;
    event.error = StartReportError(report.step, report.error, it->second.spec);
  }
  it->second.report.reset();
  return event;
}

void SandboxImpl::Forget(uint32_t process) const {
  const AgentHeader header{kAgentMagic, kAgentVersion, AgentMessage::kForget, sizeof header,
                           process};
  const std::string_view bytes(reinterpret_cast<const char*>(&header), sizeof header);
  IgnoreError(SendMessage(shell_->conn.get(), {&bytes, 1}, {}),
              "a lost agent is noticed when read");
}

Result<cgroups::ProcessGroup> SandboxImpl::TakeGroup(uint32_t number) {
  if (prepared_.valid()) return std::exchange(prepared_, cgroups::ProcessGroup());
  return shell_->group.CreateProcess(ProcessName(number));
}

Result<uint32_t> SandboxImpl::StartProcess(const ProcessRequest& request) {
  if (!ready_ || closed_)
    return Error{.code = Code::kBadState, .what = "sandbox " + id() + " is not ready"};
  const uint32_t number = next_process_;
  const bool hybrid = shell_->workshop->tree->mode() == cgroups::Mode::kHybrid;
  const uint32_t flags = hybrid ? uint32_t{kRaiseOomScore} : 0;
  ASSIGN_OR_RETURN(const std::string message, PrintStart(number, request.spec, flags));
  ASSIGN_OR_RETURN(Pipe report, MakePipe(O_NONBLOCK));
  ASSIGN_OR_RETURN(cgroups::ProcessGroup group, TakeGroup(number));
  ++next_process_;
  int fds[kStartFdCount];
  fds[kStartCgroupFd] = group.fd();
  fds[kStartStdinFd] = request.stdin_fd >= 0 ? request.stdin_fd : NullFd();
  fds[kStartStdoutFd] = request.stdout_fd >= 0 ? request.stdout_fd : NullFd();
  fds[kStartStderrFd] = request.stderr_fd >= 0 ? request.stderr_fd : NullFd();
  fds[kStartReportFd] = report.write.get();
  const std::string_view bytes(message);
  if (Status sent = SendMessage(shell_->conn.get(), {&bytes, 1}, fds); !sent) {
    IgnoreError(group.Remove(), "an empty group; recovery finds it otherwise");
    return std::move(sent).error();
  }
  ProcessRecord record{std::move(group), std::move(report.read), {}};
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
  const auto* group = ProcessCgroup(process);
  if (group == nullptr)
    return Error{.code = Code::kNotFound, .what = "process " + ProcessName(process)};
  return group->Kill();
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
    processes_.emplace(process, ProcessRecord{std::move(group), UniqueFd(), {}});
    next_process_ = std::max(next_process_, process + 1);
  }
  ready_ = true;
  return OkStatus();
}

}  // namespace hutch::runtime
