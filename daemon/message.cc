#include "daemon/message.h"

#include <strings.h>

#include <algorithm>

#include "base/text.h"

namespace hutch::daemon {
namespace {

constexpr int kRetryUnavailableSeconds = 1;
constexpr int kRetryLimitSeconds = 5;

// Between the tokens of JSON a line break is white space; inside of strings it is escaped.
std::string OneLine(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

}  // namespace

std::string_view Request::Header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0)
      return value;
  return {};
}

std::string EventText(EventFormat format, std::string_view name, std::string_view json_object,
                      std::string_view id) {
  const std::string data = OneLine(Trim(json_object));
  std::string text;
  if (format == EventFormat::kServerSent) {
    text.append("event: ").append(OneLine(name)).append("\n");
    if (!id.empty()) text.append("id: ").append(OneLine(id)).append("\n");
    return text.append("data: ").append(data).append("\n\n");
  }
  text.append("{\"event\":").append(oci::PrintJson(std::string(name)));
  if (!id.empty()) text.append(",\"id\":").append(oci::PrintJson(std::string(id)));
  CHECK(data.size() >= 2 && data.front() == '{' && data.back() == '}');
  const std::string_view members = Trim(std::string_view(data).substr(1, data.size() - 2));
  if (!members.empty()) text.append(",").append(members);
  return text.append("}\n");
}

Reply JsonReply(int status, const oci::Json& json) {
  Reply reply{.status = status, .body = oci::PrintJson(json)};
  if (status < 400 || !json.is_object()) return reply;
  const auto error = json.find("error");
  if (error != json.end() && error->is_object() && error->contains("retry_after_seconds"))
    reply.headers.emplace_back("Retry-After", oci::PrintJson((*error)["retry_after_seconds"]));
  return reply;
}

oci::Json ErrorJson(const Error& error) {
  oci::Json inner = {{"code", CodeName(error.code)}, {"message", error.what}};
  if (!error.field.empty()) inner["field"] = error.field;
  if (!error.hint.empty()) inner["hint"] = error.hint;
  if (*error.step != '\0') inner["step"] = error.step;
  if (error.sys != 0) inner["errno"] = ErrnoName(error.sys);
  if (error.code == Code::kUnavailable) inner["retry_after_seconds"] = kRetryUnavailableSeconds;
  if (error.code == Code::kLimit && std::string_view(error.step) == kAdmissionStep)
    inner["retry_after_seconds"] = kRetryLimitSeconds;
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
  Count(reply.status);
  const std::shared_ptr<ReplySink> sink = std::exchange(sink_, nullptr);
  sink->SendReply(std::move(reply));
}

void Responder::OnHangup(std::function<void()> handler) {
  sink_->SetHangupHandler(std::move(handler));
}

void Responder::ReceiveBody(UniqueFd pipe, StreamDone done) {
  sink_->ReceiveBody(std::move(pipe), std::move(done));
}

void Responder::SendStream(StreamHead head, UniqueFd pipe, StreamDone done) {
  Count(head.status);
  const std::shared_ptr<ReplySink> sink = std::exchange(sink_, nullptr);
  sink->SendStream(std::move(head), std::move(pipe), std::move(done));
}

Result<TakenConnection> Responder::TakeOver() {
  Result<TakenConnection> taken = sink_->TakeOver();
  if (taken.has_value()) sink_ = nullptr;
  return taken;
}

void Responder::StartEvents() {
  Count(200);
  sink_->StartEvents();
}
void Responder::Event(std::string_view name, std::string json_object, std::string_view id) {
  if (sink_ != nullptr) sink_->SendEvent(name, std::move(json_object), id);
}

void Responder::End() {
  const std::shared_ptr<ReplySink> sink = std::exchange(sink_, nullptr);
  if (sink != nullptr) sink->EndEvents();
}

Status Responder::StartWebSocket(WebSocketHandler handler) {
  Status started = sink_->StartWebSocket(std::move(handler));
  if (started.has_value()) Count(101);
  return started;
}

void Responder::Message(bool binary, std::string data) {
  if (sink_ != nullptr) sink_->SendMessage(binary, std::move(data));
}

void Responder::CloseWebSocket(uint16_t code, std::string reason) {
  const std::shared_ptr<ReplySink> sink = std::exchange(sink_, nullptr);
  if (sink != nullptr) sink->CloseWebSocket(code, std::move(reason));
}

}  // namespace hutch::daemon
