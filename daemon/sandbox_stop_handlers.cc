#include "daemon/sandbox_stop_handlers.h"

#include <memory>

#include "daemon/limits.h"
#include "daemon/volume_keeping.h"

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

// Its volumes are mounted first, on a thread that may wait for the disk.
void StartStopped(Api& api, SandboxEntry& entry, const Peer& caller, StartDone done) {
  if (entry.facts.fields.volumes.empty())
    return api.sandboxes.stops->Start(entry, caller, std::move(done));
  api.volumes.Prepare(entry.facts.fields.volumes,
                      [&api, id = entry.facts.id, caller, done](const Result<HeldVolumes>& held) {
                        if (!held.has_value()) return done(held.error());
                        const Result<SandboxEntry*> found = api.sandboxes.Find(id);
                        if (!found.has_value()) return done(found.error());
                        api.sandboxes.stops->Start(**found, caller, done);
                      });
}

void HandleStart(Api& api, Request request, Responder responder) {
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  const auto shared = std::make_shared<Responder>(std::move(responder));
  StartStopped(api, **entry, request.peer, [&api, shared](const Result<SandboxEntry*>& started) {
    if (!started.has_value()) return shared->Send(started.error());
    shared->Send(JsonReply(200, api.sandboxes.ToJson(**started)));
  });
}

}  // namespace hutch::daemon
