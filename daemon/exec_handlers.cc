#include <memory>

#include "daemon/audit_records.h"
#include "daemon/exec_request.h"
#include "daemon/handlers.h"
#include "daemon/output_events.h"
#include "daemon/process_calls.h"

namespace hutch::daemon {
namespace {

Error Named(Error error) {
  if (error.field.empty() && std::string_view(error.step) == "workdir") error.field = "workdir";
  return error;
}

void RunToTheEnd(Api& api, SandboxEntry& entry, ExecFields fields, const Request& request,
                 Responder responder) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto record = std::make_shared<AuditEntry>(BeginExecAudit(api, entry, request, fields));
  const Result<std::shared_ptr<Exec>> exec = api.sandboxes.Run(
      entry, std::move(fields), [&api, shared, record](Result<ExecResult> result) {
        EndExecAudit(api, std::move(*record), result);
        if (result.has_value()) return shared->Send(JsonReply(200, ExecJson(std::move(*result))));
        shared->Send(Named(std::move(result).error()));
      });
  if (!exec.has_value()) {
    AuditDenial(api, request.peer, &entry, "exec", exec.error());
    return shared->Send(exec.error());
  }
  shared->OnHangup([exec = std::weak_ptr<Exec>(*exec)] {
    if (const auto running = exec.lock()) running->Kill();
  });
}

// The output of a command as events, as fast as its client takes them.
class ExecEvents : public std::enable_shared_from_this<ExecEvents> {
 public:
  ExecEvents(Loop& loop, Responder responder, Encoding encoding)
      : responder_(std::move(responder)), pieces_(encoding), heartbeat_(loop, responder_) {}

  void Begin(Api& api, SandboxEntry& entry, ExecFields fields, const Request& request) {
    const auto self = shared_from_this();
    const auto record = std::make_shared<AuditEntry>(BeginExecAudit(api, entry, request, fields));
    responder_.StartEvents();
    const ExecSink sink{.on_output =
                            [self](StreamId id, std::string_view bytes) {
                              self->Tell(id, self->pieces_.Of(id).Next(bytes));
                            },
                        .congested = [self] { return self->Congested(); },
                        .on_started =
                            [self](uint32_t process) {
                              self->responder_.Event(
                                  "started",
                                  oci::PrintJson({{"process_id", "p" + std::to_string(process)}}));
                            }};
    Result<std::shared_ptr<Exec>> exec = api.sandboxes.Run(
        entry, std::move(fields),
        [&api, self, record](Result<ExecResult> result) {
          EndExecAudit(api, std::move(*record), result);
          self->End(std::move(result));
        },
        sink);
    if (!exec.has_value()) {
      AuditDenial(api, request.peer, &entry, "exec", exec.error());
      return End(exec.error());
    }
    exec_ = *exec;
    responder_.OnHangup([self] {
      self->gone_ = true;
      self->heartbeat_.Stop();
      if (const auto running = self->exec_.lock()) {
        running->Kill();
        running->Resume();
      }
    });
    heartbeat_.Start();
  }

 private:
  bool Congested() {
    if (gone_ || !responder_.Congested()) return false;
    if (!asked_) {
      asked_ = true;
      responder_.OnDrained([self = shared_from_this()] {
        self->asked_ = false;
        if (const auto running = self->exec_.lock()) running->Resume();
      });
    }
    return true;
  }

  void Tell(StreamId id, EncodedText text) {
    if (text.text.empty()) return;
    oci::Json json = ChunkJson(id, std::move(text));
    json["seq"] = ++sequence_;
    responder_.Event("output", oci::PrintJson(json), std::to_string(sequence_));
  }

  void End(Result<ExecResult> result) {
    heartbeat_.Stop();
    for (const StreamId id : {StreamId::kStdout, StreamId::kStderr})
      Tell(id, pieces_.Of(id).Finish());
    if (result.has_value())
      responder_.Event("exit", oci::PrintJson(ExecEndJson(*result)));
    else
      responder_.Event("error", oci::PrintJson(ErrorJson(Named(std::move(result).error()))));
    responder_.End();
  }

  Responder responder_;
  Pieces pieces_;
  std::weak_ptr<Exec> exec_;
  uint64_t sequence_ = 0;
  bool asked_ = false, gone_ = false;
  Heartbeat heartbeat_;
};

// What a background process has written, as exec tells it.
void AddLoggedOutput(const BackgroundProcess& process, size_t max_bytes, Encoding encoding,
                     oci::Json* json) {
  const ProcessLog& log = process.log();
  OutputBuffer out(max_bytes), err(max_bytes);
  for (uint64_t cursor = log.begin(); cursor < log.end();) {
    const Result<std::vector<LogRun>> runs = log.Read(cursor, kMaxOutputReadBytes);
    if (!runs.has_value() || runs->empty()) break;
    for (const LogRun& run : *runs) (run.stream == StreamId::kStdout ? out : err).Append(run.bytes);
    cursor = runs->back().offset + runs->back().bytes.size();
  }
  CapturedOutput out_text = out.Take(encoding), err_text = err.Take(encoding);
  out_text.total_bytes = log.written(StreamId::kStdout);
  err_text.total_bytes = log.written(StreamId::kStderr);
  out_text.truncated |= out_text.total_bytes > out.total_bytes();
  err_text.truncated |= err_text.total_bytes > err.total_bytes();
  AddOutput(std::move(out_text), std::move(err_text), json);
}

// One that was answered whole is not remembered, once its children are gone as well.
void DropWhenGone(Api& api, const std::string& id, uint32_t number) {
  const Result<SandboxEntry*> found = api.sandboxes.Find(id);
  if (!found.has_value() || (*found)->commands == nullptr) return;
  const Result<std::shared_ptr<BackgroundProcess>> process =
      (*found)->commands->FindBackground(number);
  if (!process.has_value()) return;
  const auto drop = [&api, id, number] {
    const Result<SandboxEntry*> entry = api.sandboxes.Find(id);
    if (entry.has_value() && (*entry)->commands) (*entry)->commands->DropBackground(number);
  };
  if (!(*process)->streams_open()) return api.loop.Post(drop);
  IgnoreError((*process)->Follow([weak = std::weak_ptr(*process), &api, drop] {
    const auto gone = weak.lock();
    if (gone != nullptr && !gone->streams_open()) api.loop.Post(drop);
  }),
              "it is remembered then, as others are");
}

// Waits for a while; the command goes on as a background process when that is not enough, and
// leaves nothing behind when it is.
void RunAndYield(Api& api, const Request& request, SandboxEntry& entry, ExecFields fields,
                 Responder responder) {
  const std::string id = entry.facts.id;
  ProcessFields process_fields;
  static_cast<CommandFields&>(process_fields) = fields;
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto place = std::make_shared<std::weak_ptr<BackgroundProcess>>();
  const auto answer = [&api, id, max = fields.max_output_bytes, encoding = fields.encoding](
                          Responder& to, const BackgroundProcess& process) {
    oci::Json json;
    const uint32_t number = process.facts().number;
    if (process.ended())
      AddEnd(*process.facts().end, &json);
    else
      json["exit_code"] = nullptr;
    json["running"] = !process.ended();
    json["process_id"] = "p" + std::to_string(number);
    json["cursor"] = process.log().end();
    AddLoggedOutput(process, max, encoding, &json);
    to.Send(JsonReply(200, json));
    if (process.ended()) DropWhenGone(api, id, number);
  };
  const auto started = [&api, id, shared, place, peer = request.peer,
                        seconds = *fields.wait_seconds, answer](const Status& status) {
    if (!status.has_value()) return shared->Send(Named(status.error()));
    const std::shared_ptr<BackgroundProcess> process = place->lock();
    if (process == nullptr) return;
    const Result<SandboxEntry*> found = api.sandboxes.Find(id);
    if (found.has_value()) AuditProcess(api, peer, **found, *process);
    WaitFor(
        api, process, seconds, std::move(*shared),
        [](const BackgroundProcess& one) { return one.ended(); }, answer);
  };
  const Result<std::shared_ptr<BackgroundProcess>> process =
      api.sandboxes.StartProcess(entry, std::move(process_fields), started);
  if (!process.has_value()) {
    AuditDenial(api, request.peer, &entry, "exec", process.error());
    return shared->Send(process.error());
  }
  *place = *process;
}

}  // namespace

void HandleExec(Api& api, Request request, Responder responder) {
  Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  Result<ExecFields> fields = ParseExecFields(request.json, api.config);
  if (!fields.has_value()) return responder.Send(fields.error());
  const Status command = UseImageCommand((*entry)->facts.process.args, &*fields);
  if (!command.has_value()) return responder.Send(command.error());
  const bool streams = request.wants_events || request.wants_ndjson;
  if (streams && fields->wait_seconds)
    return responder.Send(Error{.code = Code::kInvalidArgument,
                                .what = "does not go with events: start a process and follow it",
                                .field = "wait_seconds"});
  entry = ReadyFor(api, **entry, *fields);
  if (!entry.has_value()) return responder.Send(entry.error());
  if (streams)
    return std::make_shared<ExecEvents>(api.loop, std::move(responder), fields->encoding)
        ->Begin(api, **entry, std::move(*fields), request);
  if (fields->wait_seconds)
    return RunAndYield(api, request, **entry, std::move(*fields), std::move(responder));
  RunToTheEnd(api, **entry, std::move(*fields), request, std::move(responder));
}

}  // namespace hutch::daemon
