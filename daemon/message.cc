#include "daemon/message.h"

namespace hutch::daemon {

Reply JsonReply(int status, const oci::Json& json) {
  return Reply{.status = status, .body = oci::PrintJson(json)};
}

oci::Json ErrorJson(const Error& error) {
  oci::Json inner = {{"code", CodeName(error.code)}, {"message", error.what}};
  if (!error.field.empty()) inner["field"] = error.field;
  if (!error.hint.empty()) inner["hint"] = error.hint;
  if (*error.step != '\0') inner["step"] = error.step;
  if (error.sys != 0) inner["errno"] = ErrnoName(error.sys);
  return {{"error", std::move(inner)}};
}

Reply ErrorReply(const Error& error) {
  return JsonReply(CodeHttpStatus(error.code), ErrorJson(error));
}

Responder::~Responder() {
  if (sink_ != nullptr)
    Send(Error{.code = Code::kInternal, .what = "the request was not answered"});
}

void Responder::Send(Reply reply) {
  CHECK(sink_ != nullptr);
  const std::shared_ptr<ReplySink> sink = std::move(sink_);
  sink_ = nullptr;
  sink->SendReply(std::move(reply));
}

void Responder::OnHangup(std::function<void()> handler) {
  sink_->SetHangupHandler(std::move(handler));
}

void Responder::StartEvents() { sink_->StartEvents(); }
void Responder::Event(std::string_view name, std::string data) {
  sink_->SendEvent(name, std::move(data));
}

void Responder::End() {
  const std::shared_ptr<ReplySink> sink = std::move(sink_);
  sink_ = nullptr;
  sink->EndEvents();
}

}  // namespace hutch::daemon
