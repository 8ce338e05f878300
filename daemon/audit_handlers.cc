// GET /v1/audit and GET /v1/sandboxes/{id}/audit: pages of the log, newest first.
#include <memory>

#include "base/text.h"
#include "daemon/handlers.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

Error Invalid(const std::string& field, std::string what) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = field};
}

Result<int64_t> ParseTime(const std::string& field, const std::string& text) {
  const Result<WallTime> time = ParseRfc3339(text);
  if (!time.has_value()) return Invalid(field, "must be a time as 2026-01-31T09:08:07.000Z");
  return std::chrono::duration_cast<std::chrono::milliseconds>(time->time_since_epoch()).count();
}

Status ApplyParameter(const std::string& name, const std::string& value, AuditQuery* query) {
  if (name == "sandbox") {
    query->sandbox = value;
  } else if (name == "kind") {
    query->kind = ParseAuditKind(value);
    if (!query->kind) return Invalid(name, "there is no such kind of entry");
  } else if (name == "since") {
    ASSIGN_OR_RETURN(query->since_ms, ParseTime(name, value));
  } else if (name == "until") {
    ASSIGN_OR_RETURN(query->until_ms, ParseTime(name, value));
  } else {
    const bool limit = name == "limit";
    const auto number = ParseUint(value, limit ? kMaxAuditPage : uint64_t{INT64_MAX});
    if (!number || *number == 0)
      return Invalid(name, limit ? "must be 1 to " + std::to_string(kMaxAuditPage)
                                 : "must be a cursor of an earlier answer");
    (limit ? query->limit : query->before) = *number;
  }
  return OkStatus();
}

Reply PageReply(const AuditPage& page, bool lines) {
  if (!lines) {
    oci::Json json = {{"entries", page.entries}, {"next_cursor", nullptr}};
    if (page.next != 0) json["next_cursor"] = std::to_string(page.next);
    return JsonReply(200, json);
  }
  Reply reply{.status = 200, .body = {}, .content_type = "application/x-ndjson"};
  for (const oci::Json& entry : page.entries) reply.body += oci::PrintJson(entry) + "\n";
  return reply;
}

void Answer(Api& api, const Request& request, AuditQuery query, Responder responder) {
  for (const auto& [name, value] : request.query) {
    const Status applied = ApplyParameter(name, value, &query);
    if (!applied.has_value()) return responder.Send(applied.error());
  }
  const auto shared = std::make_shared<Responder>(std::move(responder));
  const Status given = api.worker.Submit([&api, shared, query, lines = request.wants_ndjson] {
    auto page = std::make_shared<Result<AuditPage>>(api.audit.Read(query));
    api.loop.Post([shared, page, lines] {
      if (page->has_value())
        shared->Send(PageReply(**page, lines));
      else
        shared->Send(page->error());
    });
  });
  if (!given.has_value()) shared->Send(given.error());
}

}  // namespace

oci::Json AuditStateJson(const Audit& audit) {
  const Audit::State state = audit.state();
  const auto text = [](const std::string& value) {
    return value.empty() ? oci::Json() : oci::Json(value);
  };
  return {{"enabled", state.enabled},
          {"error", text(state.trouble)},
          {"moved_aside", text(state.moved_aside)},
          {"entries_lost", state.lost}};
}

void HandleAudit(Api& api, Request request, Responder responder) {
  Answer(api, request, AuditQuery(), std::move(responder));
}

// By id, of sandboxes long gone, too; by name while it lives.
void HandleSandboxAudit(Api& api, Request request, Responder responder) {
  AuditQuery query;
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  query.sandbox = entry.has_value() ? (*entry)->facts.id : request.parameters[0];
  Answer(api, request, query, std::move(responder));
}

}  // namespace hutch::daemon
