#include "daemon/handlers.h"
#include "daemon/limits.h"
#include "daemon/template_library.h"

namespace hutch::daemon {
namespace {

using oci::Json;

// What is known of every one; `whole` adds what a right one makes of a sandbox.
enum class Detail { kSummary, kWhole };

Json FoundJson(const FoundTemplate& found, Detail detail) {
  Json json = {{"name", found.name}, {"source", found.source}, {"valid", found.made.has_value()},
               {"error", Json()},    {"title", Json()},        {"description", Json()},
               {"image", Json()}};
  if (!found.made.has_value()) {
    json["error"] = ErrorJson(found.made.error())["error"];
    return json;
  }
  const Json whole = TemplateJson(*found.made);
  for (const auto& [key, value] : whole.items())
    if (detail == Detail::kWhole || json.contains(key)) json[key] = value;
  return json;
}

// The operator's directory may be slow to read.
void AnswerFromWorker(Api& api, Responder responder, std::function<Reply()> read) {
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status begun = api.worker.Submit([&loop = api.loop, shared, read = std::move(read)] {
    loop.Post([shared, reply = read()]() mutable { shared->Send(std::move(reply)); });
  });
  if (!begun.has_value()) shared->Send(begun.error());
}

}  // namespace

void HandleListTemplates(Api& api, Request, Responder responder) {
  AnswerFromWorker(api, std::move(responder), [config = api.config]() -> Reply {
    const Result<std::vector<FoundTemplate>> found = TemplateLibrary(config).List();
    if (!found.has_value()) return ErrorReply(found.error());
    Json list = Json::array();
    for (const FoundTemplate& one : *found) list.push_back(FoundJson(one, Detail::kSummary));
    return JsonReply(200, {{"templates", std::move(list)}});
  });
}

void HandleGetTemplate(Api& api, Request request, Responder responder) {
  AnswerFromWorker(api, std::move(responder),
                   [config = api.config, name = request.parameters[0]]() -> Reply {
                     const Result<FoundTemplate> found = TemplateLibrary(config).Find(name);
                     if (!found.has_value()) return ErrorReply(found.error());
                     return JsonReply(200, FoundJson(*found, Detail::kWhole));
                   });
}

void HandleValidateTemplate(Api& api, Request request, Responder responder) {
  std::string text;
  oci::ObjectReader reader(request.json, "");
  reader.String("devcontainer", &text, kMaxDevcontainerBytes);
  if (reader.Member("devcontainer") == nullptr) reader.Fail("devcontainer", "is required");
  const Status status = reader.Done(oci::ObjectReader::Unknown::kRefuse);
  if (!status.has_value()) return responder.Send(status.error());
  Json json = FoundJson({"", "", ParseDevcontainer(text, api.config)}, Detail::kWhole);
  json.erase("name");
  json.erase("source");
  responder.Send(JsonReply(200, json));
}

}  // namespace hutch::daemon
