// A sandbox for tests of the daemon's own logic: no kernel, everything scripted. Real
// descriptors, so that the loop is real.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <map>
#include <set>

#include "base/fd_socket.h"
#include "base/file.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

using runtime::AgentEvent;

class FakeSandbox final : public runtime::Sandbox {
 public:
  explicit FakeSandbox(std::string id) : id_(std::move(id)) {
    Result<SocketPair> pair = MakeSeqpacketPair();
    ours_ = std::move(pair->a);
    agent_ = std::move(pair->b);
    init_ = Pidfd(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), 4711);
  }

  // --- the script
  void Say(AgentEvent event) {
    events_.push_back(std::move(event));
    const std::string_view word = "x";
    IgnoreError(SendMessage(agent_.get(), {&word, 1}, {}), "nobody reads any more");
  }
  void Exit(uint32_t process, int wait_status) {
    AgentEvent event{.kind = AgentEvent::Kind::kExited, .process = process};
    event.wait_status = wait_status;
    Say(std::move(event));
  }
  void EndInit() { ::eventfd_write(init_.fd(), 1); }

  struct Started {
    oci::ProcessSpec spec;
    UniqueFd in, out, err;       // the process's ends
    std::vector<UniqueFd> kept;  // the agent's copies
    UniqueFd report;             // closed by its exec
    bool terminal;
  };
  std::map<uint32_t, Started> started;
  std::vector<uint32_t> killed, acknowledged;
  std::vector<std::pair<uint32_t, int>> signals;
  std::set<uint32_t> busy;  // groups that cannot be removed yet
  runtime::ScratchView scratch_view;
  bool sandbox_killed = false;
  bool ends_when_killed = true;
  int forget_attempts = 0;

  // --- runtime::Sandbox
  const std::string& id() const override { return id_; }
  uint32_t host_id_start() const override { return host_ids; }
  pid_t pid() const override { return 4711; }
  bool from_pool() const override { return true; }
  const std::vector<runtime::Timing>& timings() const override { return timings_; }
  const std::vector<std::string>& reported() const override { return reported_; }
  const cgroups::SandboxGroup& group() const override { return group_; }
  int proc_files_fd() const override { return -1; }
  const runtime::ScratchView& scratch() const override { return scratch_view; }
  int skeleton_fd() const override { return -1; }
  int agent_fd() const override { return spawned ? ours_.get() : -1; }
  const Pidfd& init() const override { return spawned ? init_ : no_init_; }
  std::vector<AgentEvent> ReadAgent() override {
    while (true) {
      const Result<Message> message = ReceiveMessage(ours_.get(), 16, MSG_DONTWAIT);
      if (!message.has_value() || message->bytes.empty()) break;
    }
    std::vector<AgentEvent> events(std::make_move_iterator(events_.begin()),
                                   std::make_move_iterator(events_.end()));
    events_.clear();
    return events;
  }
  Result<uint32_t> StartProcess(const runtime::ProcessRequest& request) override {
    const uint32_t process = ++last_process_;
    Result<Pipe> report = MakePipe(O_NONBLOCK);  // its other end closes here: executed
    Started& placed = started[process];
    placed = Started{
        request.spec, Copy(request.stdin_fd),  Copy(request.stdout_fd), Copy(request.stderr_fd),
        {},           std::move(report->read), request.terminal};
    for (const int fd : request.kept) placed.kept.push_back(Copy(fd));
    return process;
  }
  const cgroups::ProcessGroup* ProcessCgroup(uint32_t) const override { return nullptr; }
  Status KillProcess(uint32_t process) override {
    killed.push_back(process);
    return OkStatus();
  }
  Status SignalLeader(uint32_t process, int signal) override {
    signals.emplace_back(process, signal);
    return OkStatus();
  }
  Status SignalTree(uint32_t process, int signal) override { return SignalLeader(process, signal); }
  void AcknowledgeExit(uint32_t process) override { acknowledged.push_back(process); }
  Result<UniqueFd> KeptFd(uint32_t process, size_t index) override {
    const auto it = started.find(process);
    if (it == started.end() || index >= it->second.kept.size())
      return Error{.code = Code::kNotFound, .what = "nothing kept"};
    return Duplicate(it->second.kept[index].get());
  }
  void DropKeptFd(uint32_t process, size_t index) override { started[process].kept[index].reset(); }
  int ReportFd(uint32_t process) const override {
    const auto it = started.find(process);
    return it == started.end() ? -1 : it->second.report.get();
  }
  void SkipProcessNumbers(uint32_t last) override { last_process_ = std::max(last_process_, last); }
  Status ForgetProcess(uint32_t process) override {
    ++forget_attempts;
    if (busy.contains(process)) return Error{.code = Code::kBadState, .what = "still busy"};
    started.erase(process);
    return OkStatus();
  }
  std::vector<uint32_t> Processes() const override {
    std::vector<uint32_t> numbers;
    for (const auto& [number, process] : started) numbers.push_back(number);
    return numbers;
  }
  void Prepare() override {}
  Status Kill() override {
    sandbox_killed = true;
    if (ends_when_killed) EndInit();
    return OkStatus();
  }

  bool spawned = true;
  // The chown of pipes to user 1000 is one to ourselves.
  uint32_t host_ids = static_cast<uint32_t>(::getuid()) - 1000;

 private:
  static UniqueFd Copy(int fd) {
    if (fd < 0) return UniqueFd();
    Result<UniqueFd> copy = Duplicate(fd);
    return copy.has_value() ? std::move(*copy) : UniqueFd();
  }

  std::string id_;
  UniqueFd ours_, agent_;
  Pidfd init_, no_init_;
  std::deque<AgentEvent> events_;
  std::vector<runtime::Timing> timings_ = {{"mounts", 1.5}};
  std::vector<std::string> reported_;
  cgroups::SandboxGroup group_;
  uint32_t last_process_ = 0;
};

}  // namespace hutch::daemon
