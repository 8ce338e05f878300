// One command run to its end for a client that waits: pipes, output, time-out, and the facts of its
// end. On the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/exec_request.h"
#include "daemon/loop.h"
#include "daemon/process_end.h"
#include "daemon/process_log.h"
#include "daemon/running.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

// A client that takes the output as it comes, instead of in the answer.
struct ExecSink {
  std::function<void(StreamId, std::string_view)> on_output;
  // It is behind: nothing more is read until Resume(). The command blocks once its pipe is full.
  std::function<bool()> congested;
  std::function<void(uint32_t process)> on_started = {};  // its number is known
};

class Exec final : public Running, public std::enable_shared_from_this<Exec> {
 public:
  // Called once, when the answer is known; the process's group may still hold children then.
  using Done = std::function<void(Result<ExecResult>)>;

  // `spec` is complete. With a sink the result holds counts, no output.
  static std::shared_ptr<Exec> Make(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec,
                                    Done done, ExecSink sink = {});
  // Starts the process; once. Answers to `done` later, never from within; killed before it, the
  // command is answered with kUnavailable. Errors as of Sandbox::StartProcess, or kKernel for a
  // pipe.
  Status Launch();
  void Resume();           // the sink can take more
  void Fail(Error error);  // answers, unless that has been done
  // How the files were before; before Launch().
  void SetFilesBefore(FileTracker::SnapshotPointer before) { files_before_ = std::move(before); }

  uint32_t process() const { return process_; }
  bool answered() const { return done_ == nullptr; }

  void OnEvent(const runtime::AgentEvent& event) override;
  void Kill() override;
  void SandboxEnded() override;
  void Paused() override;
  void Continued() override;
  bool finished() const override { return answered(); }
  std::vector<UniqueFd> TakePipes() override;

 private:
  struct Stream {
    Stream(StreamId stream, size_t max_bytes) : id(stream), buffer(max_bytes) {}
    StreamId id;
    OutputBuffer buffer;
    UniqueFd fd;
    Watch watch;  // before fd goes
  };

  Exec(ExecPlace& place, ExecFields fields, oci::ProcessSpec spec, Done done, ExecSink sink);
  Status OpenPipes(const oci::User& user, bool merge, Pipe* in, Pipe* out, Pipe* err);
  void WatchOutput(Stream& stream);
  void WatchDeadline(Milliseconds left);
  bool congested() const { return sink_.congested && sink_.congested(); }
  void ReadOutput(Stream& stream, size_t max_bytes);
  void Drain();
  void FeedStdin();
  void TimeOut();
  void SendKill();
  void Exited(const runtime::AgentEvent& event);
  void Finish();

  ExecPlace& place_;
  Done done_;
  ExecSink sink_;
  Encoding encoding_;
  Stream out_, err_;
  oci::ProcessSpec spec_;  // until Launch()
  double timeout_seconds_;
  bool merge_output_;
  FileTracker::SnapshotPointer files_before_;
  std::string stdin_bytes_;
  size_t stdin_done_ = 0;
  UniqueFd stdin_fd_;
  Watch stdin_watch_;
  Timer timer_;
  std::optional<SteadyTime> deadline_;  // of its time-out
  std::optional<Milliseconds> left_;    // of it, while the sandbox is paused
  SteadyTime start_;
  SandboxCounters before_;
  ProcessEnd end_;
  bool exited_ = false;
  uint32_t process_ = 0;
};

}  // namespace hutch::daemon
