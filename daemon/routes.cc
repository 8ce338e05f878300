#include "daemon/routes.h"

#include <algorithm>

#include "base/text.h"
#include "daemon/handlers.h"
#include "daemon/http_parser.h"
#include "daemon/limits.h"
#include "daemon/watching.h"

namespace hutch::daemon {
namespace {

constexpr Route kRoutes[] = {
    // method  path                   body         query          handler          role over TCP
    {"POST", "/v1/sandboxes", Body::kJson, "", HandleCreateSandbox, Role::kUse},
    {"GET", "/v1/sandboxes", Body::kNone, "state,label,session_key,pooled", HandleListSandboxes,
     Role::kRead},
    {"GET", "/v1/sandboxes/{id}", Body::kNone, "wait,timeout_seconds", HandleGetSandbox,
     Role::kRead},
    {"PATCH", "/v1/sandboxes/{id}", Body::kJson, "", HandleChangeSandbox, Role::kUse},
    {"DELETE", "/v1/sandboxes/{id}", Body::kNone, "", HandleDeleteSandbox, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/network", Body::kNone, "", HandleSandboxNetwork, Role::kRead},
    {"POST", "/v1/sandboxes/{id}/heartbeat", Body::kNone, "", HandleHeartbeat, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/pause", Body::kJson, "", HandlePause, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/resume", Body::kNone, "", HandleResume, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/snapshot", Body::kJson, "", HandleSnapshot, Role::kAdmin},
    {"POST", "/v1/sandboxes/{id}/fork", Body::kJson, "", HandleFork, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/diff", Body::kNone, "path,limit", HandleDiff, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/stop", Body::kJson, "", HandleStop, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/start", Body::kNone, "", HandleStart, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/exec", Body::kJson, "", HandleExec, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/processes", Body::kJson, "", HandleStartProcess, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/processes", Body::kNone, "", HandleListProcesses, Role::kRead},
    {"GET", "/v1/sandboxes/{id}/processes/{process}", Body::kNone, "wait_seconds", HandleGetProcess,
     Role::kRead},
    {"DELETE", "/v1/sandboxes/{id}/processes/{process}", Body::kNone, "", HandleDeleteProcess,
     Role::kUse},
    {"POST", "/v1/sandboxes/{id}/processes/{process}/signal", Body::kJson, "", HandleSignalProcess,
     Role::kUse},
    {"POST", "/v1/sandboxes/{id}/processes/{process}/stdin", Body::kJson, "", HandleWriteStdin,
     Role::kUse},
    {"POST", "/v1/sandboxes/{id}/processes/{process}/resize", Body::kJson, "", HandleResizeProcess,
     Role::kUse},
    {"GET", "/v1/sandboxes/{id}/processes/{process}/output", Body::kNone,
     "cursor,max_bytes,tail_bytes,since,encoding,stream,follow", HandleReadOutput, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/processes/{process}/attach", Body::kNone, "cursor", HandleAttach,
     Role::kUse},
    {"GET", "/v1/sandboxes/{id}/files", Body::kNone, "path,depth,glob,limit,cursor",
     HandleListFiles, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/files/{path}", Body::kNone, "", HandleGetFile, Role::kUse},
    {"HEAD", "/v1/sandboxes/{id}/files/{path}", Body::kNone, "", HandleHeadFile, Role::kUse},
    {"PUT", "/v1/sandboxes/{id}/files/{path}", Body::kStream, "mode,append,parents", HandlePutFile,
     Role::kUse},
    {"DELETE", "/v1/sandboxes/{id}/files/{path}", Body::kNone, "recursive", HandleDeleteFile,
     Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:mkdir", Body::kJson, "", HandleMakeDirectory, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:move", Body::kJson, "", HandleMoveFile, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:copy", Body::kJson, "", HandleCopyFile, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:edit", Body::kJson, "", HandleEditFile, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:glob", Body::kJson, "", HandleGlobFiles, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:grep", Body::kJson, "", HandleGrepFiles, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:read", Body::kJson, "", HandleReadFiles, Role::kUse},
    {"POST", "/v1/sandboxes/{id}/files:write", Body::kJson, "", HandleWriteFiles, Role::kUse},
    {"GET", "/v1/sandboxes/{id}/archive", Body::kNone, "path,format", HandleGetArchive, Role::kUse},
    {"PUT", "/v1/sandboxes/{id}/archive", Body::kStream, "path,format,parents", HandlePutArchive,
     Role::kUse},
    {"GET", "/v1/sandboxes/{id}/watch", Body::kNone, "path,recursive", HandleWatchFiles,
     Role::kUse},
    {"GET", "/v1/sandboxes/{id}/ports", Body::kNone, "", HandleListPorts, Role::kRead},
    {"POST", "/v1/sandboxes/{id}/ports", Body::kJson, "", HandleAddPort, Role::kUse},
    {"DELETE", "/v1/sandboxes/{id}/ports/{port}", Body::kNone, "", HandleRemovePort, Role::kUse},
    {"ANY", "/v1/sandboxes/{id}/proxy/{port}/{rest}", Body::kTakeOver, "", HandleProxy, Role::kUse},
    {"GET", "/v1/images", Body::kNone, "", HandleListImages, Role::kRead},
    {"POST", "/v1/images/pull", Body::kJson, "", HandlePullImage, Role::kAdmin},
    {"POST", "/v1/images/import", Body::kJson, "", HandleImportImage, Role::kAdmin},
    {"POST", "/v1/images/build", Body::kJson, "", HandleBuildImage, Role::kAdmin},
    {"POST", "/v1/images/load", Body::kStream, "reference", HandleLoadImage, Role::kAdmin},
    {"POST", "/v1/images/prune", Body::kJson, "", HandlePruneImages, Role::kAdmin},
    {"GET", "/v1/images/{reference}/history", Body::kNone, "", HandleImageHistory, Role::kRead},
    {"GET", "/v1/images/{reference}/archive", Body::kNone, "format", HandleSaveImage, Role::kAdmin},
    {"POST", "/v1/images/{reference}/tag", Body::kJson, "", HandleTagImage, Role::kAdmin},
    {"GET", "/v1/images/{reference}", Body::kNone, "", HandleGetImage, Role::kRead},
    {"DELETE", "/v1/images/{reference}", Body::kNone, "", HandleDeleteImage, Role::kAdmin},
    {"GET", "/v1/catalog", Body::kNone, "", HandleListCatalog, Role::kRead},
    {"GET", "/v1/templates", Body::kNone, "", HandleListTemplates, Role::kRead},
    {"GET", "/v1/templates/{name}", Body::kNone, "", HandleGetTemplate, Role::kRead},
    {"POST", "/v1/templates/validate", Body::kJson, "", HandleValidateTemplate, Role::kUse},
    {"POST", "/v1/networks", Body::kJson, "", HandleCreateNetwork, Role::kAdmin},
    {"GET", "/v1/networks", Body::kNone, "", HandleListNetworks, Role::kRead},
    {"GET", "/v1/networks/{name}", Body::kNone, "", HandleGetNetwork, Role::kRead},
    {"DELETE", "/v1/networks/{name}", Body::kNone, "", HandleDeleteNetwork, Role::kAdmin},
    {"GET", "/v1/pools", Body::kNone, "", HandleListPools, Role::kRead},
    {"GET", "/v1/pools/{name}", Body::kNone, "", HandleGetPool, Role::kRead},
    {"PUT", "/v1/pools/{name}", Body::kJson, "", HandlePutPool, Role::kAdmin},
    {"DELETE", "/v1/pools/{name}", Body::kNone, "", HandleDeletePool, Role::kAdmin},
    {"GET", "/v1/network/presets", Body::kNone, "", HandleListPresets, Role::kRead},
    {"GET", "/v1/secrets", Body::kNone, "", HandleListSecrets, Role::kUse},
    {"GET", "/v1/audit", Body::kNone, "sandbox,kind,since,until,limit,cursor", HandleAudit,
     Role::kAdmin},
    {"GET", "/v1/sandboxes/{id}/audit", Body::kNone, "kind,since,until,limit,cursor",
     HandleSandboxAudit, Role::kAdmin},
    {"GET", "/v1/events", Body::kNone, "cursor,since,kind,sandbox,label,follow", HandleEvents,
     Role::kRead},
    {"GET", "/v1/metrics", Body::kNone, "", HandleMetrics, Role::kRead},
    {"GET", "/v1/sandboxes/{id}/stats", Body::kNone, "stream", HandleStats, Role::kRead},
    {"POST", "/v1/volumes", Body::kJson, "", HandleCreateVolume, Role::kUse},
    {"GET", "/v1/volumes", Body::kNone, "label", HandleListVolumes, Role::kRead},
    {"POST", "/v1/volumes/prune", Body::kJson, "", HandlePruneVolumes, Role::kAdmin},
    {"GET", "/v1/volumes/{name}", Body::kNone, "", HandleGetVolume, Role::kRead},
    {"PATCH", "/v1/volumes/{name}", Body::kJson, "", HandleChangeVolume, Role::kUse},
    {"DELETE", "/v1/volumes/{name}", Body::kNone, "", HandleDeleteVolume, Role::kUse},
    {"POST", "/v1/volumes/{name}/copy", Body::kJson, "", HandleCopyVolume, Role::kUse},
    {"GET", "/v1/volumes/{name}/archive", Body::kNone, "", HandleExportVolume, Role::kUse},
    {"PUT", "/v1/volumes/{name}/archive", Body::kStream, "", HandleImportVolume, Role::kUse},
    {"GET", "/v1/health", Body::kNone, "", HandleHealth, Role::kRead},
    {"GET", "/v1/info", Body::kNone, "", HandleInfo, Role::kRead},
    {"GET", "/v1/openapi.json", Body::kNone, "", HandleOpenApi, Role::kRead},
};

constexpr std::string_view kRest = "{rest}";
constexpr std::string_view kAnyMethod = "ANY";

bool IsParameter(std::string_view segment) {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

// Up to the next slash; removes it and the slash from `rest`.
std::string_view NextSegment(std::string_view& rest) {
  const size_t slash = rest.find('/');
  const std::string_view segment = rest.substr(0, slash);
  rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
  return segment;
}

Error UnknownCall(const Request& request, const std::vector<std::string>& methods) {
  std::string what = "there is no " + request.method + " " + request.path;
  if (!methods.empty()) what += "; there is " + Join(methods, ", ");
  return Error{
      .code = Code::kNotFound, .what = what, .hint = "GET /v1/openapi.json lists the calls"};
}

// One that waits in a pool is nobody's, and stays as it was made: no call reaches it.
Status CheckPooled(Api& api, const Route& route, const Request& request) {
  constexpr std::string_view kOneSandbox = "/v1/sandboxes/{id}";
  if (!std::string_view(route.pattern).starts_with(kOneSandbox)) return OkStatus();
  const Result<SandboxEntry*> entry = api.sandboxes.Find(request.parameters[0]);
  if (!entry.has_value() || !(*entry)->facts.fields.pooled) return OkStatus();
  return Error{.code = Code::kNotFound, .what = "no sandbox \"" + request.parameters[0] + "\""};
}

Status CheckQuery(const Route& route, const Request& request) {
  const std::vector<std::string> allowed = Split(route.query, ',');
  for (const auto& [name, value] : request.query)
    if (name.empty() || std::find(allowed.begin(), allowed.end(), name) == allowed.end())
      return Error{
          .code = Code::kInvalidArgument, .what = "unknown query parameter", .field = name};
  return OkStatus();
}

Status ParseBody(const Route& route, Request* request) {
  if (route.body == Body::kStream || route.body == Body::kTakeOver) return OkStatus();
  if (route.body == Body::kNone) {
    if (request->body.empty() || request->body == "{}") return OkStatus();
    return Error{.code = Code::kInvalidArgument, .what = "this call takes no body"};
  }
  if (request->body.empty())
    return Error{.code = Code::kInvalidArgument, .what = "a JSON object is needed as the body"};
  ASSIGN_OR_RETURN(request->json, oci::ParseJson(request->body, {.max_bytes = kMaxBodyBytes,
                                                                 .max_depth = kMaxJsonDepth}));
  request->body.clear();
  return OkStatus();
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

bool MatchPath(std::string_view pattern, std::string_view path,
               std::vector<std::string>* parameters) {
  parameters->clear();
  if (!pattern.starts_with('/') || !path.starts_with('/')) return false;
  if (path.ends_with('/') && !pattern.ends_with(kRest)) return false;
  pattern.remove_prefix(1);
  path.remove_prefix(1);
  while (!pattern.empty()) {
    const std::string_view wanted = NextSegment(pattern);
    if (pattern.empty() && wanted == kRest) {
      parameters->emplace_back(path);
      return true;
    }
    if (!IsParameter(wanted)) {
      if (NextSegment(path) != wanted) return false;
      continue;
    }
    // The last parameter takes the rest: image references and paths hold slashes, escaped or not.
    const bool takes_rest = pattern.empty() && (wanted == "{reference}" || wanted == "{path}");
    const std::string_view value = takes_rest ? std::exchange(path, {}) : NextSegment(path);
    std::string decoded;
    if (value.empty() || !PercentDecode(value, Plus::kLiteral, &decoded)) return false;
    parameters->push_back(std::move(decoded));
  }
  return path.empty();
}

const Route* FindRoute(const Request& request) {
  std::vector<std::string> parameters;
  for (const Route& route : kRoutes)
    if ((request.method == route.method || route.method == kAnyMethod) &&
        MatchPath(route.pattern, request.path, &parameters))
      return &route;
  return nullptr;
}

Body BodyOf(const Request& request) {
  const Route* route = FindRoute(request);
  return route == nullptr ? Body::kNone : route->body;
}

void Dispatch(Api& api, Request request, Responder responder) {
  std::vector<StatusCounts>& counts = api.watching.metrics().requests;
  std::vector<std::string> methods;  // that the path knows
  for (const Route& route : kRoutes) {
    std::vector<std::string> parameters;
    if (!MatchPath(route.pattern, request.path, &parameters)) continue;
    if (request.method != route.method && route.method != kAnyMethod) {
      methods.emplace_back(route.method);
      continue;
    }
    responder.CountIn(counts[static_cast<size_t>(&route - kRoutes)]);
    request.parameters = std::move(parameters);
    Status status = CheckPooled(api, route, request);
    if (status.has_value()) status = CheckQuery(route, request);
    if (status.has_value()) status = ParseBody(route, &request);
    if (!status.has_value()) return responder.Send(status.error());
    return route.handler(api, std::move(request), std::move(responder));
  }
  responder.CountIn(counts.back());
  responder.Send(UnknownCall(request, methods));
}

}  // namespace hutch::daemon
