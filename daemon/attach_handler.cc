// GET .../processes/{process}/attach: a process's output and input over a WebSocket. Output comes
// as binary messages, a stream's number (1 stdout, 2 stderr) and its bytes; input goes as binary
// messages, bytes alone; all else is text, JSON.
#include <memory>

#include "daemon/handlers.h"
#include "daemon/log_tail.h"
#include "daemon/process_calls.h"

namespace hutch::daemon {
namespace {

using Process = std::shared_ptr<BackgroundProcess>;

class Attachment final : public TailClient, public std::enable_shared_from_this<Attachment> {
 public:
  Attachment(Loop& loop, Process process, Responder responder)
      : loop_(loop), process_(std::move(process)), responder_(std::move(responder)) {}

  void Begin(uint64_t cursor) {
    const auto self = shared_from_this();
    const Status started = responder_.StartWebSocket(
        {.on_message = [self](bool binary,
                              std::string data) { self->OnMessage(binary, std::move(data)); },
         .on_closed =
             [self] {
               if (self->tail_ != nullptr) self->tail_->Stop();
             }});
    if (!started.has_value()) return responder_.Send(started.error());
    Result<std::shared_ptr<LogTail>> tail = LogTail::Start(loop_, process_, cursor, self);
    if (!tail.has_value()) return OnError(tail.error());
    tail_ = std::move(*tail);
    Say({{"event", "attached"},
         {"cursor", std::clamp(cursor, process_->log().begin(), process_->log().end())},
         {"process", process_->ToJson()}});
  }

  void OnRun(const LogRun& run) override {
    std::string message(1, static_cast<char>(run.stream));
    message += run.bytes;
    responder_.Message(true, std::move(message));
  }
  void OnGap(uint64_t dropped_bytes) override {
    Say({{"event", "gap"}, {"dropped_bytes", dropped_bytes}});
  }
  void OnEnd() override {
    Say({{"event", "exit"}, {"process", process_->ToJson()}});
    responder_.CloseWebSocket(1000, "the process has ended");
  }
  void OnError(const Error& error) override {
    Refuse(error);
    responder_.CloseWebSocket(1011, "");
  }
  bool Congested() override { return responder_.Congested(); }
  void OnDrained(std::function<void()> handler) override {
    responder_.OnDrained(std::move(handler));
  }

 private:
  void Say(const oci::Json& json) { responder_.Message(false, oci::PrintJson(json)); }
  void Refuse(const Error& error) {
    oci::Json json = ErrorJson(error);
    json["event"] = "error";
    Say(json);
  }

  void OnMessage(bool binary, std::string data) {
    const Status status = binary ? Input(std::move(data)) : Control(data);
    if (!status.has_value()) Refuse(status.error());
  }

  // One message at a time: while it waits for the process the client waits, too.
  Status Input(std::string bytes) {
    const auto waiting = std::make_shared<bool>(true);
    Status status = process_->Write(std::move(bytes),
                                    [self = shared_from_this(), waiting](const Status& written) {
                                      *waiting = false;
                                      self->responder_.PauseMessages(false);
                                      if (!written.has_value()) self->Refuse(written.error());
                                    });
    if (status.has_value() && *waiting) responder_.PauseMessages(true);
    return status;
  }

  Status Control(const std::string& text) {
    ASSIGN_OR_RETURN(const oci::Json json,
                     oci::ParseJson(text, {.max_bytes = kMaxControlBytes, .max_depth = 4}));
    bool close_stdin = false;
    std::string signal;
    uint64_t rows = 0, columns = 0;
    oci::ObjectReader reader(json, "");
    reader.Bool("close_stdin", &close_stdin).String("signal", &signal, 32);
    if (const oci::Json* size = reader.Member("resize")) {
      oci::ObjectReader sizes(*size, "resize");
      sizes.Uint("rows", &rows, 1, UINT16_MAX).Uint("columns", &columns, 1, UINT16_MAX);
      RETURN_IF_ERROR(sizes.Done(oci::ObjectReader::Unknown::kRefuse));
    }
    RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
    if (rows > 0 && columns > 0)
      RETURN_IF_ERROR(
          process_->Resize(static_cast<uint16_t>(rows), static_cast<uint16_t>(columns)));
    if (!signal.empty()) {
      ASSIGN_OR_RETURN(const int number, ParseSignal(signal));
      RETURN_IF_ERROR(process_->Signal(number, false));
    }
    return close_stdin ? process_->CloseInput() : OkStatus();
  }

  static constexpr size_t kMaxControlBytes = 4096;

  Loop& loop_;
  Process process_;
  Responder responder_;
  std::shared_ptr<LogTail> tail_;
};

}  // namespace

void HandleAttach(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  uint64_t cursor = 0;
  for (const auto& [name, value] : request.query) {
    const Result<uint64_t> number = ParseUint(value);
    if (!number.has_value())
      return responder.Send(
          Error{.code = Code::kInvalidArgument, .what = "must be a number", .field = name});
    cursor = *number;
  }
  std::make_shared<Attachment>(api.loop, *process, std::move(responder))->Begin(cursor);
}

}  // namespace hutch::daemon
