// GET /v1/sandboxes/{id}/stats: once, or every second until the sandbox ends.
#include <memory>

#include "daemon/handlers.h"
#include "daemon/limits.h"
#include "daemon/sandbox_networks.h"
#include "daemon/sandbox_stats.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

oci::Json StatsOf(Api& api, SandboxEntry& entry) {
  return StatsJson(entry, api.networks.Counted(entry.facts.id));
}

class StatsFeed final : public std::enable_shared_from_this<StatsFeed> {
 public:
  StatsFeed(Api& api, Responder responder, std::string id)
      : api_(api), responder_(std::move(responder)), id_(std::move(id)) {}

  void Begin() {
    responder_.StartEvents();
    responder_.OnHangup([self = shared_from_this()] { self->timer_.Cancel(); });
    Tell();
  }

 private:
  // A reader that is behind misses some: each tells all there is.
  void Tell() {
    const Result<SandboxEntry*> entry = api_.sandboxes.FindLiving(id_);
    if (!entry.has_value() || api_.watching.events().stopped()) return End(entry);
    if (!responder_.Congested()) responder_.Event("stats", oci::PrintJson(StatsOf(api_, **entry)));
    timer_.Start(api_.loop, kStatsInterval, [this] {
      const auto self = shared_from_this();
      Tell();
    });
  }

  void End(const Result<SandboxEntry*>& entry) {
    if (!entry.has_value())
      responder_.Event("end", oci::PrintJson({{"message", entry.error().what}}));
    responder_.End();
  }

  Api& api_;
  Responder responder_;
  std::string id_;
  Timer timer_;
};

}  // namespace

void HandleStats(Api& api, Request request, Responder responder) {
  bool stream = request.wants_events || request.wants_ndjson;
  for (const auto& [name, value] : request.query) {
    if (value != "true" && value != "false")
      return responder.Send(
          Error{.code = Code::kInvalidArgument, .what = "must be true or false", .field = name});
    stream = value == "true";
  }
  const Result<SandboxEntry*> entry = api.sandboxes.FindLiving(request.parameters[0]);
  if (!entry.has_value()) return responder.Send(entry.error());
  if (!stream) return responder.Send(JsonReply(200, StatsOf(api, **entry)));
  std::make_shared<StatsFeed>(api, std::move(responder), (*entry)->facts.id)->Begin();
}

}  // namespace hutch::daemon
