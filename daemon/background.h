// A process that outlives the call that started it, and the daemon: its output goes to a log on
// disk, its record beside it. On the loop's thread.
//
// What makes it survive a kill -9 of hutchd: the agent keeps the read ends of its pipes (and its
// terminal), so nothing in them is lost; the log takes bytes from there by splice(2); and the
// agent remembers the exit until the record of it is written.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/text.h"
#include "daemon/exec_request.h"
#include "daemon/loop.h"
#include "daemon/process_end.h"
#include "daemon/process_log.h"
#include "daemon/running.h"

namespace hutch::daemon {

// What is stored of it, and told.
struct ProcessFacts {
  uint32_t number = 0;
  std::vector<std::string> args;
  std::string workdir, user;
  bool terminal = false, merge_output = false, stdin_open = false;
  double timeout_seconds = 0;
  uint64_t log_bytes = 0;
  WallTime started_at;
  SandboxCounters before;                      // the sandbox's when it started
  uint64_t paused_before_ms = 0;               // ExecPlace::paused_ms then
  bool timed_out = false, kill_asked = false;  // stored before it is killed
  std::optional<ProcessEnd> end;
  WallTime ended_at;
};
std::string SaveProcess(const ProcessFacts& facts);
Result<ProcessFacts> LoadProcess(const std::string& text);

class BackgroundProcess final : public Running,
                                public std::enable_shared_from_this<BackgroundProcess> {
 public:
  // It runs (has executed its program and has a record), or why not.
  using Started = std::function<void(const Status&)>;

  // `directory` holds one directory a process. `started` is called later. Errors as of
  // Sandbox::StartProcess, kKernel.
  static Result<std::shared_ptr<BackgroundProcess>> Start(ExecPlace& place, ProcessFields fields,
                                                          oci::ProcessSpec spec,
                                                          const std::string& directory,
                                                          Started started);
  // One of an earlier hutchd, from its record. It runs again from the agent's kStarted on.
  static Result<std::shared_ptr<BackgroundProcess>> TakeUp(ExecPlace& place,
                                                           const std::string& directory);
  ~BackgroundProcess() override;

  const ProcessFacts& facts() const { return facts_; }
  const ProcessLog& log() const { return *log_; }
  oci::Json ToJson() const;
  bool ended() const { return facts_.end.has_value(); }
  bool streams_open() const { return !group_gone_; }  // children may still write

  // Bytes for its input, in order of the calls. `done` once: all of them are in its pipe, or why
  // not (kBadState: it has ended or its input is closed). kLimit when too much waits already.
  Status Write(std::string bytes, std::function<void(const Status&)> done);
  Status CloseInput();  // after what has been written; kBadState for a terminal
  Status Resize(uint16_t rows, uint16_t columns);
  Status Signal(int signal, bool tree);
  void Kill() override;  // the group

  // `changed` (from the loop, at most once a turn) after more output, after the end, after the last
  // byte. kLimit past kMaxFollowers.
  Result<uint64_t> Follow(std::function<void()> changed);
  void Unfollow(uint64_t follower) { followers_.erase(follower); }

  // Running.
  void OnEvent(const runtime::AgentEvent& event) override;
  void SandboxEnded() override;
  void Paused() override { timeout_.Cancel(); }
  void Continued() override {
    if (!ended()) ArmTimeout();
  }
  bool finished() const override { return ended() || failed_; }
  bool keeps_until_empty() const override { return true; }
  void GroupGone() override;
  bool stored() const override { return stored_; }
  // Removes record and log.
  Status RemoveFiles();
  const std::string& directory() const { return directory_; }

 private:
  struct Stream {
    explicit Stream(StreamId stream) : id(stream) {}
    StreamId id;
    UniqueFd fd;
    Watch watch;
  };
  struct Pending {
    std::string bytes;
    size_t written = 0;
    std::function<void(const Status&)> done;
  };

  BackgroundProcess(ExecPlace& place, std::string directory)
      : place_(place), directory_(std::move(directory)) {}
  Status Launch(ProcessFields fields, oci::ProcessSpec spec);
  Result<runtime::ProcessRequest> OpenPipes(const ProcessFields& fields, oci::ProcessSpec spec,
                                            std::vector<UniqueFd>* childs);
  Status OwnAll();
  bool TerminalReady() const;
  Status AwaitExec();
  void TryExecuted();
  void FailStart(Error error);
  Status TakeKept();
  Status TakeTerminal();
  size_t kept_input() const;  // the index of the input's write end
  void WatchAll();
  void WatchStream(Stream& stream);
  void Pump(Stream& stream, size_t max_bytes);
  void PumpTerminal(size_t max_bytes);
  void FeedInput();
  void FailInput(const Error& error);
  void Exited(const runtime::AgentEvent& event);
  void ArmTimeout();
  void Store();
  void Changed();
  ExecPlace& place_;
  std::string directory_;
  ProcessFacts facts_;
  std::unique_ptr<ProcessLog> log_;
  Started started_;
  bool told_ = false;  // kStarted came: the agent's descriptors are known
  bool report_closed_ = false, taken_up_ = false;
  bool executed_ = false, failed_ = false, group_gone_ = false;
  Stream out_{StreamId::kStdout}, err_{StreamId::kStderr};
  // With a terminal stdin_ is a second descriptor of its master, and hop_ the way from the master
  // to out_.fd.
  UniqueFd stdin_, master_, hop_;
  UniqueFd report_;
  Watch input_watch_, terminal_watch_, report_watch_;
  std::deque<Pending> pending_;
  size_t pending_bytes_ = 0;
  bool close_wanted_ = false;
  Timer timeout_;
  std::map<uint64_t, std::function<void()>> followers_;
  uint64_t next_follower_ = 1;
  bool change_posted_ = false, stored_ = true;
};

}  // namespace hutch::daemon
