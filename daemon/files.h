// One file request: a hutch-files process inside the sandbox, as its user, and what it answers.
// Nothing here resolves a path of a sandbox.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/file_reply.h"
#include "daemon/message.h"
#include "daemon/routes.h"
#include "daemon/tool_process.h"

namespace hutch::daemon {

// The program, read into a sealed memfd when it is needed first.
class FilesProgram {
 public:
  Result<int> Fd();  // borrowed. kNotFound when it is not installed

 private:
  UniqueFd memfd_;
};

// Whose files, and who asks.
struct FileTarget {
  std::string sandbox;  // id or name
  Peer caller = Peer();
};
FileTarget TargetOf(const Request& request);  // the first parameter of its path

class FileCall : public std::enable_shared_from_this<FileCall> {
 public:
  struct Spec {
    oci::Json request;               // with "op"
    UniqueFd stdin_fd = UniqueFd();  // the process's ends; not valid: /dev/null
    UniqueFd stdout_fd = UniqueFd();
    bool endless = false;  // bounds each line instead of the whole answer
    // Each line but "error", in order; before on_end. May be empty.
    std::function<void(FileCall&, FileLine&)> on_line = {};
    // Once, last: it did what was asked, or why not. Never from within Start().
    std::function<void(const Status&)> on_end = {};
  };

  // Errors of finding the sandbox and starting the process. It goes on until it ends or Kill().
  // What changes files is recorded in the audit log when it ends.
  static Result<std::shared_ptr<FileCall>> Start(Api& api, const FileTarget& target, Spec spec);
  void Kill();
  // Keeps a descriptor open until the process is dead.
  void HoldUntilEnd(std::shared_ptr<UniqueFd> held) {
    if (!exit_) held_ = std::move(held);
  }
  // No more lines until `false`.
  void Pause(bool paused);

 private:
  FileCall(Api& api, FileTarget target, Spec spec)
      : api_(api), target_(std::move(target)), spec_(std::move(spec)) {}
  void Record() const;
  void OnReadable();
  bool ReadLines();
  bool AtEnd() const;
  void TakeLines();
  void OnExit(Result<int> outcome);
  void Finish();

  Api& api_;
  FileTarget target_;  // by id
  Spec spec_;
  UniqueFd reply_;
  Watch watch_;  // behind what it watches
  std::shared_ptr<ToolProcess> process_;
  std::shared_ptr<UniqueFd> held_;
  std::string pending_;
  uint64_t read_bytes_ = 0, lines_ = 0;
  bool paused_ = false, answered_ = false, ended_ = false;
  std::optional<Result<int>> exit_;
  std::optional<Error> error_;
};

// The values of a query parameter or header field that files take.
std::string QueryValue(const Request& request, std::string_view name);
// "true" or "1"; absent or "false": false; kInvalidArgument otherwise.
Result<bool> QueryFlag(const Request& request, std::string_view name);

// A pipe whose write end the request's body goes into and whose read end a process reads. The
// process sees the end of the body only when all of it arrived: else it is killed first.
void ReceiveInto(const std::shared_ptr<Responder>& responder, UniqueFd write_end,
                 std::shared_ptr<FileCall> call);

}  // namespace hutch::daemon
