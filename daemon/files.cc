#include "daemon/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"
#include "rootfs/child_program.h"

namespace hutch::daemon {
namespace {

// What changes files.
struct AuditRow {
  const char* op;
  AuditKind kind;
};
constexpr AuditRow kAudited[] = {
    {"write", AuditKind::kFileWrite},       {"mkdir", AuditKind::kFileWrite},
    {"move", AuditKind::kFileWrite},        {"copy", AuditKind::kFileWrite},
    {"edit", AuditKind::kFileWrite},        {"unpack", AuditKind::kFileWrite},
    {"batch_write", AuditKind::kFileWrite}, {"delete", AuditKind::kFileDelete},
};

constexpr size_t kMaxProgramBytes = 64u << 20;

struct Started {
  std::vector<std::string> args;
  UniqueFd stdin_fd;
};

// A long request goes as a sealed file on descriptor 0; one with bytes of its own is short.
Result<Started> PlaceRequest(const oci::Json& request, UniqueFd stdin_fd) {
  std::string text = oci::PrintJson(request);
  if (text.size() <= kMaxFileRequestArgBytes)
    return Started{{"hutch-files", std::move(text)}, std::move(stdin_fd)};
  if (stdin_fd.valid())
    return Error{.code = Code::kTooLarge, .what = "a request of too many bytes beside its body"};
  ASSIGN_OR_RETURN(UniqueFd file, SealedMemfd("request", text));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return SysError(errno, "seek in a request");
  return Started{{"hutch-files", "-"}, std::move(file)};
}

}  // namespace

Result<int> FilesProgram::Fd() {
  if (memfd_.valid()) return memfd_.get();
  ASSIGN_OR_RETURN(const std::string path, rootfs::FindProgram("hutch-files"));
  ASSIGN_OR_RETURN(const std::string program, ReadFile(path, kMaxProgramBytes));
  ASSIGN_OR_RETURN(memfd_, SealedMemfd("hutch-files", program));
  return memfd_.get();
}

Result<std::shared_ptr<FileCall>> FileCall::Start(Api& api, const FileTarget& target, Spec spec) {
  ASSIGN_OR_RETURN(SandboxEntry * entry, api.sandboxes.FindRunning(target.sandbox));
  ASSIGN_OR_RETURN(const int program_fd, api.files.Fd());
  ASSIGN_OR_RETURN(Pipe reply, MakePipe());
  if (::fcntl(reply.read.get(), F_SETFL, O_NONBLOCK) != 0) return SysError(errno, "fcntl");
  ASSIGN_OR_RETURN(Started started, PlaceRequest(spec.request, std::move(spec.stdin_fd)));
  const std::shared_ptr<FileCall> call(
      new FileCall(api, {entry->facts.id, target.caller}, std::move(spec)));
  call->reply_ = std::move(reply.read);
  call->watch_ = api.loop.Add(call->reply_.get(), [weak = std::weak_ptr(call)](Ready) {
    if (const auto self = weak.lock()) self->OnReadable();
  });
  ToolSpec tool{.args = std::move(started.args),
                .user = {},
                .program_fd = program_fd,
                .stdin_fd = std::move(started.stdin_fd),
                .stdout_fd = std::move(call->spec_.stdout_fd),
                .stderr_fd = std::move(reply.write)};
  // The process's end keeps the call alive until then.
  ASSIGN_OR_RETURN(call->process_,
                   api.sandboxes.RunTool(*entry, std::move(tool), [call](Result<int> outcome) {
                     call->OnExit(std::move(outcome));
                   }));
  call->watch_.Arm(Ready::kReadable);
  return call;
}

void FileCall::Kill() {
  if (process_ && !exit_) process_->Kill();
}

void FileCall::Pause(bool paused) {
  paused_ = paused;
  if (paused || ended_) return;
  // Not from within the call: lines call handlers, which may pause again.
  api_.loop.Post([self = shared_from_this()] { self->OnReadable(); });
}

// One turn of it: a process that writes without end must not keep the loop. Whether there may be
// more.
bool FileCall::ReadLines() {
  char block[16 * 1024];
  for (size_t turn = 0; !error_ && !paused_; ++turn) {
    if (turn == kFileReadsPerTurn) return true;
    const ssize_t n = ::read(reply_.get(), block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    pending_.append(block, static_cast<size_t>(n));
    read_bytes_ += static_cast<uint64_t>(n);
    if ((spec_.endless ? pending_.size() : read_bytes_) > kMaxFileReplyBytes)
      error_ = Error{.code = Code::kTooLarge, .what = "the answer from inside is too long"};
    TakeLines();
  }
  return paused_;
}

void FileCall::TakeLines() {
  size_t begin = 0;
  for (size_t end; !error_ && (end = pending_.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    auto line = ParseFileLine(std::string_view(pending_).substr(begin, end - begin));
    if (!spec_.endless && ++lines_ > kMaxFileReplyLines) {
      error_ = Error{.code = Code::kTooLarge, .what = "the answer from inside has too many lines"};
    } else if (!line) {
      error_ = std::move(line).error();
    } else if (line->kind == "error") {
      error_ = FileErrorOf(line->value);
    } else {
      answered_ = answered_ || line->kind == "ok";
      if (spec_.on_line) spec_.on_line(*this, *line);
    }
  }
  pending_.erase(0, begin);
}

// Nothing is there now; once the process is dead that is the end.
bool FileCall::AtEnd() const {
  struct pollfd reply {
    .fd = reply_.get(), .events = POLLIN, .revents = 0
  };
  return ::poll(&reply, 1, 0) == 0 || (reply.revents & POLLIN) == 0;
}

void FileCall::OnReadable() {
  if (ended_) return;
  const auto self = shared_from_this();
  const bool more = ReadLines();
  if (error_) Kill();
  if (paused_) return;
  const bool drained = !more || error_ || AtEnd();
  if (exit_ && drained) return Finish();
  if (exit_) return api_.loop.Post([self] { self->OnReadable(); });
  if (more && !error_) watch_.Arm(Ready::kReadable);
}

// What it said is still to be told, turn by turn.
void FileCall::OnExit(Result<int> outcome) {
  const auto self = shared_from_this();
  exit_ = std::move(outcome);
  held_.reset();
  if (!paused_) OnReadable();
}

// As much of a client's value as the log keeps.
oci::Json Bounded(const oci::Json& value) {
  if (value.is_number()) return value;
  if (!value.is_string()) return nullptr;
  return value.get_ref<const std::string&>().substr(0, kMaxAuditCommandBytes);
}

FileTarget TargetOf(const Request& request) { return {request.parameters[0], request.peer}; }

// Paths are the sandbox's affair and bounded by its request: told as they were asked for.
void FileCall::Record() const {
  const auto asked = spec_.request.find("op");
  if (asked == spec_.request.end() || !asked->is_string()) return;
  const std::string& op = asked->get_ref<const std::string&>();
  for (const AuditRow& row : kAudited) {
    if (op != row.op) continue;
    AuditEntry entry{.kind = row.kind,
                     .sandbox = target_.sandbox,
                     .caller = target_.caller,
                     .outcome = error_ ? CodeName(error_->code) : "ok",
                     .detail = {{"call", op}}};
    for (const char* member : {"path", "path_base64", "from", "to", "expected_bytes"})
      if (spec_.request.contains(member)) entry.detail[member] = Bounded(spec_.request[member]);
    if (spec_.request.contains("files") && spec_.request["files"].is_array())
      entry.detail["files"] = spec_.request["files"].size();
    return api_.audit.Record(std::move(entry));
  }
}

void FileCall::Finish() {
  if (std::exchange(ended_, true)) return;
  watch_.Reset();
  process_.reset();
  if (!exit_->has_value()) error_ = exit_->error();
  if (!error_ && !answered_) {
    const auto running = api_.sandboxes.FindRunning(target_.sandbox);
    error_ = !running ? running.error()
                      : Error{.code = Code::kUnavailable,
                              .what = "the process that serves files inside was killed"};
  }
  Record();
  const auto on_end = std::move(spec_.on_end);
  spec_.on_line = nullptr;
  if (on_end) on_end(error_ ? Status(*error_) : OkStatus());
}

std::string QueryValue(const Request& request, std::string_view name) {
  for (const auto& [key, value] : request.query)
    if (key == name) return value;
  return {};
}

Result<bool> QueryFlag(const Request& request, std::string_view name) {
  const std::string value = QueryValue(request, name);
  if (value == "true" || value == "1") return true;
  if (value.empty() || value == "false" || value == "0") return false;
  return Error{
      .code = Code::kInvalidArgument, .what = "must be true or false", .field = std::string(name)};
}

void ReceiveInto(const std::shared_ptr<Responder>& responder, UniqueFd write_end,
                 std::shared_ptr<FileCall> call) {
  // A copy that stays open until it is known that all of the body arrived.
  auto held = Duplicate(write_end.get());
  if (!held) {
    call->Kill();
    return;
  }
  const auto keep = std::make_shared<UniqueFd>(std::move(*held));
  responder->ReceiveBody(std::move(write_end), [keep, call](const Result<uint64_t>& moved) {
    // EPIPE: the process has ended, or ends, and says why.
    if (!moved && moved.error().sys != EPIPE) call->Kill();
    if (moved || moved.error().sys == EPIPE) return keep->reset();
    // Killed, but not dead yet: the end of the body must not reach it.
    call->HoldUntilEnd(keep);
  });
}

}  // namespace hutch::daemon
