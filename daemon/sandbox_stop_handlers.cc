// Stopping sandboxes, and starting them again.
#include <memory>

#include "daemon/handlers.h"
#include "daemon/limits.h"
#include "daemon/sandbox_stops.h"

namespace hutch::daemon {

void HandleStop(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  uint64_t seconds = kStopSeconds;
  const Status read = oci::ObjectReader(request.json, "")
                          .Uint("timeout_seconds", &seconds, 0, kMaxStopSeconds)
                          .Done(oci::ObjectReader::Unknown::kRefuse);
  if (!read.has_value()) return responder.Send(read.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.sandboxes.stops->Stop(**entry, MoveCause::kRequested, std::chrono::seconds(seconds),
                            request.peer,
                            [&api, shared, id = (*entry)->facts.id](const Status& stopped) {
                              if (!stopped.has_value()) return shared->Send(stopped.error());
                              const Result<SandboxEntry*> found = api.sandboxes.Find(id);
                              if (!found.has_value()) return shared->Send(found.error());
                              shared->Send(JsonReply(200, api.sandboxes.ToJson(**found)));
                            });
}

void HandleStart(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  api.sandboxes.stops->Start(**entry, request.peer,
                             [&api, shared](const Result<SandboxEntry*>& started) {
                               if (!started.has_value()) return shared->Send(started.error());
                               shared->Send(JsonReply(200, api.sandboxes.ToJson(**started)));
                             });
}

}  // namespace hutch::daemon
