#include "daemon/file_calls.h"

#include "base/file.h"

namespace hutch::daemon {
namespace {

using Call = std::shared_ptr<FileCall>;
using Shared = std::shared_ptr<Responder>;

}  // namespace

void KillOnHangup(Responder& responder, const Call& call) {
  responder.OnHangup([weak = std::weak_ptr(call)] {
    if (const Call running = weak.lock()) running->Kill();
  });
}

void AskFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
              std::function<Reply(FileAnswer&)> reply) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto answer = std::make_shared<FileAnswer>();
  FileCall::Spec spec{.request = std::move(request)};
  spec.on_line = [answer](FileCall&, FileLine& line) {
    if (line.kind == "ok")
      answer->ok = std::move(line.value);
    else
      answer->lines[line.kind].push_back(std::move(line.value));
  };
  spec.on_end = [shared, answer, reply = std::move(reply)](const Status& status) {
    shared->Send(status ? reply(*answer) : ErrorReply(status.error()));
  };
  const auto call = FileCall::Start(api, sandbox, std::move(spec));
  if (!call) return shared->Send(call.error());
  KillOnHangup(*shared, *call);
}

void StreamFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
                 std::function<Result<StreamPlan>(const oci::Json&)> plan) {
  auto pipe = MakePipe();
  if (!pipe) return responder.Send(pipe.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto bytes = std::make_shared<UniqueFd>(std::move(pipe->read));
  const auto sent = std::make_shared<bool>(false);
  FileCall::Spec spec{.request = std::move(request), .stdout_fd = std::move(pipe->write)};
  spec.on_line = [shared, bytes, sent, plan = std::move(plan)](FileCall& call, FileLine& line) {
    if (line.kind != "ok" || std::exchange(*sent, true)) return;
    Result<StreamPlan> planned = plan(line.value);
    if (!planned) return shared->Send(planned.error()), call.Kill();
    if (!planned->head) return shared->Send(std::move(planned->reply)), call.Kill();
    shared->SendStream(std::move(*planned->head), std::move(*bytes),
                       [weak = call.weak_from_this()](const Result<uint64_t>& moved) {
                         const Call running = weak.lock();
                         if (!moved && running) running->Kill();
                       });
  };
  spec.on_end = [shared, sent](const Status& status) {
    // What fails later is seen by the client as bytes that are missing.
    if (!*sent && !status) shared->Send(status.error());
  };
  const auto call = FileCall::Start(api, sandbox, std::move(spec));
  if (!call) return shared->Send(call.error());
  KillOnHangup(*shared, *call);
}

void TakeFiles(Api& api, const std::string& sandbox, oci::Json request, Responder responder,
               std::function<Reply(const oci::Json&)> reply) {
  auto pipe = MakePipe();
  if (!pipe) return responder.Send(pipe.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const auto ok = std::make_shared<oci::Json>();
  FileCall::Spec spec{.request = std::move(request), .stdin_fd = std::move(pipe->read)};
  spec.on_line = [ok](FileCall&, FileLine& line) {
    if (line.kind == "ok") *ok = std::move(line.value);
  };
  spec.on_end = [shared, ok, reply = std::move(reply)](const Status& status) {
    shared->Send(status ? reply(*ok) : ErrorReply(status.error()));
  };
  const auto call = FileCall::Start(api, sandbox, std::move(spec));
  if (!call) return shared->Send(call.error());
  KillOnHangup(*shared, *call);
  ReceiveInto(shared, std::move(pipe->write), *call);
}

}  // namespace hutch::daemon
