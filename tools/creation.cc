#include "tools/creation.h"

#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "tools/exec_outcome.h"

namespace hutch::tools {
namespace {

using oci::Json;

std::string TextOf(const Json& event, const char* member) {
  const auto it = event.find(member);
  return it != event.end() && it->is_string() ? it->get<std::string>() : "";
}

Status Show(const Json& event) {
  if (event["event"] == "progress")
    Note(Printable(TextOf(event, "stage") + ": " + TextOf(event, "subject")));
  if (event["event"] != "output") return OkStatus();
  ASSIGN_OR_RETURN(const OutputPiece piece, ReadOutputPiece(event));
  IgnoreError(WriteAll(STDERR_FILENO, piece.bytes), "a closed stderr was the caller's choice");
  return OkStatus();
}

}  // namespace

Result<Json> CreateSandbox(Context& context, const Json& body) {
  if (!body.contains("template") || context.options.json)
    return context.client.Post("/v1/sandboxes", body);
  Json made;
  RETURN_IF_ERROR(context.client.ReadEvents(
      {.method = "POST", .target = "/v1/sandboxes", .body = oci::PrintJson(body)},
      [&](const Json& event) -> Status {
        if (event["event"] == "result") made = event;
        return Show(event);
      }));
  if (made.is_null())
    return Error{.code = Code::kUnavailable,
                 .what = "the daemon went away before the sandbox was made"};
  made.erase("event");
  return made;
}

}  // namespace hutch::tools
