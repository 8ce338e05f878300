#include <csignal>
#include <memory>

#include "daemon/audit_records.h"
#include "daemon/exec_request.h"
#include "daemon/handlers.h"
#include "daemon/process_calls.h"

namespace hutch::daemon {
namespace {

using Process = std::shared_ptr<BackgroundProcess>;

// The answer of one call that waits for a process, and the tie to it.
struct Wait {
  explicit Wait(Responder r) : responder(std::move(r)) {}
  Responder responder;
  Process process;
  uint64_t follower = 0;
  Timer timer;
  bool over = false;

  void Finish() {
    over = true;
    timer.Cancel();
    process->Unfollow(follower);
  }
};

Result<double> WaitSeconds(const Request& request) {
  for (const auto& [name, value] : request.query) {
    if (name != "wait_seconds") continue;
    const Result<uint64_t> seconds = ParseUint(value, kMaxWaitSeconds);
    if (!seconds.has_value())
      return Error{.code = Code::kInvalidArgument,
                   .what = "must be whole seconds up to " + std::to_string(kMaxWaitSeconds),
                   .field = "wait_seconds"};
    return static_cast<double>(*seconds);
  }
  return 0.0;
}

bool AllGone(const BackgroundProcess& process) {
  return process.ended() && !process.streams_open();
}

void Remove(Api& api, const std::string& id, uint32_t number, Responder& responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(id);
  if (entry.has_value() && (*entry)->commands != nullptr)
    (*entry)->commands->DropBackground(number);
  responder.Send(Reply{.status = 204, .body = {}});
}

}  // namespace

void WaitFor(Api& api, Process process, double seconds, Responder responder,
             std::function<bool(const BackgroundProcess&)> done,
             std::function<void(Responder&, const BackgroundProcess&)> answer) {
  const auto wait = std::make_shared<Wait>(std::move(responder));
  wait->process = std::move(process);
  const auto finish = [wait, answer = std::move(answer)] {
    if (wait->over) return;
    wait->Finish();
    answer(wait->responder, *wait->process);
  };
  const Result<uint64_t> follower = wait->process->Follow([wait, done, finish] {
    if (done(*wait->process)) finish();
  });
  if (!follower.has_value()) return wait->responder.Send(follower.error());
  wait->follower = *follower;
  wait->responder.OnHangup([wait] { wait->Finish(); });
  if (seconds >= 0)
    wait->timer.Start(api.loop, Milliseconds(static_cast<int64_t>(seconds * 1000)), finish);
}

Result<SandboxEntry*> ReadyFor(Api& api, SandboxEntry& entry, const CommandFields& fields) {
  const bool paused = entry.pausing != nullptr || entry.moments.state == SandboxState::kPaused;
  if (paused && fields.resume) RETURN_IF_ERROR(api.sandboxes.Resume(entry, MoveCause::kExec));
  return api.sandboxes.FindRunning(entry.facts.id);
}

Result<uint32_t> ParseProcessId(const std::string& text) {
  const auto number = text.starts_with('p') ? ParseUint(text.substr(1), UINT32_MAX) : ParseUint("");
  if (!number.has_value() || *number == 0)
    return Error{.code = Code::kNotFound, .what = "no process \"" + text + "\""};
  return static_cast<uint32_t>(*number);
}

Result<Process> FindProcess(Api& api, const Request& request) {
  ASSIGN_OR_RETURN(SandboxEntry * entry, api.sandboxes.FindLiving(request.parameters[0]));
  ASSIGN_OR_RETURN(const uint32_t number, ParseProcessId(request.parameters[1]));
  return entry->commands->FindBackground(number);
}

void HandleStartProcess(Api& api, Request request, Responder responder) {
  Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  Result<ProcessFields> fields = ParseProcessFields(request.json, api.config);
  if (!fields.has_value()) return responder.Send(fields.error());
  const Status command = UseImageCommand((*entry)->facts.process.args, &*fields);
  if (!command.has_value()) return responder.Send(command.error());
  entry = ReadyFor(api, **entry, *fields);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto place = std::make_shared<std::weak_ptr<BackgroundProcess>>();
  const std::string id = (*entry)->facts.id;
  Result<Process> process = api.sandboxes.StartProcess(
      **entry, std::move(*fields),
      [&api, id, shared, place, peer = request.peer](const Status& started) {
        const Process running = place->lock();
        const Result<SandboxEntry*> found = api.sandboxes.Find(id);
        if (!started.has_value()) return shared->Send(started.error());
        if (running == nullptr || !found.has_value()) return;
        AuditProcess(api, peer, **found, *running);
        shared->Send(JsonReply(201, running->ToJson()));
      });
  if (!process.has_value()) {
    AuditDenial(api, request.peer, *entry, "start process", process.error());
    return shared->Send(process.error());
  }
  *place = *process;
  // Whoever asked never learns its id: it would run on unknown.
  shared->OnHangup([place] {
    if (const Process running = place->lock()) running->Kill();
  });
}

void HandleListProcesses(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  oci::Json list = oci::Json::array();
  for (const auto& [number, process] : (*entry)->commands->background())
    list.push_back(process->ToJson());
  responder.Send(JsonReply(200, {{"processes", std::move(list)}}));
}

void HandleGetProcess(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  const Result<double> seconds = WaitSeconds(request);
  if (!seconds.has_value()) return responder.Send(seconds.error());
  if ((*process)->ended() || *seconds <= 0)
    return responder.Send(JsonReply(200, (*process)->ToJson()));
  WaitFor(
      api, *process, *seconds, std::move(responder),
      [](const BackgroundProcess& one) { return one.ended(); },
      [](Responder& answer, const BackgroundProcess& one) {
        answer.Send(JsonReply(200, one.ToJson()));
      });
}

void HandleDeleteProcess(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  const std::string id = request.parameters[0];
  const uint32_t number = (*process)->facts().number;
  if (AllGone(**process)) return Remove(api, id, number, responder);
  (*process)->Kill();
  WaitFor(api, *process, -1, std::move(responder), AllGone,
          [&api, id, number](Responder& answer, const BackgroundProcess&) {
            Remove(api, id, number, answer);
          });
}

void HandleSignalProcess(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  std::string text, target = "leader";
  oci::ObjectReader reader(request.json, "");
  const oci::Json* given = reader.Member("signal");
  if (given != nullptr && given->is_number_unsigned())
    text = given->dump();
  else
    reader.String("signal", &text, 32);
  reader.String("target", &target, 16);
  if (target != "leader" && target != "tree") reader.Fail("target", "must be leader or tree");
  Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  const Result<int> signal = ParseSignal(text);
  if (!signal.has_value()) return responder.Send(signal.error());
  status = (*process)->Signal(*signal, target == "tree");
  if (!status.has_value()) return responder.Send(status.error());
  responder.Send(Reply{.status = 204, .body = {}});
}

void HandleWriteStdin(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  std::string bytes;
  bool close = false;
  oci::ObjectReader reader(request.json, "");
  ParseBytes(reader, "data", &bytes);
  reader.Bool("close", &close);
  Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  const size_t size = bytes.size();
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto answer = [shared, size](const Status& written) {
    if (written.has_value())
      shared->Send(JsonReply(200, {{"written_bytes", size}}));
    else
      shared->Send(written.error());
  };
  if (close && (*process)->facts().terminal) return shared->Send((*process)->CloseInput().error());
  status = (*process)->Write(std::move(bytes), answer);
  if (!status.has_value()) return shared->Send(status.error());
  if (close) IgnoreError((*process)->CloseInput(), "it has ended meanwhile");
}

void HandleResizeProcess(Api& api, Request request, Responder responder) {
  const Result<Process> process = FindProcess(api, request);
  if (!process.has_value()) return responder.Send(process.error());
  uint64_t rows = 0, columns = 0;
  oci::ObjectReader reader(request.json, "");
  reader.Uint("rows", &rows, 1, UINT16_MAX).Uint("columns", &columns, 1, UINT16_MAX);
  if (rows == 0) reader.Fail("rows", "is required");
  if (columns == 0) reader.Fail("columns", "is required");
  Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (status.has_value())
    status = (*process)->Resize(static_cast<uint16_t>(rows), static_cast<uint16_t>(columns));
  if (!status.has_value()) return responder.Send(status.error());
  responder.Send(Reply{.status = 204, .body = {}});
}

}  // namespace hutch::daemon
