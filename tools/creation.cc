#include "tools/creation.h"

#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "tools/exec_outcome.h"
#include "tools/progress.h"

namespace hutch::tools {
namespace {

using oci::Json;

std::string TextOf(const Json& event, const char* member) {
  const auto it = event.find(member);
  return it != event.end() && it->is_string() ? it->get<std::string>() : "";
}

// How a pull and a template's commands go, on standard error.
class Narrator {
 public:
  Status Show(const Json& event) {
    const std::string kind = TextOf(event, "event"), stage = TextOf(event, "stage");
    if (kind == "progress" && !stage.ends_with("Command")) {  // of the image
      Write(progress_.Take(event));
    } else if (kind == "progress") {
      Write(progress_.Finish());
      Note(Printable(stage + ": " + TextOf(event, "subject")));
    } else if (kind == "output") {
      ASSIGN_OR_RETURN(const OutputPiece piece, ReadOutputPiece(event));
      Write(progress_.Finish() + piece.bytes);
    }
    return OkStatus();
  }
  void Finish() { Write(progress_.Finish()); }

 private:
  static void Write(const std::string& text) {
    IgnoreError(WriteAll(STDERR_FILENO, text), "a closed stderr was the caller's choice");
  }

  Progress progress_{::isatty(STDERR_FILENO) == 1 ? ProgressStyle::kLive : ProgressStyle::kPlain,
                     ColoursFor(STDERR_FILENO)};
};

// Ports that the host chose are told: nobody else knows them.
void NotePorts(const Json& ports) {
  for (const Json& port : ports) {
    uint64_t inside = 0, host = 0;
    std::string address;
    const Status read = oci::ObjectReader(port, "ports")
                            .Uint("port", &inside)
                            .Uint("host_port", &host)
                            .String("address", &address)
                            .Done(oci::ObjectReader::Unknown::kIgnore);
    if (read)
      Note("port " + std::to_string(inside) + " is reached at " + Printable(address) + " port " +
           std::to_string(host));
  }
}

}  // namespace

Result<Json> CreateSandbox(Context& context, const Json& body) {
  for (const char c : context.options.idempotency_key)
    if (c <= ' ' || c > '~')
      return Error{.code = Code::kInvalidArgument,
                   .what = "--idempotency-key: must be visible characters of ASCII"};
  const Request request{.method = "POST",
                        .target = "/v1/sandboxes",
                        .body = oci::PrintJson(body),
                        .idempotency_key = context.options.idempotency_key};
  if (context.options.json) return context.client.Call(request);
  Json made;
  Narrator narrator;
  const Status read = context.client.ReadEvents(request, [&](const Json& event) -> Status {
    if (event["event"] == "result") made = event;
    return narrator.Show(event);
  });
  narrator.Finish();
  RETURN_IF_ERROR(read);
  if (made.is_null())
    return Error{.code = Code::kUnavailable,
                 .what = "the daemon went away before the sandbox was made"};
  made.erase("event");
  if (made.contains("ports")) NotePorts(made["ports"]);
  return made;
}

}  // namespace hutch::tools
