// One command run to its end: pipes, output, time-out, and the facts of its end. On the loop's
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"
#include "daemon/exec_request.h"
#include "daemon/file_tracker.h"
#include "daemon/loop.h"
#include "daemon/running.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

// Hybrid hosts count out-of-memory kills and refused forks for a sandbox as a whole: what a command
// did is told by the difference.
struct SandboxCounters {
  uint64_t oom_kills = 0;
  uint64_t pids_limit_hits = 0;
};

// What a command needs of the sandbox it runs in; outlives it.
struct ExecPlace {
  Loop& loop;
  runtime::Sandbox& sandbox;
  cgroups::Mode mode;
  SandboxCounters counters;  // as last read
  FileTracker* tracker = nullptr;
  // Whether anything but this process, whose leader has ended, may still write.
  std::function<Others(uint32_t process)> others = {};
};
SandboxCounters ReadCounters(const runtime::Sandbox& sandbox);

class Exec final : public Running, public std::enable_shared_from_this<Exec> {
 public:
  // Called once, when the answer is known; the process's group may still hold children then.
  using Done = std::function<void(Result<ExecResult>)>;

  // `spec` is complete. Answers to `done` later, never from within. Errors as of
  // Sandbox::StartProcess, or kKernel for a pipe.
  static Result<std::shared_ptr<Exec>> Start(ExecPlace& place, ExecFields fields,
                                             oci::ProcessSpec spec, Done done);

  // The same in two steps: Launch() starts the process and is called once. Killed before it, the
  // command is answered with kUnavailable.
  static std::shared_ptr<Exec> Make(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec,
                                    Done done);
  Status Launch();
  void Fail(Error error);  // answers, unless that has been done
  // How the files were before; before Launch().
  void SetFilesBefore(FileTracker::SnapshotPointer before) { files_before_ = std::move(before); }

  uint32_t process() const { return process_; }
  bool answered() const { return done_ == nullptr; }

  void OnEvent(const runtime::AgentEvent& event) override;
  void Kill() override;
  void SandboxEnded() override;
  bool finished() const override { return answered(); }
  std::vector<UniqueFd> TakePipes() override;

 private:
  struct Stream {
    explicit Stream(size_t max_bytes) : buffer(max_bytes) {}
    OutputBuffer buffer;
    UniqueFd fd;
    Watch watch;  // before fd goes
  };

  Exec(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec, Done done);
  Status OpenPipes(const oci::User& user, Pipe* in, Pipe* out, Pipe* err);
  void WatchOutput(Stream& stream);
  void WatchDeadline(double timeout_seconds);
  void ReadOutput(Stream& stream, size_t max_bytes);
  void FeedStdin();
  void TimeOut();
  void SendKill();
  void Exited(const runtime::AgentEvent& event);
  void Finish(ExecResult result);
  void ReadStats(const runtime::AgentEvent& event, ExecResult* result);

  ExecPlace& place_;
  Done done_;
  Stream out_, err_;
  oci::ProcessSpec spec_;  // until Launch()
  double timeout_seconds_;
  FileTracker::SnapshotPointer files_before_;
  std::string stdin_bytes_;
  size_t stdin_done_ = 0;
  UniqueFd stdin_fd_;
  Watch stdin_watch_;
  Timer timer_;
  SteadyTime start_;
  SandboxCounters before_;
  EndFacts facts_;
  uint32_t process_ = 0;
};

}  // namespace hutch::daemon
