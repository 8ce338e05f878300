#include "tools/attachment.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/file.h"
#include "tools/client.h"
#include "tools/commands.h"
#include "tools/interrupts.h"
#include "tools/terminal.h"
#include "tools/websocket.h"

namespace hutch::tools {
namespace {

using oci::Json;
using How = AttachmentEnd::How;

constexpr size_t kInputBytes = size_t{64} << 10;
constexpr size_t kMaxQueuedBytes = size_t{1} << 20;  // then our own input waits
constexpr int kDetachPauseMs = 500;  // a ctrl-p that nothing follows for so long was meant as one

class Attachment {
 public:
  Attachment(const AttachmentPlan& plan, WebSocket socket)
      : plan_(plan), socket_(std::move(socket)), raw_(STDIN_FILENO), input_open_(plan.input) {}

  Result<AttachmentEnd> Run() {
    if (plan_.terminal) {
      RETURN_IF_ERROR(raw_.Enter());
      SendSize();  // it may have changed since the process was started
    }
    RETURN_IF_ERROR(TakeMessages());  // some may have come with the handshake's answer
    while (!end_) RETURN_IF_ERROR(Turn());
    raw_.Leave();
    return *std::move(end_);
  }

 private:
  void End(How how, int signal = 0) { end_ = AttachmentEnd{.how = how, .signal = signal}; }

  Status Turn() {
    RETURN_IF_ERROR(socket_.Flush());
    const bool reads_input = input_open_ && socket_.queued_bytes() < kMaxQueuedBytes;
    const short wanted = socket_.queued_bytes() > 0 ? POLLIN | POLLOUT : POLLIN;
    pollfd watched[] = {{socket_.fd(), wanted, 0},
                        {plan_.signal_fd, POLLIN, 0},
                        {reads_input ? STDIN_FILENO : -1, POLLIN, 0}};
    const int ready = ::poll(watched, 3, keys_.waits() ? kDetachPauseMs : -1);
    if (ready < 0 && errno != EINTR) return SysError(errno, "poll");
    if (ready < 0) return OkStatus();
    if (ready == 0) socket_.SendBinary(keys_.TakeWaiting());
    if (watched[1].revents != 0) TakeSignal();
    if (!end_ && watched[0].revents != 0) RETURN_IF_ERROR(TakeMessages());
    if (!end_ && watched[2].revents != 0) RETURN_IF_ERROR(TakeInput());
    return OkStatus();
  }

  void TakeSignal() {
    const int signal = NextSignal(plan_.signal_fd);
    if (signal == SIGWINCH) {
      SendSize();
    } else if (signal == SIGTSTP) {
      raw_.Leave();
      ::raise(SIGSTOP);
    } else if (signal == SIGCONT) {
      if (plan_.terminal) IgnoreError(raw_.Enter(), "a terminal that went is told by its input");
      SendSize();
    } else if (signal != 0) {
      End(How::kSignal, signal);
    }
  }

  void SendSize() {
    if (!plan_.terminal) return;
    const TerminalSize size = SizeOfTerminal(STDIN_FILENO);
    const Json message = {{"resize", {{"rows", size.rows}, {"columns", size.columns}}}};
    socket_.SendText(oci::PrintJson(message));
  }

  Status TakeInput() {
    char bytes[kInputBytes];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return OkStatus();
    if (got <= 0) {
      input_open_ = false;
      if (plan_.terminal)
        End(How::kSignal, SIGHUP);  // the terminal is gone
      else
        socket_.SendText(R"({"close_stdin":true})");
      return OkStatus();
    }
    const std::string_view typed(bytes, static_cast<size_t>(got));
    const std::string passed = plan_.terminal ? keys_.Feed(typed) : std::string(typed);
    if (!passed.empty()) socket_.SendBinary(passed);
    if (!keys_.detached()) return OkStatus();
    // What was typed before the keys must not be lost with the connection.
    RETURN_IF_ERROR(socket_.Flush());
    End(How::kDetached);
    return OkStatus();
  }

  Status TakeMessages() {
    ASSIGN_OR_RETURN(const std::vector<WebSocketMessage> messages, socket_.Receive());
    for (const WebSocketMessage& message : messages) {
      if (end_) break;
      if (message.kind == WebSocketMessage::Kind::kBinary)
        RETURN_IF_ERROR(TakeOutput(message.data));
      if (message.kind == WebSocketMessage::Kind::kText) RETURN_IF_ERROR(TakeEvent(message.data));
      if (message.kind == WebSocketMessage::Kind::kClose)
        return Error{
            .code = Code::kUnavailable,
            .what = "the daemon closed the connection" +
                    (message.code == 1001 ? std::string(" because it stops") : message.data),
            .hint = "what runs in the background goes on; `hutch attach` joins it again"};
    }
    return OkStatus();
  }

  Status TakeOutput(std::string_view message) {
    if (message.empty()) return OkStatus();
    const int fd = message[0] == 2 ? STDERR_FILENO : STDOUT_FILENO;
    const Status written = WriteAll(fd, message.substr(1));
    if (!written && fd == STDOUT_FILENO) End(How::kOutputClosed);
    return OkStatus();
  }

  Status TakeEvent(const std::string& text) {
    ASSIGN_OR_RETURN(const Json event, oci::ParseJson(text));
    std::string name;
    uint64_t dropped_bytes = 0;
    oci::ObjectReader reader(event, "");
    reader.String("event", &name).Uint("dropped_bytes", &dropped_bytes);
    const Json* process = reader.Member("process");
    RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
    if (name == "gap") NoteGap(dropped_bytes);
    if (name == "error") return TakeError(ErrorFromReply(500, text));
    if (name != "exit" || process == nullptr) return OkStatus();
    End(How::kExited);
    end_->process = *process;
    return OkStatus();
  }

  // Input that nobody takes any more is no failure of ours: the process goes on, as at a pipe.
  Status TakeError(Error error) {
    if (error.code != Code::kBadState) return error;
    input_open_ = plan_.terminal;
    return OkStatus();
  }

  static void NoteGap(uint64_t dropped_bytes) {
    Note(std::to_string(dropped_bytes) + " bytes of output are gone: the log kept no more");
  }

  const AttachmentPlan& plan_;
  WebSocket socket_;
  RawMode raw_;
  DetachKeys keys_;
  bool input_open_;
  std::optional<AttachmentEnd> end_;
};

}  // namespace

std::string ProcessTarget(const std::string& sandbox, const std::string& process) {
  return "/v1/sandboxes/" + EncodeSegment(sandbox) + "/processes/" + EncodeSegment(process);
}

Result<AttachmentEnd> Attach(const AttachmentPlan& plan) {
  ASSIGN_OR_RETURN(
      WebSocket socket,
      WebSocket::Connect(plan.endpoint, ProcessTarget(plan.sandbox, plan.process) +
                                            "/attach?cursor=" + std::to_string(plan.cursor)));
  return Attachment(plan, std::move(socket)).Run();
}

}  // namespace hutch::tools
